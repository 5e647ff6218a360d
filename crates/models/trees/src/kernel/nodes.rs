//! Node by node: the reference. Rows go in blocks through each tree, so that a tree's nodes are in
//! the nearest cache for all rows of the block but the first.

use std::ops::Range;

use super::{KernelCall, Sum};
use crate::layout::ensemble::{EnsembleView, LeafTarget, TreeView};
use crate::rows::{Double, Flushed, PreparedRow, Rounded, Rows, Single, Widened};
use albacore_formats::Library;

/// Adds the leaves that the rows of a block reach to `margins`, rows x groups.
pub(crate) fn sum<T: Sum>(call: KernelCall<'_>, trees: Range<usize>, margins: &mut [T]) {
    let groups = call.view.groups;
    for_each_leaf(call, trees, |row, _, tree, leaf| {
        add(tree, leaf, &mut margins[row * groups..][..groups]);
    });
}

/// Adds a leaf to the margins of a row.
#[inline]
pub(crate) fn add<T: Sum>(tree: &TreeView<'_>, leaf: usize, margins: &mut [T]) {
    match tree.target {
        LeafTarget::Group(group) => margins[group] = margins[group].plus(tree.value[leaf]),
        LeafTarget::All => {
            for (margin, &value) in margins.iter_mut().zip(tree.leaf_values(leaf)) {
                *margin = margin.plus(value);
            }
        }
    }
}

/// The library's numbers of the leaves that the rows of a block reach: rows x trees of the range.
pub(crate) fn leaves(call: KernelCall<'_>, trees: Range<usize>, leaves: &mut [i32]) {
    let (first, width) = (trees.start, trees.len());
    for_each_leaf(call, trees, |row, index, tree, leaf| {
        leaves[row * width + index - first] = tree.label[leaf] as i32;
    });
}

/// Calls `visit` with row, index of the tree, tree and leaf, for every row and tree; for each row
/// in the order of the trees.
pub(super) fn for_each_leaf<'a>(
    call: KernelCall<'a>,
    trees: Range<usize>,
    visit: impl FnMut(usize, usize, &TreeView<'a>, usize),
) {
    let KernelCall {
        view,
        library,
        rows,
        ..
    } = call;
    let n = view.features;
    match (library, rows) {
        (Library::Xgboost, Rows::F32(x)) => walk(view, trees, x.chunks_exact(n).map(Single), visit),
        (Library::Xgboost, Rows::F64(x)) => {
            walk(view, trees, x.chunks_exact(n).map(Rounded), visit);
        }
        (Library::Lightgbm, Rows::F32(x)) => {
            walk(view, trees, x.chunks_exact(n).map(Widened), visit);
        }
        (Library::Lightgbm, Rows::F64(x)) => {
            walk(view, trees, x.chunks_exact(n).map(Flushed), visit);
        }
        (Library::Sklearn, Rows::F32(x)) => walk(view, trees, x.chunks_exact(n).map(Single), visit),
        (Library::Sklearn, Rows::F64(x)) => walk(view, trees, x.chunks_exact(n).map(Double), visit),
    }
}

fn walk<'a, R: PreparedRow>(
    view: &EnsembleView<'a>,
    trees: Range<usize>,
    rows: impl ExactSizeIterator<Item = R> + Clone,
    mut visit: impl FnMut(usize, usize, &TreeView<'a>, usize),
) {
    for index in trees {
        let tree = view.tree(index);
        for (row, values) in rows.clone().enumerate() {
            visit(row, index, &tree, tree.leaf_of(values));
        }
    }
}
