//! Inner loops of the tree engine over blocks of rows, in the widest instructions that the cpu has.
//! With `os` the only crate that has unsafe code.
//!
//! Every function exists three times, with the same results to the bit: in plain Rust (`plain`, the
//! oracle of the others), in AVX2 and in AVX-512 (F, BW and VBMI). A [`Simd`] stands for one of
//! them and exists only where the cpu has the instructions, which makes calling it sound.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod columns;
mod lanes;
mod plain;
mod set;

pub use columns::{BLOCK_ROWS, Bytes, COLUMN_CUTS, LEAVES_MAX, Special, Split, TABLE, key_of};
pub use lanes::{Lanes, One, Work};
pub use set::{Simd, Slots};
