//! Inference engine for tree ensembles: compiles models, predicts, and explains predictions.
//!
//! Pure: computes on bytes and numbers; uses no files, no clock, no threads and no globals.
//!
//! ```text
//! file bytes --Model::parse--> Model --Image::compile--> Image
//! image bytes --Predictor::open--> Predictor --predict--> numbers
//! ```
//!
//! * [`Model`]: checked contents of a model file; the readers are in the crate `albacore-formats`.
//!   [`Iterations`] selects the trees used for prediction.
//! * [`Image`]: the compiled model, one block of bytes that many processes map and read in place.
//! * [`Predictor`]: predicts from such bytes; [`Kind`] lists the kinds of prediction.
//! * [`Kernel`]: the algorithms that find the leaves of rows. All give the same bits;
//!   [`SelectedKernel`] is the kernel for a number of rows.
//! * [`PartialOutput`], [`Accumulator`]: a call of few rows whose trees are divided among threads.
//!
//! Internally, `layout` defines the compiled model, `compile` writes it and `open` checks it;
//! `encode` converts rows; `kernel` finds leaves; `shap` computes SHAP values; the crate
//! `albacore-simd` contains the inner loops; `limits` lists the bounds with their reasons.
//!
//! Results equal those of the training library: margins bit for bit, regardless of batching.
#![forbid(unsafe_code)]

mod compile;
mod encode;
mod error;
mod kernel;
mod layout;
mod limits;
mod open;
mod output;
mod predict;
mod rows;
mod shap;
mod transform;
mod tuning;

pub use albacore_formats::{
    Format, IterationRange, Iterations, IterationsError, Library, Model, ModelError, Transform,
};
pub use error::{ImageError, PredictError};
pub use kernel::Kernel;
pub use kernel::selection::SelectedKernel;
pub use layout::image::Image;
pub use output::{ElementType, Kind, OutputMut};
pub use predict::partial::{Accumulator, PartialOutput};
pub use predict::{PredictScratch, PredictionOptions, Predictor};
pub use rows::Rows;
