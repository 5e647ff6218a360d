//! Model files: parses tree ensembles of XGBoost, LightGBM and scikit-learn into a checked
//! [`Model`].
//!
//! Pure: converts bytes to a [`Model`]; uses no files, no clock, no threads and no globals.
//!
//! * [`Model::parse`] detects the format by the content (`detect`) and calls its reader: `xgboost`
//!   (over `json` or `ubjson`), `lightgbm`, or `sklearn` (the JSON of our own script).
//! * [`ModelParts`] is the result of a reader; [`Model::new`] is the only conversion to a
//!   [`Model`], so that its checks hold for every model.
//! * [`Tree::build`] is the only constructor of a tree: no cycles, no shared nodes, bounded depth.
//! * [`Model::with_iterations`] drops the trees of iterations that are not used for prediction.
//! * [`Transform`] defines the transformation of margins; the engine computes it.
//! * `foreign` identifies unsupported files and describes how to get a supported one.
//! * [`ModelError`] contains the field and the reason; [`limits`] every bound and its reason.
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
