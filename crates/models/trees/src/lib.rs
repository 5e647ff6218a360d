//! The engine of tree ensembles: compiles models, predicts, and explains predictions.
//!
//! Pure: bytes in, numbers out; no files, no clock, no threads, no globals.
//!
//! ```text
//! file bytes --Model::parse--> Model --Image::compile--> Image
//! image bytes --Predictor::open--> Predictor --predict--> numbers
//! ```
//!
//! * [`Model`]: the checked contents of a model file; its readers are the crate `albacore-formats`.
//!   [`Iterations`] selects the trees that predict.
//! * [`Image`]: the compiled model, one block of bytes that many processes map and read in place.
//! * [`Predictor`]: predicts from such bytes; [`Kind`] lists the kinds of prediction.
//! * [`Kernel`]: the ways to find the leaves of rows. All give the same bits; [`Choice`] is the
//!   kernel for a number of rows.
//! * [`PartialOutput`], [`Accumulator`]: a call of few rows whose trees are divided among threads.
//!
//! Inside: `layout` describes the compiled model, `compile` writes it, `open` checks it; `encode`
//! brings rows into its form; `kernel` finds leaves, `shap` explains; the crate `albacore-simd`
//! holds the inner loops, `limits` every bound and its reason.
//!
//! Results equal the training library's: margins to the bit, whatever the batches of rows.
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
pub use kernel::selection::Choice;
pub use layout::image::Image;
pub use output::{ElementType, Kind, OutputMut};
pub use predict::partial::{Accumulator, PartialOutput};
pub use predict::{PredictScratch, PredictionOptions, Predictor};
pub use rows::Rows;
