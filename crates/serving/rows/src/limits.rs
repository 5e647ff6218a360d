//! The bounds of the crate, each with its reason.

/// Names of columns in a request, and tensors of columns: more than any trained model has. A name
/// takes many times the two bytes that it may have in a body.
pub const COLUMNS_MAX: usize = 1 << 16;
