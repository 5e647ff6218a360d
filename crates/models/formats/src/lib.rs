//! Model files: reads tree ensembles of XGBoost, LightGBM and scikit-learn into one checked value.
//!
//! Pure: bytes in, a [`Model`] out; no files, no clock, no threads, no globals.
//!
//! * [`Model::parse`] finds the format by the content (`detect`) and calls its reader: `xgboost`
//!   (over `json` or `ubjson`), `lightgbm`, or `sklearn` (the JSON of our own script).
//! * [`ModelParts`] is the result of a reader; [`Model::new`] is the only way from there to a
//!   [`Model`], so that its checks hold for every model.
//! * [`Tree::build`] is the only constructor of a tree: no cycles, no shared nodes, bounded depth.
//! * [`Model::with_iterations`] drops the trees of iterations that do not predict.
//! * [`Transform`] names the transformation of margins; the engine computes it.
//! * `foreign` recognizes unsupported files and says how to get a supported one.
//! * [`ModelError`] names the field and the reason; [`limits`] holds every bound and its reason.
#![forbid(unsafe_code)]

mod categories;
mod detect;
mod error;
mod foreign;
mod iterations;
mod json;
mod lightgbm;
pub mod limits;
mod model;
mod sklearn;
mod transform;
mod tree;
mod ubjson;
mod value_reader;
mod xgboost;

pub use categories::ColumnCategories;
pub use error::ModelError;
pub use iterations::{Iterations, IterationsError};
pub use model::{Format, IterationRange, Library, Model, ModelParts};
pub use transform::Transform;
pub use tree::{CategorySets, RawNode, RawTree, Tree, TreeNode, flag};

#[cfg(test)]
mod tests;
