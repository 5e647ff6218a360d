//! The inner loops in AVX-512: a register holds one byte for each of the 64 rows of a block.

use std::arch::x86_64::*;

use crate::columns::{BLOCK_ROWS, ColumnSplit, LEAVES_MAX, RowBytes, SpecialKeys, TABLE};
use crate::lanes::{Lanes, WithSimd};
use crate::{LeafScratch, plain};

/// Number of 4-byte lanes.
const LANES: usize = 16;

#[target_feature(enable = "avx512f")]
#[inline]
fn load_bytes(column: &RowBytes) -> __m512i {
    // SAFETY: a column is 64 bytes, aligned to 64.
    unsafe { _mm512_load_si512(column.0.as_ptr().cast()) }
}

#[target_feature(enable = "avx512f")]
#[inline]
fn store_bytes(column: &mut RowBytes, x: __m512i) {
    // SAFETY: a column is 64 bytes, aligned to 64.
    unsafe { _mm512_store_si512(column.0.as_mut_ptr().cast(), x) }
}

#[target_feature(enable = "avx512f")]
#[inline]
fn load_f32s(values: &[f32; LANES]) -> __m512 {
    // SAFETY: the array is 64 bytes; the load needs no alignment.
    unsafe { _mm512_loadu_ps(values.as_ptr()) }
}

#[target_feature(enable = "avx512f")]
#[inline]
fn load_u32s(values: &[u32; LANES]) -> __m512i {
    // SAFETY: the array is 64 bytes; the load needs no alignment.
    unsafe { _mm512_loadu_si512(values.as_ptr().cast()) }
}

#[target_feature(enable = "avx512f")]
#[inline]
fn store(values: &mut [f32; LANES], x: __m512) {
    // SAFETY: the array is 64 bytes; the store needs no alignment.
    unsafe { _mm512_storeu_ps(values.as_mut_ptr(), x) }
}

