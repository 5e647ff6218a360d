//! Handling of columns that a request does not contain.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What becomes of a column that a request with named columns lacks. A name that the model does not
/// have is refused in both cases.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize, JsonSchema)]
pub enum MissingColumns {
    /// The request is refused, by the name of the column.
    #[default]
    Refuse,
    /// Its values are missing values, as null in a row. A request in which no column has a name of
    /// the model is refused.
    Nan,
}
