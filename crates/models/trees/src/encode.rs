//! Rows in the forms that kernels and SHAP read: bytes of a block of rows, keys of one row.

pub(crate) mod bins;
pub(crate) mod keys;
