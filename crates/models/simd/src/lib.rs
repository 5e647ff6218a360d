//! Inner loops of the tree engine over blocks of rows, in the widest instructions of the cpu. This
//! crate and `os` are the only ones with unsafe code.
//!
//! Every function exists three times, with the same results to the bit: in plain Rust (`plain`, the
//! reference of the others), in AVX2 and in AVX-512 (F, BW and VBMI). A [`Simd`] selects one of
//! them and exists only where the cpu has the instructions, which makes calling it sound.

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
