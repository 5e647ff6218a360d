//! Evaluates all nodes of a tree at once, for a block of rows in the binned form: one comparison
//! decides a split for all rows, and the decisions above a leaf determine the rows that reach it.
//!
//! This takes more comparisons than a walk, but each covers 64 rows and depends on no other.

use std::ops::Range;

use super::{KernelCall, Sum, nodes};
use crate::encode::bins::RowBlock;
use crate::layout::binned::{LEAVES_MAX, RowBytes};
use crate::layout::ensemble::LeafTarget;
use crate::limits::BLOCK_ROWS;
use albacore_simd::{LeafScratch, Simd};

/// Memory reused for subsequent blocks.
#[derive(Debug, Default)]
pub(crate) struct BlockScratch {
    pub(crate) block: RowBlock,
    second: RowBlock,
    slots: Box<LeafScratch>,
    reached: [RowBytes; 2],
    pub(super) f32s: Vec<[f32; BLOCK_ROWS]>,
    pub(super) f64s: Vec<[f64; BLOCK_ROWS]>,
}

/// Maximum rows of a pass: two blocks.
pub(super) const ROWS_MAX: usize = 2 * BLOCK_ROWS;

/// Calls `visit` with each tree's index, the block (0 or 1), and the leaf that each row of the
/// block reaches in the tree.
pub(super) fn for_each_tree(
    call: KernelCall<'_>,
    simd: Simd,
    trees: Range<usize>,
    scratch: &mut BlockScratch,
    mut visit: impl FnMut(usize, usize, &RowBytes),
) {
    let BlockScratch {
        block,
        second,
        slots,
        reached,
        ..
    } = scratch;
    let (view, count) = (call.view, call.count());
    let first = call.part(0..count.min(BLOCK_ROWS));
    block.fill(view, call.library, first.rows, simd);
    let are_two = count > BLOCK_ROWS;
    if are_two {
        let remaining = call.part(BLOCK_ROWS..count);
        second.fill(view, call.library, remaining.rows, simd);
    }
    for tree in trees {
        let splits = &view.binned.level_order[view.splits_of(tree)];
        if are_two {
            let columns = [&block.columns, &second.columns].map(Vec::as_slice);
            simd.leaves_of_two(columns, splits, slots, reached);
            visit(tree, 1, &reached[1]);
        } else {
            simd.leaves(&block.columns, splits, slots, &mut reached[0]);
        }
        visit(tree, 0, &reached[0]);
    }
}

/// Adds the leaf values of the rows to `margins`, rows x groups, for a model with a table of leaf
/// values of this type. `add` adds the leaf values of one tree, given their range in the table, to
/// the sums of one group.
pub(crate) fn sum_table<T: Sum>(
    call: KernelCall<'_>,
    simd: Simd,
    trees: Range<usize>,
    margins: &mut [T],
    scratch: &mut BlockScratch,
    add: impl Fn(Range<usize>, &RowBytes, &mut [T; BLOCK_ROWS]),
) {
    let (view, groups) = (call.view, call.view.groups);
    let mut sums = std::mem::take(T::sums(scratch));
    if let Some(&first) = margins.first() {
        sums.resize(2 * groups, [first; BLOCK_ROWS]);
    }
    let blocks = margins.chunks_mut(BLOCK_ROWS * groups);
    for (margins, sums) in blocks.zip(sums.chunks_exact_mut(groups)) {
        for (row, margins) in margins.chunks_exact(groups).enumerate() {
            for (sums, &margin) in sums.iter_mut().zip(margins) {
                sums[row] = margin;
            }
        }
    }
    for_each_tree(call, simd, trees, scratch, |tree, block, reached| {
        // infallible: `open` has checked the group.
        let sums = &mut sums[block * groups..];
        if let Some(sums) = sums.get_mut(view.tree_groups[tree] as usize) {
            add(view.leaves_of(tree), reached, sums);
        }
    });
    let blocks = margins.chunks_mut(BLOCK_ROWS * groups);
    for (margins, sums) in blocks.zip(sums.chunks_exact(groups)) {
        for (row, margins) in margins.chunks_exact_mut(groups).enumerate() {
            for (sums, margin) in sums.iter().zip(margins) {
                *margin = sums[row];
            }
        }
    }
    *T::sums(scratch) = sums;
}

/// Adds leaf values to sums; `values` starts with those of the tree.
pub(crate) fn add_leaf_f64s(values: &[f64], reached: &RowBytes, sums: &mut [f64; BLOCK_ROWS]) {
    // The values of the last tree are followed by padding.
    let Some(values) = values.first_chunk::<LEAVES_MAX>() else {
        return;
    };
    for (sum, &leaf) in sums.iter_mut().zip(&reached.0) {
        *sum += values[usize::from(leaf)];
    }
}

/// Like [`sum_table`], for all models.
pub(crate) fn sum<T: Sum>(
    call: KernelCall<'_>,
    simd: Simd,
    trees: Range<usize>,
    margins: &mut [T],
    scratch: &mut BlockScratch,
) {
    let view = call.view;
    for_each_tree(call, simd, trees, scratch, |index, block, reached| {
        let tree = view.tree(index);
        let leaves = &view.binned.leaf_nodes[view.leaves_of(index)];
        let margins = &mut margins[block * BLOCK_ROWS * view.groups..];
        let rows = margins.chunks_exact_mut(view.groups).zip(&reached.0);
        match tree.target {
            LeafTarget::Group(group) => rows.for_each(|(margins, &leaf)| {
                let value = tree.value[leaves[usize::from(leaf)] as usize];
                margins[group] += T::of(value);
            }),
            LeafTarget::All => rows.for_each(|(margins, &leaf)| {
                nodes::add(&tree, leaves[usize::from(leaf)] as usize, margins);
            }),
        }
    });
}

/// Computes the library's leaf numbers for the rows: rows x trees of the range.
pub(crate) fn leaves(
    call: KernelCall<'_>,
    simd: Simd,
    trees: Range<usize>,
    out: &mut [i32],
    scratch: &mut BlockScratch,
) {
    let (first, width) = (trees.start, trees.len());
    for_each_tree(call, simd, trees, scratch, |index, block, reached| {
        let tree = call.view.tree(index);
        let leaves = &call.view.binned.leaf_nodes[call.view.leaves_of(index)];
        let out = &mut out[block * BLOCK_ROWS * width..];
        for (out, &leaf) in out.chunks_exact_mut(width).zip(&reached.0) {
            out[index - first] = tree.label[leaves[usize::from(leaf)] as usize] as i32;
        }
    });
}
