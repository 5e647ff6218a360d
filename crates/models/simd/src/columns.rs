//! The data of the loops: columns of bytes, splits, keys of values.

/// Rows of a block: a register of AVX-512 holds a byte of each.
pub const BLOCK_ROWS: usize = 64;
/// Leaves of a tree in the binned form: the numbers of leaves are bytes.
pub const LEAVES_MAX: usize = 256;
/// Cuts of a column: bins 0 to 255 fit a byte.
pub const COLUMN_CUTS: usize = 255;
/// Entries of the first stage of the search for a bin in `f32`; the second stage has a power of two
/// entries for each.
pub const TABLE: usize = 32;

/// One byte for each row of a block, as a column or as the leaf numbers of a tree. One cache line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(align(64))]
pub struct RowBytes(pub [u8; BLOCK_ROWS]);

impl RowBytes {
    /// All zero.
    pub const ZERO: Self = Self([0; BLOCK_ROWS]);
}

impl Default for RowBytes {
    fn default() -> Self {
        Self::ZERO
    }
}

/// A split: column, largest byte that goes left, left slot, right slot. Slots of a tree are its
/// splits in their order and behind them its leaves, from left to right.
pub type ColumnSplit = [u16; 4];

/// The keys of missing values and of zeros in a plane of keys.
#[derive(Debug, Clone, Copy)]
pub struct SpecialKeys {
    /// Values up to this magnitude are zeros.
    pub zero: f32,
    /// The key of NaN.
    pub of_nan: u32,
    /// The key of a zero.
    pub of_zero: u32,
}

/// An unsigned number in the order of the values, equal for equal values; not for NaN.
#[inline]
pub fn ordered_key(x: f32) -> u32 {
    // Adding 0 makes one zero of the two.
    let bits = (x + 0.0).to_bits();
    if bits >> 31 == 1 {
        !bits
    } else {
        bits | 1 << 31
    }
}
