//! Deserializes the rows of requests, with values and column names, from all request formats into
//! rows of the engine.
//!
//! Pure functions from text and bytes to the memory of a reservation; no sockets, no clock.
//!
//! * [`row_writer`] writes checked values sequentially; [`json_values`] and [`binary_values`] pass
//!   it arrays of numbers. This is the fast path.
//! * [`ColumnOrder`] maps the column names of a request to those of the model.
//! * [`Table`] is the request body of KServe's V1 protocol, MLflow, SageMaker or Vertex AI; its
//!   rows are lists, objects, columns or CSV.
//! * `categories` replaces the texts of categories by their codes.
//! * [`labels`] names the classes of rows in replies.
//! * [`feature_names`] parses the parameter of that name of the Open Inference Protocol.
#![forbid(unsafe_code)]

pub mod binary_values;
mod categories;
mod column_order;
pub mod columns;
mod csv;
pub mod datatype;
mod excerpt;
pub mod feature_names;
pub mod json_values;
pub mod labels;
pub mod limits;
mod objects;
pub mod row_writer;
mod table;
mod table_json;

use std::borrow::Cow;

pub use column_order::ColumnOrder;
pub use table::{Params, PredictFunction, Table};
pub use table_json::invalid_json;

/// Error for rows or column names that a model does not accept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct InvalidRows {
    /// One sentence for the client: the problem, its location and the remedy.
    pub message: Cow<'static, str>,
}

impl InvalidRows {
    /// Creates the error with this sentence.
    pub fn new(message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            message: message.into(),
        }
    }
}
