//! The columns of a model's rows as its file describes them.

/// What a model's file says of its columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Columns {
    /// A name for each column; empty if the file has none.
    pub names: Vec<String>,
    /// A type for each column in the words of the training library; empty if the file has none.
    pub types: Vec<String>,
}
