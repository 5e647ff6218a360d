//! Data types of the inner loops: byte columns, splits, and keys of values.

/// Rows of a block: an AVX-512 register holds one byte per row.
pub const BLOCK_ROWS: usize = 64;
/// Maximum leaves of a tree in the binned form: leaf numbers are bytes.
pub const LEAVES_MAX: usize = 256;
/// Maximum cuts of a column: bins 0 to 255 fit in a byte.
pub const COLUMN_CUTS: usize = 255;
/// Entries of the first stage of the `f32` search table for bins; the second stage has a power of
/// two entries for each.
pub const TABLE: usize = 32;

/// One byte per row of a block, either a column or the leaf numbers of a tree. One cache line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(align(64))]
pub struct RowBytes(pub [u8; BLOCK_ROWS]);

impl RowBytes {
    /// All bytes zero.
    pub const ZERO: Self = Self([0; BLOCK_ROWS]);
}

impl Default for RowBytes {
    fn default() -> Self {
        Self::ZERO
    }
}

/// A split: column, largest byte that goes left, left slot, right slot. The slots of a tree are its
/// splits in their order, followed by its leaves from left to right.
pub type ColumnSplit = [u16; 4];

/// Keys of missing values and of zeros in a key plane.
#[derive(Debug, Clone, Copy)]
pub struct SpecialKeys {
    /// Values up to this magnitude count as zero.
    pub zero: f32,
    /// Key of NaN.
    pub nan_key: u32,
    /// Key of zero.
    pub zero_key: u32,
}

/// Maps a float to an unsigned integer of the same order, equal for equal values; not for NaN.
#[inline]
pub fn ordered_key(x: f32) -> u32 {
    // Adding 0 turns -0 into +0.
    let bits = (x + 0.0).to_bits();
    if bits >> 31 == 1 {
        !bits
    } else {
        bits | 1 << 31
    }
}
