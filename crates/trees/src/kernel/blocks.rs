//! All nodes of a tree at once, for a block of rows in rank form: one comparison answers a split
//! for all rows, and which rows reach a leaf follows from the answers above it.
//!
//! More comparisons than walking needs, but each serves 64 rows and waits for nothing.

use std::ops::Range;

use super::{Sum, Task, nodes};
use crate::limits::BLOCK_ROWS;
use crate::ranks::quantize::Block;
use crate::ranks::{Bytes, LEAVES_MAX};
use crate::simd::{Simd, Slots};
use crate::view::Target;

/// Memory that is reused from block to block.
#[derive(Debug)]
pub(crate) struct Scratch {
    pub(crate) block: Block,
    pub(crate) slots: Box<Slots>,
    pub(crate) reached: Bytes,
    pub(super) singles: Vec<[f32; BLOCK_ROWS]>,
    pub(super) doubles: Vec<[f64; BLOCK_ROWS]>,
}

impl Default for Scratch {
    fn default() -> Self {
        Self {
            block: Block::default(),
            slots: Box::default(),
            reached: Bytes::ZERO,
            singles: Vec::new(),
            doubles: Vec::new(),
        }
    }
}

/// Calls `visit` with each tree's index and the leaf that each row of the block reaches there.
fn for_each_tree(
    task: Task<'_>,
    simd: Simd,
    trees: Range<usize>,
    scratch: &mut Scratch,
    mut visit: impl FnMut(usize, &Bytes),
) {
    let Scratch {
        block,
        slots,
        reached,
        ..
    } = scratch;
    block.fill(task.view, task.library, task.rows, simd);
    for tree in trees {
        let splits = &task.view.ranks.splits[task.view.splits_of(tree)];
        simd.leaves(&block.columns, splits, slots, reached);
        visit(tree, reached);
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
    let view = task.view;
    let mut sums = std::mem::take(T::sums(scratch));
    if let Some(&first) = margins.first() {
        sums.resize(view.groups, [first; BLOCK_ROWS]);
    }
    for (row, margins) in margins.chunks_exact(view.groups).enumerate() {
        for (sums, &margin) in sums.iter_mut().zip(margins) {
            sums[row] = margin;
        }
    }
    for_each_tree(task, simd, trees, scratch, |tree, reached| {
        // The group is there: `open` has checked it.
        if let Some(sums) = sums.get_mut(view.tree_groups[tree] as usize) {
            add(view.leaves_of(tree), reached, sums);
        }
    });
    for (row, margins) in margins.chunks_exact_mut(view.groups).enumerate() {
        for (sums, margin) in sums.iter().zip(margins) {
            *margin = sums[row];
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
    for_each_tree(task, simd, trees, scratch, |index, reached| {
        let tree = view.tree(index);
        let leaves = &view.ranks.leaf_nodes[view.leaves_of(index)];
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
    for_each_tree(task, simd, trees, scratch, |index, reached| {
        let tree = task.view.tree(index);
        let leaves = &task.view.ranks.leaf_nodes[task.view.leaves_of(index)];
        for (out, &leaf) in out.chunks_exact_mut(width).zip(&reached.0) {
            out[index - first] = tree.label[leaves[usize::from(leaf)] as usize] as i32;
        }
    });
}
