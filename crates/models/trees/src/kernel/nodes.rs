//! Node by node: the reference. Each tree processes a block of rows, so that its nodes stay in the
//! L1 cache for all rows of the block except the first.

use std::ops::Range;

use super::{KernelCall, Sum};
use crate::layout::ensemble::{EnsembleView, LeafTarget, TreeView};
use crate::rows::{Rows, flushed, rounded};
use albacore_formats::Library;

/// Adds the leaf values of a block of rows to `margins`, rows x groups.
pub(crate) fn sum<T: Sum>(call: KernelCall<'_>, trees: Range<usize>, margins: &mut [T]) {
    let groups = call.view.groups;
    for_each_leaf(call, trees, |row, _, tree, leaf| {
        add(tree, leaf, &mut margins[row * groups..][..groups]);
    });
}

/// Adds a leaf value to the margins of a row.
#[inline]
pub(crate) fn add<T: Sum>(tree: &TreeView<'_>, leaf: usize, margins: &mut [T]) {
    match tree.target {
        LeafTarget::Group(group) => margins[group] += T::of(tree.value[leaf]),
        LeafTarget::All => {
            for (margin, &value) in margins.iter_mut().zip(tree.leaf_values(leaf)) {
                *margin += T::of(value);
            }
        }
    }
}

/// Computes the library's leaf numbers for a block of rows: rows x trees of the range.
pub(crate) fn leaves(call: KernelCall<'_>, trees: Range<usize>, leaves: &mut [i32]) {
    let (first, width) = (trees.start, trees.len());
    for_each_leaf(call, trees, |row, index, tree, leaf| {
        leaves[row * width + index - first] = tree.label[leaf] as i32;
    });
}

/// Calls `visit` with row index, tree index, tree and leaf for every row and tree; for each row in
/// tree order.
pub(super) fn for_each_leaf<'a>(
    call: KernelCall<'a>,
    trees: Range<usize>,
    visit: impl FnMut(usize, usize, &TreeView<'a>, usize),
) {
    let (view, library) = (call.view, call.library);
    match (library, call.rows) {
        (Library::Xgboost | Library::Sklearn, Rows::F32(x)) => {
            walk(view, trees, x, f64::from, visit)
        }
        (Library::Xgboost, Rows::F64(x)) => walk(view, trees, x, rounded, visit),
        (Library::Lightgbm, Rows::F32(x)) => {
            walk(view, trees, x, |value| flushed(f64::from(value)), visit);
        }
        (Library::Lightgbm, Rows::F64(x)) => walk(view, trees, x, flushed, visit),
        (Library::Sklearn, Rows::F64(x)) => walk(view, trees, x, |value| value, visit),
    }
}

fn walk<'a, T: Copy>(
    view: &EnsembleView<'a>,
    trees: Range<usize>,
    rows: &[T],
    prepared: impl Fn(T) -> f64,
    mut visit: impl FnMut(usize, usize, &TreeView<'a>, usize),
) {
    for index in trees {
        let tree = view.tree(index);
        for (row, values) in rows.chunks_exact(view.features).enumerate() {
            let leaf = tree.leaf_of(|feature| prepared(values[feature]));
            visit(row, index, &tree, leaf);
        }
    }
}
