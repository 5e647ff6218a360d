//! Tree ensembles: reads models of XGBoost and LightGBM, predicts, and explains predictions.
#![forbid(unsafe_code)]

pub mod limits;
mod shap;
pub mod view;
