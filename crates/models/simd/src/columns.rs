//! What the loops read: columns of bytes, splits, and how values become keys.

/// Rows of a block: a register of AVX-512 holds a byte of each.
pub const BLOCK_ROWS: usize = 64;
/// Leaves of a tree in rank form: the numbers of leaves are bytes.
pub const LEAVES_MAX: usize = 256;
/// Cuts of a column: ranks 0 to 255 fit a byte.
pub const COLUMN_CUTS: usize = 255;
/// Entries of the first stage of a search for a rank in `f32`; the second has as many for each.
pub const TABLE: usize = 32;

/// The bytes of a column, or the leaf numbers of a tree, for a block of rows. On a cache line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(align(64))]
pub struct Bytes(pub [u8; BLOCK_ROWS]);

impl Bytes {
    /// All zero.
    pub const ZERO: Self = Self([0; BLOCK_ROWS]);
}

/// A split: column, largest byte that goes left, left slot, right slot. Slots of a tree are its
/// splits in their order and behind them its leaves, from left to right.
pub type Split = [u16; 4];

/// What keys of missing values and of zeros are in a plane.
#[derive(Debug, Clone, Copy)]
pub struct Special {
    /// Values up to this magnitude are zeros.
    pub zero: f32,
    /// The key of NaN.
    pub of_nan: u32,
    /// The key of a zero.
    pub of_zero: u32,
}

/// An unsigned number in the order of the values, equal for equal values; not for NaN.
#[inline]
pub fn key_of(x: f32) -> u32 {
    // Adding 0 makes one zero of the two.
    let bits = (x + 0.0).to_bits();
    if bits >> 31 == 1 {
        !bits
    } else {
        bits | 1 << 31
    }
}
