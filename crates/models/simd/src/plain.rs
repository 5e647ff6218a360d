//! The inner loops in plain Rust: for every cpu, and the reference for the other implementations.

use crate::LeafScratch;
use crate::columns::{
    BLOCK_ROWS, COLUMN_CUTS, ColumnSplit, LEAVES_MAX, RowBytes, SpecialKeys, TABLE, ordered_key,
};

pub(super) fn transpose(
    rows: &[f32],
    features: usize,
    first: usize,
    out: &mut [[f32; BLOCK_ROWS]; 16],
) {
    for (row, values) in rows.chunks_exact(features).take(BLOCK_ROWS).enumerate() {
        for (out, &x) in out.iter_mut().zip(&values[first..first + 16]) {
            out[row] = x;
        }
    }
}

/// Compiled once per instruction set; auto-vectorized.
#[inline(always)]
pub(super) fn keys(values: &[f32], special: SpecialKeys, out: &mut [u32]) {
    for (key, &x) in out.iter_mut().zip(values) {
        let ordered = match x.abs() <= special.zero {
            true => special.zero_key,
            false => ordered_key(x),
        };
        *key = if x.is_nan() { special.nan_key } else { ordered };
    }
}

pub(super) fn bins(
    values: &[f32; BLOCK_ROWS],
    table: &[f32],
    cuts: usize,
    bins: &mut [u32; BLOCK_ROWS],
) {
    let (table, all) = table.split_at(TABLE);
    let cuts = &if all.is_empty() { table } else { all }[..cuts];
    for (bin, &x) in bins.iter_mut().zip(values) {
        *bin = cuts.partition_point(|&cut| cut <= x) as u32;
    }
}

pub(super) fn bin_bytes(
    values: &[f32; BLOCK_ROWS],
    bins: &[u32; BLOCK_ROWS],
    start: u32,
    missing: u8,
    out: &mut RowBytes,
) {
    for ((byte, &bin), x) in out.0.iter_mut().zip(bins).zip(values) {
        let bin = bin.saturating_sub(start).min(COLUMN_CUTS as u32) as u8;
        *byte = if x.is_nan() { missing } else { bin };
    }
}

pub(super) fn left_masks(columns: &[RowBytes], splits: &[ColumnSplit], out: &mut [u64]) {
    for (out, &[column, byte, ..]) in out.iter_mut().zip(splits) {
        *out = goes_left(&columns[usize::from(column)], byte);
    }
}

fn goes_left(column: &RowBytes, byte: u16) -> u64 {
    let rows = column.0.iter().enumerate();
    rows.fold(0, |mask, (row, &x)| {
        mask | u64::from(u16::from(x) <= byte) << row
    })
}

pub(super) fn leaves(
    columns: &[RowBytes],
    splits: &[ColumnSplit],
    slots: &mut LeafScratch,
    out: &mut RowBytes,
) {
    let masks = &mut slots.bits;
    masks[0] = u64::MAX;
    for (split, &[column, byte, left, right]) in splits.iter().enumerate() {
        let goes_left = goes_left(&columns[usize::from(column)], byte);
        let reached = masks[split];
        masks[usize::from(left)] = reached & goes_left;
        masks[usize::from(right)] = reached & !goes_left;
    }
    for (leaf, &mask) in masks[splits.len()..=2 * splits.len()].iter().enumerate() {
        let mut rest = mask;
        while rest != 0 {
            out.0[rest.trailing_zeros() as usize] = leaf as u8;
            rest &= rest - 1;
        }
    }
}

pub(super) fn add_leaf_values(
    values: &[f32],
    leaves: usize,
    reached: &RowBytes,
    sums: &mut [f32; BLOCK_ROWS],
) {
    debug_assert!(leaves <= LEAVES_MAX);
    let Some(values) = values.first_chunk::<LEAVES_MAX>() else {
        return;
    };
    for (sum, &leaf) in sums.iter_mut().zip(&reached.0) {
        *sum += values[usize::from(leaf)];
    }
}
