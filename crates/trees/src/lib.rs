//! Tree ensembles: reads models of XGBoost and LightGBM, predicts, and explains predictions.
//!
//! Pure: bytes in, numbers out; no files, no clock, no threads, no globals.
//!
//! ```text
//! file bytes --Model::parse--> Model --compile--> Image
//! image bytes --Predictor::open--> Predictor --predict--> numbers
//! ```
//!
//! * [`Model`]: what a file says, checked. The readers are in `format`.
//! * [`Image`]: the compiled model, one block of bytes that many processes map and read in place.
//! * [`Predictor`]: predicts from such bytes; see [`Kind`] for what.
//! * [`Kernel`]: the ways to walk trees. All give the same bits; [`Choice`] says who takes what.
//! * Inside: `view` is how engines see a compiled model, `ranks` its form for bytes; `kernel` walks
//!   trees, `shap` explains, `simd` holds the inner loops, `limits` every bound and its reason.
//!
//! Results equal the training library's: margins to the bit, in whatever batches rows come.
#![deny(unsafe_code)]

mod error;
mod format;
mod image;
mod kernel;
mod limits;
mod model;
mod open;
mod output;
mod predict;
mod ranks;
mod rows;
mod shap;
#[allow(unsafe_code)]
mod simd;
mod transform;
mod tuning;
mod view;

pub use error::{ImageError, ModelError, PredictError};
pub use image::Image;
pub use kernel::Kernel;
pub use model::{Format, Library, Model};
pub use output::{ElementType, Kind, OutputMut};
pub use predict::{Options, Predictor, Scratch};
pub use rows::Rows;
pub use tuning::Choice;
