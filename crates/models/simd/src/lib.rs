//! Inner loops of the tree engine over blocks of rows, with the widest vector instructions of the
//! cpu. Only this crate and `os` contain unsafe code.
//!
//! Every function has three implementations with bit-identical results: plain Rust (`plain`, the
//! reference), AVX2 and AVX-512 (F, BW and VBMI). A [`Simd`] value selects one of them and can be
//! created only on a cpu with these instructions, which makes the calls sound.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod columns;
mod lanes;
mod plain;
mod set;

pub use columns::{
    BLOCK_ROWS, COLUMN_CUTS, ColumnSplit, LEAVES_MAX, RowBytes, SpecialKeys, TABLE, ordered_key,
};
pub use lanes::{Lanes, ScalarF64, WithSimd};
pub use set::{LeafScratch, Simd};
