//! The outputs of a model.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An output of a model, by the name of its tensor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum OutputSpec {
    /// The value: a probability, a class, a prediction.
    Output,
    /// The margin: the sum over trees before the objective's transformation.
    Margin,
    /// SHAP contributions: one per feature and one more, for each row and group.
    Contribs,
    /// SHAP interactions: a square matrix of that size, for each row and group.
    Interactions,
    /// The leaf of each tree that the row falls into.
    Leaf,
}