/// Transposes 4 x 4 elements within each 128-bit lane, then the 128-bit lanes: 16 rows of 16
/// features at a time.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub(super) fn transpose(
    rows: &[f32],
    features: usize,
    first: usize,
    out: &mut [[f32; BLOCK_ROWS]; LANES],
) {
    for part in 0..BLOCK_ROWS / LANES {
        let mut a = [_mm512_setzero_ps(); LANES];
        for (row, a) in a.iter_mut().enumerate() {
            let start = (part * LANES + row) * features + first;
            if let Some(values) = rows[start..].first_chunk() {
                *a = load_f32s(values);
                // Prefetch the next values: hardware prefetchers do not track this many rows. A
                // prefetch may use any address.
                let next = values.as_ptr().wrapping_add(2 * LANES - 1);
                _mm_prefetch::<_MM_HINT_T0>(next.cast());
            }
        }
        let mut b = [_mm512_setzero_ps(); LANES];
        for i in 0..LANES / 4 {
            let [r0, r1, r2, r3] = [a[4 * i], a[4 * i + 1], a[4 * i + 2], a[4 * i + 3]];
            let (x, y) = (_mm512_unpacklo_ps(r0, r1), _mm512_unpackhi_ps(r0, r1));
            let (z, w) = (_mm512_unpacklo_ps(r2, r3), _mm512_unpackhi_ps(r2, r3));
            b[4 * i] = _mm512_shuffle_ps::<0x44>(x, z);
            b[4 * i + 1] = _mm512_shuffle_ps::<0xee>(x, z);
            b[4 * i + 2] = _mm512_shuffle_ps::<0x44>(y, w);
            b[4 * i + 3] = _mm512_shuffle_ps::<0xee>(y, w);
        }
        for j in 0..4 {
            // b[4 i + j], quarter q: feature 4 q + j of rows 4 i to 4 i + 3.
            let (x, y) = (
                _mm512_shuffle_f32x4::<0x88>(b[j], b[4 + j]),
                _mm512_shuffle_f32x4::<0xdd>(b[j], b[4 + j]),
            );
            let (z, w) = (
                _mm512_shuffle_f32x4::<0x88>(b[8 + j], b[12 + j]),
                _mm512_shuffle_f32x4::<0xdd>(b[8 + j], b[12 + j]),
            );
            let features = [
                _mm512_shuffle_f32x4::<0x88>(x, z),
                _mm512_shuffle_f32x4::<0x88>(y, w),
                _mm512_shuffle_f32x4::<0xdd>(x, z),
                _mm512_shuffle_f32x4::<0xdd>(y, w),
            ];
            for (quarter, x) in features.into_iter().enumerate() {
                let (parts, _) = out[4 * quarter + j].as_chunks_mut::<LANES>();
                store(&mut parts[part], x);
            }
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub(super) fn keys(values: &[f32], special: SpecialKeys, out: &mut [u32]) {
    plain::keys(values, special, out);
}

/// Returns every second of 64 cuts.
#[target_feature(enable = "avx512f")]
fn even_cuts(cuts: &[f32]) -> [__m512; 2] {
    let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    let (parts, _) = cuts.as_chunks::<LANES>();
    let pair = |index: usize| match parts.get(index..index + 2) {
        Some([a, b]) => _mm512_permutex2var_ps(load_f32s(a), even, load_f32s(b)),
        _ => _mm512_set1_ps(f32::NAN),
    };
    [pair(0), pair(2)]
}

/// Up to this many cuts are compared linearly, which is as fast as a binary search.
const LINEAR_SEARCH_MAX: usize = 8;

/// Computes bins by comparing with all cuts of a feature.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn count(values: &[f32; BLOCK_ROWS], cuts: &[f32], bins: &mut [u32; BLOCK_ROWS]) {
    let (values, _) = values.as_chunks::<LANES>();
    let (bins, _) = bins.as_chunks_mut::<LANES>();
    let one = _mm512_set1_epi32(1);
    let mut sums = [_mm512_setzero_si512(); BLOCK_ROWS / LANES];
    for &cut in cuts {
        let cut = _mm512_set1_ps(cut);
        for (sum, x) in sums.iter_mut().zip(values) {
            let is_at_or_above = _mm512_cmp_ps_mask::<_CMP_LE_OQ>(cut, load_f32s(x));
            *sum = _mm512_mask_add_epi32(*sum, is_at_or_above, *sum, one);
        }
    }
    for (bin, sum) in bins.iter_mut().zip(sums) {
        // SAFETY: the array is 64 bytes; the store needs no alignment.
        unsafe { _mm512_storeu_si512(bin.as_mut_ptr().cast(), sum) }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,popcnt")]
pub(super) fn bins(
    values: &[f32; BLOCK_ROWS],
    table: &[f32],
    cuts: usize,
    bins: &mut [u32; BLOCK_ROWS],
) {
    if cuts <= LINEAR_SEARCH_MAX {
        return count(values, &table[..cuts], bins);
    }
    let (table, all) = table.split_at(TABLE);
    let (table, _) = table.as_chunks::<LANES>();
    let (low, high) = (load_f32s(&table[0]), load_f32s(&table[1]));
    // Second-stage entries per first-stage entry.
    let step = (all.len() / TABLE).max(1) as u32;
    let even = (step == 2).then(|| even_cuts(all));
    let (values, _) = values.as_chunks::<LANES>();
    let (bins, _) = bins.as_chunks_mut::<LANES>();
    for (bin, x) in bins.iter_mut().zip(values) {
        let x = load_f32s(x);
        let mut index = _mm512_setzero_si512();
        for half in [16, 8, 4, 2, 1] {
            let last = _mm512_add_epi32(index, _mm512_set1_epi32(half - 1));
            let cut = _mm512_permutex2var_ps(low, last, high);
            let is_at_or_above = _mm512_cmp_ps_mask::<_CMP_LE_OQ>(cut, x);
            index = _mm512_mask_add_epi32(index, is_at_or_above, index, _mm512_set1_epi32(half));
        }
        if let Some([low, high]) = even {
            // Two cuts remain; compare with the first.
            let cut = _mm512_permutex2var_ps(low, index, high);
            let is_at_or_above = _mm512_cmp_ps_mask::<_CMP_LE_OQ>(cut, x);
            index = _mm512_add_epi32(index, index);
            index = _mm512_mask_add_epi32(index, is_at_or_above, index, _mm512_set1_epi32(1));
        } else {
            index = _mm512_mullo_epi32(index, _mm512_set1_epi32(step as i32));
        }
        let mut half = step / 2;
        while half >= LANES as u32 {
            let last = _mm512_add_epi32(index, _mm512_set1_epi32(half as i32 - 1));
            // SAFETY: indices are below 31 steps and the halves before, together below 32 steps.
            let cut = unsafe { _mm512_i32gather_ps::<4>(last, all.as_ptr()) };
            let is_at_or_above = _mm512_cmp_ps_mask::<_CMP_LE_OQ>(cut, x);
            index =
                _mm512_mask_add_epi32(index, is_at_or_above, index, _mm512_set1_epi32(half as i32));
            half /= 2;
        }
        // SAFETY: the array is 64 bytes; the store needs no alignment.
        unsafe { _mm512_storeu_si512(bin.as_mut_ptr().cast(), index) }
    }
    if step <= 2 {
        return;
    }
    let values = values.as_flattened().iter();
    let indices = bins.as_flattened_mut().iter_mut().zip(values);
    if step == 8 {
        // Compare a value with all remaining cuts at once, which is faster than a gather per
        // bisection step.
        let (cuts, _) = all.as_chunks::<8>();
        for (bin, &x) in indices {
            if let Some(cuts) = cuts.get((*bin / 8) as usize) {
                // SAFETY: the array is 32 bytes; the load needs no alignment.
                let cuts = unsafe { _mm256_loadu_ps(cuts.as_ptr()) };
                let at_or_above = _mm256_cmp_ps::<_CMP_LE_OQ>(cuts, _mm256_set1_ps(x));
                *bin += _mm256_movemask_ps(at_or_above).count_ones();
            }
        }
        return;
    }
    // At most 16 cuts remain.
    let cut_mask = ((1_u32 << step.min(LANES as u32)) - 1) as u16;
    for (bin, &x) in indices {
        // SAFETY: indices are multiples of the number of remaining cuts, below 32 steps; no other
        // lane is read.
        let cuts = unsafe { _mm512_maskz_loadu_ps(cut_mask, all.as_ptr().add(*bin as usize)) };
        let at_or_above = _mm512_mask_cmp_ps_mask::<_CMP_LE_OQ>(cut_mask, cuts, _mm512_set1_ps(x));
        *bin += u32::from(at_or_above).count_ones();
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub(super) fn bin_bytes(
    values: &[f32; BLOCK_ROWS],
    bins: &[u32; BLOCK_ROWS],
    start: u32,
    missing: u8,
    out: &mut RowBytes,
) {
    let start = _mm512_set1_epi32(start as i32);
    let missing = _mm_set1_epi8(missing as i8);
    let (values, _) = values.as_chunks::<LANES>();
    let (bins, _) = bins.as_chunks::<LANES>();
    let (out, _) = out.0.as_chunks_mut::<LANES>();
    for ((out, bin), x) in out.iter_mut().zip(bins).zip(values) {
        let x = load_f32s(x);
        // Bins are far below 2^31.
        let above = _mm512_max_epi32(
            _mm512_sub_epi32(load_u32s(bin), start),
            _mm512_setzero_si512(),
        );
        let is_missing = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(x, x);
        let byte = _mm512_cvtusepi32_epi8(above);
        // The bytes of 16 rows: the bits of the 16-lane mask are used as a byte mask.
        let wide = _mm512_mask_mov_epi8(
            _mm512_castsi128_si512(byte),
            u64::from(is_missing),
            _mm512_castsi128_si512(missing),
        );
        // SAFETY: the array is 16 bytes; the store needs no alignment.
        unsafe { _mm_storeu_si128(out.as_mut_ptr().cast(), _mm512_castsi512_si128(wide)) }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,fma")]
pub(super) fn run(lanes: F64x8, work: impl WithSimd) {
    work.with_simd(lanes);
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub(super) fn left_masks(columns: &[RowBytes], splits: &[ColumnSplit], out: &mut [u64]) {
    for (out, &[column, byte, ..]) in out.iter_mut().zip(splits) {
        let x = load_bytes(&columns[usize::from(column)]);
        *out = _mm512_cmple_epu8_mask(x, _mm512_set1_epi8(byte as i8));
    }
}

/// Processes the splits bottom-up, from last to first: each selects, per row, the leaf reached from
/// its left or right child.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub(super) fn leaves(
    columns: &[RowBytes],
    splits: &[ColumnSplit],
    slots: &mut LeafScratch,
    out: &mut RowBytes,
) {
    let slots = &mut slots.reached[0][LEAVES_MAX - splits.len()..];
    for (split, &[column, byte, left, right]) in splits.iter().enumerate().rev() {
        let x = load_bytes(&columns[usize::from(column)]);
        let goes_left = _mm512_cmple_epu8_mask(x, _mm512_set1_epi8(byte as i8));
        let [left, right] = [left, right].map(|child| load_bytes(&slots[usize::from(child)]));
        let reached = _mm512_mask_mov_epi8(right, goes_left, left);
        store_bytes(&mut slots[split], reached);
    }
    *out = slots[0];
}

/// Slot numbers are below this power of two.
const SLOT_MASK: usize = 2 * LEAVES_MAX - 1;

/// Like `leaves` for two blocks: reading a split takes more instructions than applying it.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub(super) fn leaves_of_two(
    [columns, others]: [&[RowBytes]; 2],
    splits: &[ColumnSplit],
    slots: &mut LeafScratch,
    out: &mut [RowBytes; 2],
) {
    let before = LEAVES_MAX.saturating_sub(splits.len());
    // Equal lengths, so that one bounds check covers both.
    let others = &others[..columns.len()];
    let [slots, other_slots] = &mut slots.reached;
    let is_leaf_pair = |&&[_, _, left, right]: &&ColumnSplit| {
        usize::from(left) >= splits.len() && usize::from(right) == usize::from(left) + 1
    };
    // Splits with two leaves: the right leaf number follows from its slot, the left one precedes
    // it.
    let (one, ahead) = (_mm512_set1_epi8(1), _mm512_set1_epi8(splits.len() as i8));
    let leaf_pairs = splits.iter().rev().take_while(is_leaf_pair).count();
    let (splits, leaf_pairs) = splits.split_at(splits.len() - leaf_pairs);
    for (index, &[column, byte, _, right]) in leaf_pairs.iter().enumerate() {
        let own = (before + splits.len() + index) & SLOT_MASK;
        let byte = _mm512_set1_epi8(byte as i8);
        let right = _mm512_sub_epi8(_mm512_set1_epi8(right as i8), ahead);
        let x = load_bytes(&columns[usize::from(column)]);
        let goes_left = _mm512_cmple_epu8_mask(x, byte);
        let reached = _mm512_mask_sub_epi8(right, goes_left, right, one);
        store_bytes(&mut slots[own], reached);
        let y = load_bytes(&others[usize::from(column)]);
        let goes_left = _mm512_cmple_epu8_mask(y, byte);
        let reached = _mm512_mask_sub_epi8(right, goes_left, right, one);
        store_bytes(&mut other_slots[own], reached);
    }
    for (split, &[column, byte, left, right]) in splits.iter().enumerate().rev() {
        let byte = _mm512_set1_epi8(byte as i8);
        let x = load_bytes(&columns[usize::from(column)]);
        let y = load_bytes(&others[usize::from(column)]);
        let [own, left, right] =
            [split, usize::from(left), usize::from(right)].map(|slot| (before + slot) & SLOT_MASK);
        let goes_left = _mm512_cmple_epu8_mask(x, byte);
        let reached = _mm512_mask_mov_epi8(
            load_bytes(&slots[right]),
            goes_left,
            load_bytes(&slots[left]),
        );
        store_bytes(&mut slots[own], reached);
        let goes_left = _mm512_cmple_epu8_mask(y, byte);
        let [left, right] = [left, right].map(|slot| load_bytes(&other_slots[slot]));
        store_bytes(
            &mut other_slots[own],
            _mm512_mask_mov_epi8(right, goes_left, left),
        );
    }
    *out = [slots[before & SLOT_MASK], other_slots[before & SLOT_MASK]];
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub(super) fn add_leaf_values(
    values: &[f32],
    leaves: usize,
    reached: &RowBytes,
    sums: &mut [f32; BLOCK_ROWS],
) {
    let (tables, _) = values.as_chunks::<LANES>();
    let (reached, _) = reached.0.as_chunks::<LANES>();
    let (sums, _) = sums.as_chunks_mut::<LANES>();
    let parts = leaves.div_ceil(2 * LANES).max(1);
    for (sum, reached) in sums.iter_mut().zip(reached) {
        // SAFETY: the array is 16 bytes; the load needs no alignment.
        let leaf = unsafe { _mm_loadu_si128(reached.as_ptr().cast()) };
        let leaf = _mm512_cvtepu8_epi32(leaf);
        let part_of = _mm512_srli_epi32::<5>(leaf);
        let mut value = _mm512_permutex2var_ps(load_f32s(&tables[0]), leaf, load_f32s(&tables[1]));
        for part in 1..parts {
            let [low, high] = [&tables[2 * part], &tables[2 * part + 1]];
            let candidate = _mm512_permutex2var_ps(load_f32s(low), leaf, load_f32s(high));
            let is_candidate = _mm512_cmpeq_epi32_mask(part_of, _mm512_set1_epi32(part as i32));
            value = _mm512_mask_mov_ps(value, is_candidate, candidate);
        }
        let total = _mm512_add_ps(load_f32s(sum), value);
        store(sum, total);
    }
}

/// Vectors of eight lanes, one AVX-512 register.
#[derive(Clone, Copy)]
pub(super) struct F64x8(());

impl F64x8 {
    /// # Safety
    /// The cpu must have the instructions.
    #[inline(always)]
    pub(super) unsafe fn new() -> Self {
        Self(())
    }
}

impl Lanes for F64x8 {
    const WIDTH: usize = 8;
    type Vector = __m512d;

    #[inline(always)]
    fn splat(self, x: f64) -> __m512d {
        // SAFETY: this value exists, so the cpu has the instructions.
        unsafe { _mm512_set1_pd(x) }
    }

    #[inline(always)]
    fn load(self, from: &[f64]) -> __m512d {
        let from: &[f64; 8] = from.first_chunk().unwrap_or(&[0.0; 8]);
        // SAFETY: as above; the array holds a vector, and the load needs no alignment.
        unsafe { _mm512_loadu_pd(from.as_ptr()) }
    }

    #[inline(always)]
    fn store(self, x: __m512d, to: &mut [f64]) {
        if let Some(to) = to.first_chunk_mut::<8>() {
            // SAFETY: as above; the array holds a vector, and the store needs no alignment.
            unsafe { _mm512_storeu_pd(to.as_mut_ptr(), x) }
        }
    }

    #[inline(always)]
    fn add(self, a: __m512d, b: __m512d) -> __m512d {
        // SAFETY: this value exists, so the cpu has the instructions.
        unsafe { _mm512_add_pd(a, b) }
    }

    #[inline(always)]
    fn mul(self, a: __m512d, b: __m512d) -> __m512d {
        // SAFETY: this value exists, so the cpu has the instructions.
        unsafe { _mm512_mul_pd(a, b) }
    }

    #[inline(always)]
    fn sub(self, a: __m512d, b: __m512d) -> __m512d {
        // SAFETY: this value exists, so the cpu has the instructions.
        unsafe { _mm512_sub_pd(a, b) }
    }

    #[inline(always)]
    fn div(self, a: __m512d, b: __m512d) -> __m512d {
        // SAFETY: this value exists, so the cpu has the instructions.
        unsafe { _mm512_div_pd(a, b) }
    }

    #[inline(always)]
    fn mul_add(self, a: __m512d, b: __m512d, c: __m512d) -> __m512d {
        // SAFETY: this value exists, so the cpu has the instructions.
        unsafe { _mm512_fmadd_pd(a, b, c) }
    }

    #[inline(always)]
    fn add_where(self, bits: u64, a: __m512d, b: __m512d) -> __m512d {
        // SAFETY: this value exists, so the cpu has the instructions.
        unsafe { _mm512_mask_add_pd(a, bits as u8, a, b) }
    }

    #[inline(always)]
    fn select(self, bits: u64, yes: __m512d, no: __m512d) -> __m512d {
        // SAFETY: this value exists, so the cpu has the instructions.
        unsafe { _mm512_mask_mov_pd(no, bits as u8, yes) }
    }
}
