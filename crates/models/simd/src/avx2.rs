//! The inner loops in AVX2: two registers hold one byte for each of the 64 rows of a block, and
//! masks are bytes with all bits set.

use std::arch::x86_64::*;

use crate::columns::{BLOCK_ROWS, ColumnSplit, LEAVES_MAX, RowBytes, SpecialKeys, TABLE};
use crate::lanes::{Lanes, WithSimd};
use crate::{LeafScratch, plain};

/// Number of 4-byte lanes.
const LANES: usize = 8;
/// Number of 1-byte lanes.
const REGISTER_BYTES: usize = 32;

#[target_feature(enable = "avx2")]
#[inline]
fn load(bytes: &[u8; REGISTER_BYTES]) -> __m256i {
    // SAFETY: the array is 32 bytes; the load needs no alignment.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

#[target_feature(enable = "avx2")]
#[inline]
fn store(bytes: &mut [u8; REGISTER_BYTES], x: __m256i) {
    // SAFETY: the array is 32 bytes; the store needs no alignment.
    unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), x) }
}

#[target_feature(enable = "avx2")]
#[inline]
fn load_f32s(values: &[f32; LANES]) -> __m256 {
    // SAFETY: the array is 32 bytes; the load needs no alignment.
    unsafe { _mm256_loadu_ps(values.as_ptr()) }
}

#[target_feature(enable = "avx2")]
pub(super) fn keys(values: &[f32], special: SpecialKeys, out: &mut [u32]) {
    plain::keys(values, special, out);
}

#[target_feature(enable = "avx2")]
pub(super) fn bins(
    values: &[f32; BLOCK_ROWS],
    table: &[f32],
    cuts: usize,
    bins: &mut [u32; BLOCK_ROWS],
) {
    let (first, all) = table.split_at(TABLE);
    let (values, _) = values.as_chunks::<LANES>();
    let (bins, _) = bins.as_chunks_mut::<LANES>();
    for (bin, x) in bins.iter_mut().zip(values) {
        let x = load_f32s(x);
        let mut index = _mm256_setzero_si256();
        if all.is_empty() {
            for &cut in &first[..cuts] {
                let is_at_or_above = _mm256_cmp_ps::<_CMP_LE_OQ>(_mm256_set1_ps(cut), x);
                // An all-ones mask is -1.
                index = _mm256_sub_epi32(index, _mm256_castps_si256(is_at_or_above));
            }
        }
        let mut half = all.len() / 2;
        while half > 0 {
            let step = _mm256_set1_epi32(half as i32);
            let last = _mm256_add_epi32(index, _mm256_set1_epi32(half as i32 - 1));
            // SAFETY: an index is a sum of earlier halves, so this is below the table's length.
            let cut = unsafe { _mm256_i32gather_ps::<4>(all.as_ptr(), last) };
            let is_at_or_above = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_LE_OQ>(cut, x));
            index = _mm256_add_epi32(index, _mm256_and_si256(is_at_or_above, step));
            half /= 2;
        }
        // SAFETY: the array is 32 bytes; the store needs no alignment.
        unsafe { _mm256_storeu_si256(bin.as_mut_ptr().cast(), index) }
    }
}

#[target_feature(enable = "avx2")]
pub(super) fn bin_bytes(
    values: &[f32; BLOCK_ROWS],
    bins: &[u32; BLOCK_ROWS],
    start: u32,
    missing: u8,
    out: &mut RowBytes,
) {
    let start = _mm256_set1_epi32(start as i32);
    let missing = _mm256_set1_epi32(i32::from(missing));
    let (values, _) = values.as_chunks::<REGISTER_BYTES>();
    let (bins, _) = bins.as_chunks::<REGISTER_BYTES>();
    let (out, _) = out.0.as_chunks_mut::<REGISTER_BYTES>();
    // Packing interleaves 128-bit lanes; this restores the order.
    let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    for ((out, bins), values) in out.iter_mut().zip(bins).zip(values) {
        let mut parts = [_mm256_setzero_si256(); REGISTER_BYTES / LANES];
        let (values, _) = values.as_chunks::<LANES>();
        let (bins, _) = bins.as_chunks::<LANES>();
        for ((part, x), bin) in parts.iter_mut().zip(values).zip(bins) {
            let x = load_f32s(x);
            // SAFETY: the array is 32 bytes; the load needs no alignment.
            let bin = unsafe { _mm256_loadu_si256(bin.as_ptr().cast()) };
            // Bins are far below 2^31.
            let above = _mm256_max_epi32(_mm256_sub_epi32(bin, start), _mm256_setzero_si256());
            let byte = _mm256_min_epi32(above, _mm256_set1_epi32(255));
            let is_missing = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(x, x));
            *part = _mm256_blendv_epi8(byte, missing, is_missing);
        }
        let low = _mm256_packus_epi32(parts[0], parts[1]);
        let high = _mm256_packus_epi32(parts[2], parts[3]);
        let packed = _mm256_packus_epi16(low, high);
        store(out, _mm256_permutevar8x32_epi32(packed, order));
    }
}

#[target_feature(enable = "avx2,fma")]
pub(super) fn run(lanes: F64x4, work: impl WithSimd) {
    work.with_simd(lanes);
}

