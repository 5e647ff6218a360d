//! An instruction set as a value that permits calls of the functions that require it.

use crate::columns::{BLOCK_ROWS, ColumnSplit, LEAVES_MAX, RowBytes, SpecialKeys};
use crate::lanes::{ScalarF64, WithSimd};
use crate::plain;
#[cfg(target_arch = "x86_64")]
use crate::{avx2, avx512};

/// Scratch memory for the slots of a tree.
#[derive(Clone, Debug)]
pub struct LeafScratch {
    /// Rows of a block that reach a slot, one bit per row.
    pub(crate) bits: [u64; 2 * LEAVES_MAX],
    /// For each of two blocks, the leaf that each row reaches from a slot. The slot of the last
    /// split is in the middle, preceded by those of the other splits and followed by those of the
    /// leaves, which contain their own numbers and never change.
    #[cfg(target_arch = "x86_64")]
    pub(crate) reached: [[RowBytes; 2 * LEAVES_MAX]; 2],
}

impl Default for LeafScratch {
    fn default() -> Self {
        Self {
            bits: [0; 2 * LEAVES_MAX],
            #[cfg(target_arch = "x86_64")]
            reached: [std::array::from_fn(|slot| {
                RowBytes([slot.saturating_sub(LEAVES_MAX) as u8; BLOCK_ROWS])
            }); 2],
        }
    }
}

/// An instruction set that this cpu supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Simd(InstructionSet);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InstructionSet {
    Plain,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

/// Calls the implementation for an instruction set.
macro_rules! dispatch {
    ($simd:expr, $function:ident($($argument:expr),*)) => {
        match $simd.0 {
            InstructionSet::Plain => plain::$function($($argument),*),
            // SAFETY: the `Simd` value exists, so the cpu has the instructions.
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx2 => unsafe { avx2::$function($($argument),*) },
            // SAFETY: the `Simd` value exists, so the cpu has the instructions.
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx512 => unsafe { avx512::$function($($argument),*) },
        }
    };
}

impl Simd {
    /// Plain code, for every cpu.
    pub const PLAIN: Self = Self(InstructionSet::Plain);

    /// AVX2 with FMA, if the cpu supports it.
    #[inline]
    pub fn avx2() -> Option<Self> {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            return Some(Self(InstructionSet::Avx2));
        }
        None
    }

    /// AVX-512 F, BW and VBMI, if the cpu supports them.
    #[inline]
    pub fn avx512() -> Option<Self> {
        #[cfg(target_arch = "x86_64")]
        if Self::avx2().is_some()
            && is_x86_feature_detected!("popcnt")
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vbmi")
        {
            return Some(Self(InstructionSet::Avx512));
        }
        None
    }

    /// The widest instruction set that this cpu supports.
    #[inline]
    pub fn best() -> Self {
        Self::avx512().or_else(Self::avx2).unwrap_or(Self::PLAIN)
    }

    /// Runs a function compiled for this instruction set.
    #[inline]
    pub fn run(self, work: impl WithSimd) {
        match self.0 {
            InstructionSet::Plain => work.with_simd(ScalarF64),
            // SAFETY: this value exists, so the cpu has the instructions.
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx2 => unsafe { avx2::run(avx2::F64x4::new(), work) },
            // SAFETY: this value exists, so the cpu has the instructions.
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx512 => unsafe { avx512::run(avx512::F64x8::new(), work) },
        }
    }

    /// Computes for each split the rows of a block that go left, one bit per row.
    #[inline]
    pub fn left_masks(self, columns: &[RowBytes], splits: &[ColumnSplit], out: &mut [u64]) {
        dispatch!(self, left_masks(columns, splits, out));
    }

    /// Transposes the values of 16 adjacent features of a block of rows.
    #[inline]
    pub fn transpose(
        self,
        rows: &[f32],
        features: usize,
        first: usize,
        out: &mut [[f32; BLOCK_ROWS]; 16],
    ) {
        match self.0 {
            InstructionSet::Plain => plain::transpose(rows, features, first, out),
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx2 => plain::transpose(rows, features, first, out),
            // SAFETY: this value exists, so the cpu has the instructions.
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx512 => unsafe { avx512::transpose(rows, features, first, out) },
        }
    }

    /// Computes the keys of values.
    #[inline]
    pub fn keys(self, values: &[f32], special: SpecialKeys, out: &mut [u32]) {
        dispatch!(self, keys(values, special, out));
    }

    /// Computes the bins of values (0 for NaN) with the search table of their feature, which has
    /// `cuts` cuts.
    #[inline]
    pub fn bins(
        self,
        values: &[f32; BLOCK_ROWS],
        table: &[f32],
        cuts: usize,
        bins: &mut [u32; BLOCK_ROWS],
    ) {
        dispatch!(self, bins(values, table, cuts, bins));
    }

    /// Computes the bytes of a column whose first cut is `start`; NaN becomes the byte `missing`.
    #[inline]
    pub fn bin_bytes(
        self,
        values: &[f32; BLOCK_ROWS],
        bins: &[u32; BLOCK_ROWS],
        start: u32,
        missing: u8,
        out: &mut RowBytes,
    ) {
        dispatch!(self, bin_bytes(values, bins, start, missing, out));
    }

    /// Computes the leaf that each row of a block reaches. `splits` must be the splits of one tree.
    #[inline]
    pub fn leaves(
        self,
        columns: &[RowBytes],
        splits: &[ColumnSplit],
        slots: &mut LeafScratch,
        out: &mut RowBytes,
    ) {
        dispatch!(self, leaves(columns, splits, slots, out));
    }

    /// Like [`leaves`](Self::leaves) for two blocks, which share the cost of reading the splits.
    #[inline]
    pub fn leaves_of_two(
        self,
        columns: [&[RowBytes]; 2],
        splits: &[ColumnSplit],
        slots: &mut LeafScratch,
        out: &mut [RowBytes; 2],
    ) {
        match self.0 {
            // SAFETY: this value exists, so the cpu has the instructions.
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx512 => unsafe { avx512::leaves_of_two(columns, splits, slots, out) },
            _ => {
                for (columns, out) in columns.into_iter().zip(out) {
                    self.leaves(columns, splits, slots, out);
                }
            }
        }
    }

    /// Adds the values of the reached leaves to the sums of their rows. `values` starts with the
    /// values of the tree's `leaves` and has at least [`LEAVES_MAX`] elements.
    #[inline]
    pub fn add_leaf_values(
        self,
        values: &[f32],
        leaves: usize,
        reached: &RowBytes,
        sums: &mut [f32; BLOCK_ROWS],
    ) {
        match self.0 {
            InstructionSet::Plain => plain::add_leaf_values(values, leaves, reached, sums),
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx2 => plain::add_leaf_values(values, leaves, reached, sums),
            // SAFETY: this value exists, so the cpu has the instructions.
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx512 => unsafe {
                avx512::add_leaf_values(values, leaves, reached, sums)
            },
        }
    }
}
