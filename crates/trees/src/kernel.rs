//! The engines that walk trees. A faster one for some models and batches becomes another member of
//! [`Kernel`]; whatever it does, it gives the bits that [`Kernel::Scalar`] gives.
//!
//! Margins start from the base margin and add leaf values tree by tree in model order, in the
//! library's element type. That order does not depend on how rows are batched or split over
//! threads, so neither do the results. Rows go in blocks through each tree, so that a tree's nodes
//! are in the nearest cache for all rows of the block but the first.

use std::ops::Range;

use crate::limits::BLOCK_ROWS;
use crate::model::Library;
use crate::rows::{Flushed, Rounded, Row, Rows, Single, Widened};
use crate::view::{EnsembleView, Target, TreeView};

/// A way to walk trees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Kernel {
    /// Node by node, row by row: the reference.
    #[default]
    Scalar,
}

/// A running sum in the library's element type.
pub(crate) trait Sum: Copy {
    /// Adds a leaf value.
    fn plus(self, leaf: f64) -> Self;
}

impl Sum for f32 {
    #[inline]
    fn plus(self, leaf: f64) -> Self {
        // Exact: XGBoost's leaf values are `f32` values.
        self + leaf as Self
    }
}

impl Sum for f64 {
    #[inline]
    fn plus(self, leaf: f64) -> Self {
        self + leaf
    }
}

/// The model, the range of trees and the rows of a call.
#[derive(Clone, Copy)]
pub(crate) struct Task<'a> {
    pub(crate) view: &'a EnsembleView<'a>,
    pub(crate) library: Library,
    pub(crate) rows: Rows<'a>,
}

impl Kernel {
    /// Adds the leaves that the rows reach to `margins`, rows x groups.
    pub(crate) fn margins<T: Sum>(self, task: Task<'_>, trees: Range<usize>, margins: &mut [T]) {
        let Self::Scalar = self;
        let groups = task.view.groups;
        for_each_leaf(task, trees, |row, _, tree, leaf| {
            let margins = &mut margins[row * groups..][..groups];
            match tree.target {
                Target::Group(group) => margins[group] = margins[group].plus(tree.value[leaf]),
                Target::All => {
                    for (margin, &value) in margins.iter_mut().zip(tree.leaf_values(leaf)) {
                        *margin = margin.plus(value);
                    }
                }
            }
        });
    }

    /// The library's names of the leaves that the rows reach: rows x trees of the range.
    pub(crate) fn leaves(self, task: Task<'_>, trees: Range<usize>, leaves: &mut [i32]) {
        let Self::Scalar = self;
        let (first, width) = (trees.start, trees.len());
        for_each_leaf(task, trees, |row, index, tree, leaf| {
            leaves[row * width + index - first] = tree.label[leaf] as i32;
        });
    }
}

/// Calls `visit` with row, index of the tree, tree and leaf, for every row and tree; for each row
/// in the order of the trees.
fn for_each_leaf<'a>(
    task: Task<'a>,
    trees: Range<usize>,
    visit: impl FnMut(usize, usize, &TreeView<'a>, usize),
) {
    let Task {
        view,
        library,
        rows,
    } = task;
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
    }
}

fn walk<'a, R: Row>(
    view: &EnsembleView<'a>,
    trees: Range<usize>,
    rows: impl ExactSizeIterator<Item = R> + Clone,
    mut visit: impl FnMut(usize, usize, &TreeView<'a>, usize),
) {
    for start in (0..rows.len()).step_by(BLOCK_ROWS) {
        let block = rows.clone().enumerate().skip(start).take(BLOCK_ROWS);
        for index in trees.clone() {
            let tree = view.tree(index);
            for (row, values) in block.clone() {
                visit(row, index, &tree, tree.leaf_of(values));
            }
        }
    }
}