#[target_feature(enable = "avx2")]
pub(super) fn left_masks(columns: &[RowBytes], splits: &[ColumnSplit], out: &mut [u64]) {
    for (out, &[column, byte, ..]) in out.iter_mut().zip(splits) {
        let byte = _mm256_set1_epi8(byte as i8);
        let (halves, _) = columns[usize::from(column)].0.as_chunks::<REGISTER_BYTES>();
        *out = 0;
        for (half, x) in halves.iter().enumerate() {
            let x = load(x);
            let goes_left = _mm256_cmpeq_epi8(_mm256_min_epu8(x, byte), x);
            // Sign bits of 32 bytes.
            let bits = _mm256_movemask_epi8(goes_left) as u32;
            *out |= u64::from(bits) << (REGISTER_BYTES * half);
        }
    }
}

/// Slot numbers are below this power of two.
const SLOT_MASK: usize = 2 * LEAVES_MAX - 1;

/// Processes the splits bottom-up, from last to first: each selects, per row, the leaf reached from
/// its left or right child.
#[target_feature(enable = "avx2")]
pub(super) fn leaves(
    columns: &[RowBytes],
    splits: &[ColumnSplit],
    slots: &mut LeafScratch,
    out: &mut RowBytes,
) {
    let before = LEAVES_MAX.saturating_sub(splits.len());
    let slots = &mut slots.reached[0];
    for (split, &[column, byte, left, right]) in splits.iter().enumerate().rev() {
        let (x, _) = columns[usize::from(column)].0.as_chunks::<REGISTER_BYTES>();
        let byte = _mm256_set1_epi8(byte as i8);
        let [left, right] = [left, right].map(|child| (before + usize::from(child)) & SLOT_MASK);
        let own = (before + split) & SLOT_MASK;
        for (half, x) in x.iter().enumerate() {
            let x = load(x);
            let goes_left = _mm256_cmpeq_epi8(_mm256_min_epu8(x, byte), x);
            let [left, right] = [left, right].map(|slot| load(&slots[slot].0.as_chunks().0[half]));
            let reached = _mm256_blendv_epi8(right, left, goes_left);
            store(&mut slots[own].0.as_chunks_mut().0[half], reached);
        }
    }
    *out = slots[before];
}

/// Vectors of four lanes, one AVX2 register.
#[derive(Clone, Copy)]
pub(super) struct F64x4(());

impl F64x4 {
    /// # Safety
    /// The cpu must have the instructions.
    #[inline(always)]
    pub(super) unsafe fn new() -> Self {
        Self(())
    }
}

impl Lanes for F64x4 {
    const WIDTH: usize = 4;
    type Vector = __m256d;

    #[inline(always)]
    fn splat(self, x: f64) -> __m256d {
        // SAFETY: this value exists, so the cpu has the instructions.
        unsafe { _mm256_set1_pd(x) }
    }

    #[inline(always)]
    fn load(self, from: &[f64]) -> __m256d {
        let from: &[f64; 4] = from.first_chunk().unwrap_or(&[0.0; 4]);
        // SAFETY: as above; the array holds a vector, and the load needs no alignment.
        unsafe { _mm256_loadu_pd(from.as_ptr()) }
    }

    #[inline(always)]
    fn store(self, x: __m256d, to: &mut [f64]) {
        if let Some(to) = to.first_chunk_mut::<4>() {
            // SAFETY: as above; the array holds a vector, and the store needs no alignment.
            unsafe { _mm256_storeu_pd(to.as_mut_ptr(), x) }
        }
    }

    #[inline(always)]
    fn add(self, a: __m256d, b: __m256d) -> __m256d {
        // SAFETY: this value exists, so the cpu has the instructions.
        unsafe { _mm256_add_pd(a, b) }
    }

    #[inline(always)]
    fn mul(self, a: __m256d, b: __m256d) -> __m256d {
        // SAFETY: this value exists, so the cpu has the instructions.
        unsafe { _mm256_mul_pd(a, b) }
    }

    #[inline(always)]
    fn sub(self, a: __m256d, b: __m256d) -> __m256d {
        // SAFETY: this value exists, so the cpu has the instructions.
        unsafe { _mm256_sub_pd(a, b) }
    }

    #[inline(always)]
    fn div(self, a: __m256d, b: __m256d) -> __m256d {
        // SAFETY: this value exists, so the cpu has the instructions.
        unsafe { _mm256_div_pd(a, b) }
    }

    #[inline(always)]
    fn mul_add(self, a: __m256d, b: __m256d, c: __m256d) -> __m256d {
        // SAFETY: this value exists, so the cpu has the instructions.
        unsafe { _mm256_fmadd_pd(a, b, c) }
    }

    #[inline(always)]
    fn select(self, bits: u64, yes: __m256d, no: __m256d) -> __m256d {
        // SAFETY: as above.
        unsafe {
            let lanes = _mm256_setr_epi64x(1, 2, 4, 8);
            let set = _mm256_and_si256(_mm256_set1_epi64x(bits as i64), lanes);
            let is_set = _mm256_castsi256_pd(_mm256_cmpeq_epi64(set, lanes));
            _mm256_blendv_pd(no, yes, is_set)
        }
    }
}
