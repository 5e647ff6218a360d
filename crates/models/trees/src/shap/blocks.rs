//! Contributions over the rank form: the sums of `walk`, with rows or trees in the lanes of a
//! vector.
//!
//! **Problem.** As in `walk`; its formulas are used here. What a split does to a row depends on
//! one bit (does the row go left) and on whether the row has followed the earlier edges of the
//! split's feature; all else is the same for all rows.
//!
//! **Approach.** The bits come from the rank form. The rule has exactly half as many points as a
//! path has features, rounded up. Of a split let z be what its feature's earlier shares multiply
//! to, f = z (1 - t) + t, and s the share of an edge. The constants A = z (1 - t) / f, B = t / f
//! and C = z / f^2 say it all: the ratio f' / f is s A, and B more if the row follows the edge. Let
//! E be the sum of both sides' shares times what is below them, and F what is below the side that
//! is followed. Then the split contributes (weight times product above) C (F - E), and A E + B F
//! goes up. Where the feature is new A = 1 - t, B = t, C = 1; a row that has left the feature's
//! path earlier has A = 1, B = 0, C = 0.
//!
//! Many rows have a lane each (`rows`): the constants are worked out once for each split and point,
//! and a row only selects. Of a few rows each is explained alone, with trees in the lanes (`one`);
//! there the constants come with the model (`lots`).
//!
//! **Proof sketch.** With o = 1 on the edge that is followed, the sum over both edges of (o - s)
//! below is F - E, and that of s A below + o B below is A E + B F. Both ways do the same operations
//! on the same numbers in the same order, so that a row's bits do not depend on how many come with
//! it.
//!
//! **Limits.** Models in rank form whose leaves hold one value each and whose paths have at most
//! [`POINTS_MAX`] times two features.

use std::ops::Range;

use crate::ranks::quantize::Block;
use crate::shap::descent::{self, Stack};
use crate::shap::lots::points_of;
use crate::shap::pairs::Pairs;
use crate::shap::paths::NONE;
use crate::shap::quadrature::Rules;
use crate::shap::{one, rows};
use crate::view::EnsembleView;
use albacore_simd::Simd;

/// Points of the largest rule: paths of 16 distinct features.
pub(crate) const POINTS_MAX: usize = 8;

/// Up to this many rows are explained one by one: lanes without rows, and what is worked out once
/// for all rows, cost more.
pub(crate) const FEW: usize = 5;

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
    pub(super) open: Stack<descent::Open>,
    /// Of each place of a lot: what its lanes do, and what they contribute.
    pub(super) firsts: Vec<u8>,
    pub(super) alive: Vec<u8>,
    pub(super) parts: Vec<f64>,
    pub(super) places: Stack<one::Open>,
    pub(super) pairs: Pairs,
}

/// Whether the model can be explained here.
pub(crate) fn can_explain(view: &EnsembleView<'_>) -> bool {
    let mut lengths = view.path_features.iter().zip(view.depths);
    !view.ranks.leaf_nodes.is_empty()
        && view.leaf_vectors.is_empty()
        && lengths.all(|(&a, &b)| a.min(b) as usize <= 2 * POINTS_MAX)
}

/// Contributions of one row to all groups, summed over all trees: groups x asked features. `keys`
/// are those of the row.
pub(crate) fn contribs_of_row<'a>(
    view: &EnsembleView<'_>,
    keys: &[u32],
    simd: Simd,
    (rules, scratch): (&mut Rules, &'a mut Scratch),
) -> &'a [f64] {
    let asked = view.ranks.asked.len();
    scratch.sums.clear();
    scratch.sums.resize(view.groups * asked, 0.0);
    for lot in 0..view.lots.trees.len() {
        parts_of_lot(view, (keys, lot), simd, (rules, scratch));
        for (group, adds) in view.adds_of(lot) {
            let sums = &mut scratch.sums[group * asked..][..asked];
            for add in adds {
                sums[(add & 0xffff) as usize] += scratch.parts[(add >> 16) as usize];
            }
        }
    }
    &scratch.sums
}

/// What each place and lane of a lot contributes to one row.
pub(crate) fn parts_of_lot<'a>(
    view: &EnsembleView<'_>,
    (keys, lot): (&[u32], usize),
    simd: Simd,
    (rules, scratch): (&mut Rules, &'a mut Scratch),
) -> &'a [f64] {
    let form = &view.lots;
    simd.run(one::Explain::<false> {
        form,
        lot,
        keys,
        rule: rules.exactly(form.lots[lot][0] as usize),
        scratch,
    });
    &scratch.parts
}

/// The rows of a block, in rank form.
pub(crate) struct Task<'a> {
    pub(crate) view: &'a EnsembleView<'a>,
    pub(crate) block: &'a Block,
    pub(crate) rows: usize,
    pub(crate) simd: Simd,
}

impl Task<'_> {
    /// Contributions of the asked features to one group, summed over the trees of a range: asked
    /// features x rows, filled up to the width of a line, which comes with them.
    pub(crate) fn contribs<'a>(
        &self,
        trees: Range<usize>,
        group: usize,
        (rules, scratch): (&mut Rules, &'a mut Scratch),
    ) -> (&'a [f64], usize) {
        let view = self.view;
        let width = self.rows.next_multiple_of(rows::FILL);
        scratch.sums.clear();
        scratch.sums.resize(view.ranks.asked.len() * width, 0.0);
        let in_order = view.lots.trees.as_flattened().iter();
        for index in in_order.filter(|&&tree| tree != NONE) {
            let index = *index as usize;
            if !trees.contains(&index) || view.tree_groups[index] as usize != group {
                continue;
            }
            let tree = view.tree(index);
            let splits = &view.ranks.splits[view.splits_of(index)];
            scratch.goes_left.resize(splits.len(), 0);
            let goes_left = &mut scratch.goes_left;
            self.simd.masks(&self.block.columns, splits, goes_left);
            self.simd.run(rows::Explain {
                rule: rules.exactly(points_of(&tree)),
                tree: &tree,
                splits,
                columns: view.ranks.columns,
                width,
                scratch,
            });
        }
        (&scratch.sums, width)
    }
}
