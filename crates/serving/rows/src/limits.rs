//! Limits of the crate, each with its reason.

/// Column names in a request, and column tensors: more than any trained model has. A deserialized
/// name takes many times the two bytes that it can have in a body.
pub const COLUMNS_MAX: usize = 1 << 16;
