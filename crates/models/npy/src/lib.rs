//! numpy's `.npy` files: rows in, results out.
//!
//! A file is `\x93NUMPY`, a version, the length of a header and the header: a Python dictionary
//! with the element type (`descr`), the order (`fortran_order`) and the `shape`; then the elements
//! and nothing else. Only the dictionaries that numpy writes for plain arrays are taken, so that no
//! header can make this nest, allocate or overflow.
#![forbid(unsafe_code)]

mod header;
mod limits;
mod table;

pub use table::{Element, Floats, NpyError, Table, read_numbers, read_table, write};
