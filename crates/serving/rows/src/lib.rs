//! The rows of requests: values and names of columns, read from the forms in which clients send
//! them and written as rows of the engine.
//!
//! Pure: texts and bytes in, the memory of a reservation out; no sockets, no clock.
//!
//! * [`row_writer`] writes checked values one after the other; [`json_values`] and
//!   [`binary_values`] feed it with arrays of numbers. This is the plain path.
//! * [`ColumnOrder`] compares the names that a request gives to its columns with the model's.
//! * [`Table`] is the body of a call of KServe's V1 protocol, MLflow, SageMaker or Vertex AI; its
//!   rows are lists, objects, columns or CSV.
//! * `categories` puts codes in the place of texts of categories.
//! * [`labels`] names the classes of rows in replies.
//! * [`feature_names`] reads the parameter of that name of the Open Inference Protocol.
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

/// Rows, or names of columns, that a model cannot take.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct InvalidRows {
    /// One sentence for the client: what is wrong, where, and what to do.
    pub message: Cow<'static, str>,
}

impl InvalidRows {
    /// The error with this sentence.
    pub fn new(message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            message: message.into(),
        }
    }
}
