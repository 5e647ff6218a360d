//! Model files: reads tree ensembles of XGBoost, LightGBM and scikit-learn into one checked value.
//!
//! Pure: bytes in, a [`Model`] out; no files, no clock, no threads, no globals.
//!
//! * [`Model::parse`] finds the format by the content (`detect`) and hands the bytes to its reader:
//!   `xgboost` (over `json` or `ubjson`), `lightgbm`, or `sklearn` (what a script of ours writes).
//! * [`Parts`] is what a reader makes; [`Model::new`] is the only way from there to a [`Model`], so
//!   whatever it checks holds for every model.
//! * [`Tree::build`] is the only way to make a tree: no cycles, no shared nodes, bounded depth.
//! * [`Model::with_iterations`] drops the trees of iterations that shall not predict.
//! * [`Transform`] names what the objective does to a margin; the arithmetic is the engine's.
//! * `foreign` names files that no reader takes, with the way to one that is read.
//! * [`ModelError`] says what is wrong and where; [`limits`] holds every bound and its reason.
#![forbid(unsafe_code)]

mod detect;
mod error;
mod foreign;
mod iterations;
mod json;
mod lightgbm;
pub mod limits;
mod model;
mod sklearn;
mod source;
mod transform;
mod tree;
mod ubjson;
mod xgboost;

pub use error::ModelError;
pub use iterations::{IterationRange, Iterations, IterationsError};
pub use model::{Format, Library, Model, Parts};
pub use transform::Transform;
pub use tree::{CategorySets, Node, RawNode, RawTree, Tree, flag};

#[cfg(test)]
mod tests;
