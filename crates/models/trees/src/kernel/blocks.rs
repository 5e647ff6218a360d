//! All nodes of a tree at once, for a block of rows in rank form: one comparison answers a split
//! for all rows, and which rows reach a leaf follows from the answers above it.
//!
//! More comparisons than walking needs, but each serves 64 rows and waits for nothing.

use std::ops::Range;

use super::{Sum, Task, nodes};
use crate::limits::BLOCK_ROWS;
use crate::ranks::quantize::Block;
use crate::ranks::{Bytes, LEAVES_MAX};
use crate::view::Target;
use albacore_simd::{Simd, Slots};

/// Memory that is reused from block to block.
#[derive(Debug)]
pub(crate) struct Scratch {
    pub(crate) block: Block,
    second: Block,
    slots: Box<Slots>,
    reached: [Bytes; 2],
    pub(super) singles: Vec<[f32; BLOCK_ROWS]>,
    pub(super) doubles: Vec<[f64; BLOCK_ROWS]>,
}

impl Default for Scratch {
    fn default() -> Self {
        Self {
            block: Block::default(),
            second: Block::default(),
            slots: Box::default(),
            reached: [Bytes::ZERO; 2],
            singles: Vec::new(),
            doubles: Vec::new(),
        }
    }
}

/// Rows that are taken together at most: two blocks.
pub(super) const ROWS_MAX: usize = 2 * BLOCK_ROWS;

/// Calls `visit` with each tree's index, the block (0 or 1), and the leaf that each row of the
/// block reaches there.
pub(super) fn for_each_tree(
    task: Task<'_>,
    simd: Simd,
    trees: Range<usize>,
    scratch: &mut Scratch,
    mut visit: impl FnMut(usize, usize, &Bytes),
) {
    let Scratch {
        block,
        second,
        slots,
        reached,
        ..
    } = scratch;
    let (view, count) = (task.view, task.count());
    let first = task.part(0..count.min(BLOCK_ROWS));
    block.fill(view, task.library, first.rows, simd);
    let are_two = count > BLOCK_ROWS;
    if are_two {
        let rest = task.part(BLOCK_ROWS..count);
        second.fill(view, task.library, rest.rows, simd);
    }
    for tree in trees {
        let splits = &view.ranks.levels[view.splits_of(tree)];
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

/// Adds the leaves that the rows reach to `margins`, rows x groups. The model has a table of its
/// leaves' values in this type, of which `add` gets the part of a tree.
pub(crate) fn sum_table<T: Sum>(
    task: Task<'_>,
    simd: Simd,
    trees: Range<usize>,
    margins: &mut [T],
    (scratch, add): (
        &mut Scratch,
        impl Fn(Range<usize>, &Bytes, &mut [T; BLOCK_ROWS]),
    ),
) {
    let (view, groups) = (task.view, task.view.groups);
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
    for_each_tree(task, simd, trees, scratch, |tree, block, reached| {
        // The group is there: `open` has checked it.
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

/// Adds the values of leaves to sums; `values` are the tree's and what follows.
pub(crate) fn add_doubles(values: &[f64], reached: &Bytes, sums: &mut [f64; BLOCK_ROWS]) {
    // Behind the last tree there is padding.
    let Some(values) = values.first_chunk::<LEAVES_MAX>() else {
        return;
    };
    for (sum, &leaf) in sums.iter_mut().zip(&reached.0) {
        *sum += values[usize::from(leaf)];
    }
}

/// As [`sum_table`], for every model.
pub(crate) fn sum<T: Sum>(
    task: Task<'_>,
    simd: Simd,
    trees: Range<usize>,
    margins: &mut [T],
    scratch: &mut Scratch,
) {
    let view = task.view;
    for_each_tree(task, simd, trees, scratch, |index, block, reached| {
        let tree = view.tree(index);
        let leaves = &view.ranks.leaf_nodes[view.leaves_of(index)];
        let margins = &mut margins[block * BLOCK_ROWS * view.groups..];
        let rows = margins.chunks_exact_mut(view.groups).zip(&reached.0);
        match tree.target {
            Target::Group(group) => rows.for_each(|(margins, &leaf)| {
                let value = tree.value[leaves[usize::from(leaf)] as usize];
                margins[group] = margins[group].plus(value);
            }),
            Target::All => rows.for_each(|(margins, &leaf)| {
                nodes::add(&tree, leaves[usize::from(leaf)] as usize, margins);
            }),
        }
    });
}

/// The library's names of the leaves that the rows reach: rows x trees of the range.
pub(crate) fn leaves(
    task: Task<'_>,
    simd: Simd,
    trees: Range<usize>,
    out: &mut [i32],
    scratch: &mut Scratch,
) {
    let (first, width) = (trees.start, trees.len());
    for_each_tree(task, simd, trees, scratch, |index, block, reached| {
        let tree = task.view.tree(index);
        let leaves = &task.view.ranks.leaf_nodes[task.view.leaves_of(index)];
        let out = &mut out[block * BLOCK_ROWS * width..];
        for (out, &leaf) in out.chunks_exact_mut(width).zip(&reached.0) {
            out[index - first] = tree.label[leaves[usize::from(leaf)] as usize] as i32;
        }
    });
}
