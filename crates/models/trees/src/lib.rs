//! The engine of tree ensembles: compiles their models, predicts, and explains predictions.
//!
//! Pure: bytes in, numbers out; no files, no clock, no threads, no globals.
//!
//! ```text
//! file bytes --Model::parse--> Model --Image::compile--> Image
//! image bytes --Predictor::open--> Predictor --predict--> numbers
//! ```
//!
//! * [`Model`]: what a file says, checked; its readers are the crate `albacore-formats`.
//!   [`Iterations`] says which of its trees predict.
//! * [`Image`]: the compiled model, one block of bytes that many processes map and read in place.
//! * [`Predictor`]: predicts from such bytes; see [`Kind`] for what.
//! * [`Kernel`]: the ways to walk trees. All give the same bits; [`Choice`] says who takes what.
//! * [`Portion`], [`Total`]: a call of few rows, divided among threads by trees.
//! * Inside: `view` is how engines see a compiled model, `ranks` its form for bytes; `kernel` walks
//!   trees, `shap` explains, the crate `albacore-simd` holds the inner loops, `limits` every bound
//!   and its reason.
//!
//! Results equal the training library's: margins to the bit, in whatever batches rows come.
#![forbid(unsafe_code)]

mod error;
mod explain;
mod image;
mod kernel;
mod limits;
mod open;
mod output;
mod portions;
mod predict;
mod ranks;
mod rows;
mod shap;
mod transform;
mod tuning;
mod view;

pub use albacore_formats::{
    Format, IterationRange, Iterations, IterationsError, Library, Model, ModelError,
};
pub use error::{ImageError, PredictError};
pub use image::Image;
pub use kernel::Kernel;
pub use output::{ElementType, Kind, OutputMut};
pub use portions::{Portion, Total};
pub use predict::{Options, Predictor, Scratch};
pub use rows::Rows;
pub use tuning::Choice;
