//! A set of instructions as a value: whoever has one may call what needs them.

use crate::columns::{BLOCK_ROWS, Bytes, LEAVES_MAX, Special, Split};
use crate::lanes::{One, Work};
use crate::plain;
#[cfg(target_arch = "x86_64")]
use crate::{avx2, avx512};

/// What is worked out of each slot of a tree.
#[derive(Clone, Debug)]
pub struct Slots {
    /// Which rows of a block reach it: a bit for a row.
    pub(crate) bits: [u64; 2 * LEAVES_MAX],
    /// Of two blocks: which leaf the rows reach that reach it. The last split's is in the middle
    /// and the others' are before it; behind are those of the leaves: their numbers, always.
    #[cfg(target_arch = "x86_64")]
    pub(crate) reached: [[Bytes; 2 * LEAVES_MAX]; 2],
}

impl Default for Slots {
    fn default() -> Self {
        Self {
            bits: [0; 2 * LEAVES_MAX],
            #[cfg(target_arch = "x86_64")]
            reached: [std::array::from_fn(|slot| {
                Bytes([slot.saturating_sub(LEAVES_MAX) as u8; BLOCK_ROWS])
            }); 2],
        }
    }
}

/// A set of instructions that this cpu has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Simd(Set);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Set {
    Plain,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Simd {
    /// What every cpu has.
    pub const PLAIN: Self = Self(Set::Plain);

    /// AVX2 with fused multiplication, if the cpu has it.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    pub fn avx2() -> Option<Self> {
        let is_there = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        is_there.then_some(Self(Set::Avx2))
    }

    /// AVX-512 with bytes and byte permutations, if the cpu has it.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    pub fn avx512() -> Option<Self> {
        let is_there = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("popcnt")
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vbmi");
        is_there.then_some(Self(Set::Avx512))
    }

    /// AVX2 is an extension of x86.
    #[cfg(not(target_arch = "x86_64"))]
    #[inline]
    pub fn avx2() -> Option<Self> {
        None
    }

    /// AVX-512 is an extension of x86.
    #[cfg(not(target_arch = "x86_64"))]
    #[inline]
    pub fn avx512() -> Option<Self> {
        None
    }

    /// The widest that this cpu has.
    #[inline]
    pub fn best() -> Self {
        Self::avx512().or_else(Self::avx2).unwrap_or(Self::PLAIN)
    }

    /// Does the work with these instructions.
    #[inline]
    pub fn run(self, work: impl Work) {
        match self.0 {
            Set::Plain => work.run(One),
            // SAFETY: this value exists, so the cpu has the instructions.
            #[cfg(target_arch = "x86_64")]
            Set::Avx2 => unsafe { avx2::run(avx2::Four::new(), work) },
            // SAFETY: this value exists, so the cpu has the instructions.
            #[cfg(target_arch = "x86_64")]
            Set::Avx512 => unsafe { avx512::run(avx512::Eight::new(), work) },
        }
    }

    /// Of each split: which rows of a block go left, a bit for each.
    #[inline]
    pub fn masks(self, columns: &[Bytes], splits: &[Split], out: &mut [u64]) {
        match self.0 {
            Set::Plain => plain::masks(columns, splits, out),
            // SAFETY: this value exists, so the cpu has the instructions.
            #[cfg(target_arch = "x86_64")]
            Set::Avx2 => unsafe { avx2::masks(columns, splits, out) },
            // SAFETY: this value exists, so the cpu has the instructions.
            #[cfg(target_arch = "x86_64")]
            Set::Avx512 => unsafe { avx512::masks(columns, splits, out) },
        }
    }

    /// Values of 16 neighboring features of a block of rows, feature by feature.
    #[inline]
    pub fn transpose(
        self,
        rows: &[f32],
        features: usize,
        first: usize,
        out: &mut [[f32; BLOCK_ROWS]; 16],
    ) {
        match self.0 {
            Set::Plain => plain::transpose(rows, features, first, out),
            #[cfg(target_arch = "x86_64")]
            Set::Avx2 => plain::transpose(rows, features, first, out),
            // SAFETY: this value exists, so the cpu has the instructions.
            #[cfg(target_arch = "x86_64")]
            Set::Avx512 => unsafe { avx512::transpose(rows, features, first, out) },
        }
    }

    /// The keys of values.
    #[inline]
    pub fn keys(self, values: &[f32], special: Special, out: &mut [u32]) {
        match self.0 {
            Set::Plain => plain::keys(values, special, out),
            // SAFETY: this value exists, so the cpu has the instructions.
            #[cfg(target_arch = "x86_64")]
            Set::Avx2 => unsafe { avx2::keys(values, special, out) },
            // SAFETY: this value exists, so the cpu has the instructions.
            #[cfg(target_arch = "x86_64")]
            Set::Avx512 => unsafe { avx512::keys(values, special, out) },
        }
    }

    /// Ranks of values (0 for NaN) by the search table of their feature, which has so many cuts.
    #[inline]
    pub fn ranks(
        self,
        values: &[f32; BLOCK_ROWS],
        (table, cuts): (&[f32], usize),
        ranks: &mut [u32; BLOCK_ROWS],
    ) {
        match self.0 {
            Set::Plain => plain::ranks(values, table, ranks),
            // SAFETY: this value exists, so the cpu has the instructions.
            #[cfg(target_arch = "x86_64")]
            Set::Avx2 => unsafe { avx2::ranks(values, table, ranks) },
            // SAFETY: this value exists, so the cpu has the instructions.
            #[cfg(target_arch = "x86_64")]
            Set::Avx512 => unsafe { avx512::ranks(values, (table, cuts), ranks) },
        }
    }

    /// The bytes of a column that begins with this cut and has this byte for NaN.
    #[inline]
    pub fn column(
        self,
        values: &[f32; BLOCK_ROWS],
        ranks: &[u32; BLOCK_ROWS],
        column: (u32, u8),
        out: &mut Bytes,
    ) {
        match self.0 {
            Set::Plain => plain::column(values, ranks, column, out),
            // SAFETY: this value exists, so the cpu has the instructions.
            #[cfg(target_arch = "x86_64")]
            Set::Avx2 => unsafe { avx2::column(values, ranks, column, out) },
            // SAFETY: this value exists, so the cpu has the instructions.
            #[cfg(target_arch = "x86_64")]
            Set::Avx512 => unsafe { avx512::column(values, ranks, column, out) },
        }
    }

    /// The leaf of a tree that each row of a block reaches. `splits` must be those of one tree.
    #[inline]
    pub fn leaves(self, columns: &[Bytes], splits: &[Split], slots: &mut Slots, out: &mut Bytes) {
        match self.0 {
            Set::Plain => plain::leaves(columns, splits, slots, out),
            // SAFETY: this value exists, so the cpu has the instructions.
            #[cfg(target_arch = "x86_64")]
            Set::Avx2 => unsafe { avx2::leaves(columns, splits, slots, out) },
            // SAFETY: this value exists, so the cpu has the instructions.
            #[cfg(target_arch = "x86_64")]
            Set::Avx512 => unsafe { avx512::leaves(columns, splits, slots, out) },
        }
    }

    /// As [`leaves`](Self::leaves), of two blocks, which share the work of reading the splits.
    #[inline]
    pub fn leaves_of_two(
        self,
        columns: [&[Bytes]; 2],
        splits: &[Split],
        slots: &mut Slots,
        out: &mut [Bytes; 2],
    ) {
        match self.0 {
            // SAFETY: this value exists, so the cpu has the instructions.
            #[cfg(target_arch = "x86_64")]
            Set::Avx512 => unsafe { avx512::leaves_of_two(columns, splits, slots, out) },
            _ => {
                for (columns, out) in columns.into_iter().zip(out) {
                    self.leaves(columns, splits, slots, out);
                }
            }
        }
    }

    /// Adds the values of leaves to sums. Of the values, the tree's `leaves` come first and
    /// [`LEAVES_MAX`] at least are there.
    #[inline]
    pub fn add(self, values: &[f32], leaves: usize, reached: &Bytes, sums: &mut [f32; BLOCK_ROWS]) {
        match self.0 {
            Set::Plain => plain::add(values, leaves, reached, sums),
            #[cfg(target_arch = "x86_64")]
            Set::Avx2 => plain::add(values, leaves, reached, sums),
            // SAFETY: this value exists, so the cpu has the instructions.
            #[cfg(target_arch = "x86_64")]
            Set::Avx512 => unsafe { avx512::add(values, leaves, reached, sums) },
        }
    }
}
