//! Encodings of rows for kernels and SHAP: byte columns of a block of rows, keys of one row.

pub(crate) mod bins;
pub(crate) mod keys;
