//! Handling of columns that a request does not contain.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How to handle a column that is missing from a request with named columns. A column name that the
/// model does not have is rejected in both cases.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize, JsonSchema)]
pub enum MissingColumns {
    /// The request is rejected with the name of the column.
    #[default]
    Refuse,
    /// Its values are missing values, like null in a row. A request in which no column has a name
    /// of the model is rejected.
    Nan,
}
