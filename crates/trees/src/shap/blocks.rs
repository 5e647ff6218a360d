//! Contributions over the rank form: the sums of `walk`, with rows or points in the lanes of a vector.
//!
//! **Problem.** As in `walk`; its formulas are used here. What a split does to a row depends on
//! one bit (does the row go left) and on whether the row has followed the earlier edges of the
//! split's feature; all else is the same for all rows.
//!
//! **Approach.** The bits come from the rank form. The rule has exactly half as many points as a
//! path has features, rounded up. A tree is gone through once (`descent`). Many rows have a lane
//! each (`rows`): the ratios of both edges are worked out once for each split and point, and a row
//! only selects. A few rows are explained one by one, with the points in the lanes (`points`).
//!
//! **Proof sketch.** Both do the same operations on the same numbers in the same order, and no
//! operation joins two roundings, so that a row's bits do not depend on how many come with it.
//!
//! **Limits.** Models in rank form whose leaves hold one value each and whose paths have at most
//! [`POINTS_MAX`] times two features.

use std::ops::Range;

use crate::ranks::quantize::Block;
use crate::shap::descent::Stack;
use crate::shap::quadrature::Rules;
use crate::shap::{points, rows};
use crate::simd::Simd;
use crate::view::EnsembleView;

/// Points of the largest rule: paths of 16 distinct features.
pub(crate) const POINTS_MAX: usize = 8;

/// Up to this many rows are explained one by one: lanes without rows, and what is worked out once
/// for all rows, cost more.
pub(crate) const FEW: usize = 1;

/// Memory that is reused from block to block.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scratch {
    /// Of each split of a tree: which rows go left.
    pub(super) goes_left: Vec<u64>,
    /// Of each node of a tree: which rows follow its edge and all above it on the same feature.
    pub(super) followed: Vec<u64>,
    pub(super) terms: Vec<f64>,
    pub(super) frames: Vec<f64>,
    /// Of each asked feature: the sums of the rows.
    pub(super) sums: Vec<f64>,
    pub(super) stack: Stack,
}

/// Whether the model can be explained here.
pub(crate) fn can_explain(view: &EnsembleView<'_>) -> bool {
    let mut lengths = view.path_features.iter().zip(view.depths);
    !view.ranks.leaf_nodes.is_empty()
        && view.leaf_vectors.is_empty()
        && lengths.all(|(&a, &b)| a.min(b) as usize <= 2 * POINTS_MAX)
}

/// The rows of a block, in rank form: in columns, or as the bytes of one row.
pub(crate) struct Task<'a> {
    pub(crate) view: &'a EnsembleView<'a>,
    pub(crate) block: &'a Block,
    /// Rows in columns; 0: the one row that is in bytes.
    pub(crate) rows: usize,
    pub(crate) simd: Simd,
}

impl Task<'_> {
    /// Contributions of the asked features to one group, summed over the trees of a range: calls
    /// `take` with each asked feature and its contributions, row by row.
    pub(crate) fn contribs(
        &self,
        trees: Range<usize>,
        group: usize,
        (rules, scratch): (&mut Rules, &mut Scratch),
        mut take: impl FnMut(usize, &[f64]),
    ) {
        let asked = &self.view.ranks.asked;
        let width = self.rows.max(1).next_multiple_of(rows::FILL);
        let width = if self.rows == 0 { 1 } else { width };
        scratch.sums.clear();
        scratch.sums.resize(asked.len() * width, 0.0);
        for index in trees {
            if self.view.tree_groups[index] as usize != group {
                continue;
            }
            let tree = self.view.tree(index);
            let points = tree.path_features.min(tree.depth).div_ceil(2);
            let splits = &self.view.ranks.splits[self.view.splits_of(index)];
            let columns = self.view.ranks.columns;
            let (tree, rule) = (&tree, rules.exactly(points));
            if self.rows == 0 {
                self.simd.run_narrow(points::Explain {
                    tree,
                    splits,
                    columns,
                    bytes: &self.block.bytes,
                    rule,
                    scratch,
                });
            } else {
                scratch.goes_left.resize(splits.len(), 0);
                let goes_left = &mut scratch.goes_left;
                self.simd.masks(&self.block.columns, splits, goes_left);
                self.simd.run(rows::Explain {
                    tree,
                    splits,
                    columns,
                    width,
                    rule,
                    scratch,
                });
            }
        }
        for (words, sums) in asked.iter().zip(scratch.sums.chunks_exact(width)) {
            take(words[0] as usize, &sums[..self.rows.max(1)]);
        }
    }
}
