//! Vectorized SHAP values: trees in the lanes for a few rows (`one_row`), rows in the lanes for
//! many (`many_rows`).
//!
//! **Problem.** As in `sweep`, whose formulas are used here. The effect of a split on a row
//! depends on two bits: whether the row goes left, and whether it has followed the earlier edges of
//! the split's feature. Everything else is the same for all rows.
//!
//! **Approach.** The bits are computed from the binned form. The number of quadrature points is
//! exactly half the number of features of the longest path, rounded up. At a split let z be the
//! product of the shares of its feature's earlier edges, f = z (1 - t) + t, and s the share of an
//! edge. Three constants per point define the split:
//!
//! ```text
//! a = z (1 - t) / f      b = t / f      c = z / f^2
//! f' / f of an edge  =  s a,  plus b if the row follows the edge
//! ```
//!
//! Let `expected` be the sum over both edges of their share times the sum below them, and
//! `followed` the sum below the edge that the row follows. Then
//!
//! ```text
//! contribution of the split  =  weight * product above * c * (followed - expected)
//! sum below the split        =  a * expected + b * followed
//! ```
//!
//! If the feature is new on the path, a = 1 - t, b = t and c = 1; if the row has left the feature's
//! path at an earlier edge, a = 1, b = 0 and c = 0.
//!
//! For many rows a, b and c are computed once per split and point. For one row they are derived
//! from constants computed when the model was compiled (`compile::bundles`); Fast TreeSHAP v2 (Yang
//! 2021) divides the work between compilation and explanation at the same point.
//!
//! **Proof sketch.** With o = 1 on the followed edge and 0 on the other, the sum over both edges of
//! (o - s) below is followed - expected, and that of s a below + o b below is a expected + b
//! followed. Both variants perform the same operations on the same numbers in the same order, so
//! the bits of a row do not depend on the number of rows in the call.
//!
//! **Limits.** Models accepted by [`EnsembleView::has_vector_shap`].

use std::ops::Range;

use albacore_simd::Simd;

use crate::encode::bins::RowBlock;
use crate::layout::ensemble::{EnsembleView, NONE};
use crate::shap::many_rows::{FILL, TreeShap};
use crate::shap::one_row::BundleShap;
use crate::shap::scratch::ShapScratch;

/// Up to this many rows are processed one by one: the many-rows variant would waste lanes and
/// compute its per-call constants for few rows.
pub(crate) const FEW_ROWS: usize = 5;

/// Computes the contributions of one row to all groups, summed over all trees: groups x split
/// features. `keys` are the keys of the row.
pub(crate) fn contributions_of_row<'a>(
    view: &EnsembleView<'_>,
    keys: &[u32],
    simd: Simd,
    scratch: &'a mut ShapScratch,
) -> &'a [f64] {
    let split_features = view.binned.split_features.len();
    let mut sums = std::mem::take(&mut scratch.vectors.sums);
    sums.clear();
    sums.resize(view.groups * split_features, 0.0);
    for bundle in 0..view.bundles.len() {
        let slots = contributions_of_bundle(view, bundle, keys, simd, scratch);
        add_contributions(view, bundle, slots, &mut sums);
    }
    scratch.vectors.sums = sums;
    &scratch.vectors.sums
}

/// Computes the contribution of each node and lane of a bundle to one row.
pub(crate) fn contributions_of_bundle<'a>(
    view: &EnsembleView<'_>,
    bundle: usize,
    keys: &[u32],
    simd: Simd,
    scratch: &'a mut ShapScratch,
) -> &'a [f64] {
    let (header, _) = view.bundles.headers_of(bundle);
    simd.run(BundleShap::<false> {
        bundles: &view.bundles,
        bundle,
        keys,
        rule: scratch.rules.of_points(header.points),
        scratch: &mut scratch.vectors,
    });
    &scratch.vectors.contributions
}

/// Adds the contributions of a bundle, by node and lane, to the sums of their features: groups x
/// split features.
pub(super) fn add_contributions(
    view: &EnsembleView<'_>,
    bundle: usize,
    slots: &[f64],
    sums: &mut [f64],
) {
    let split_features = view.binned.split_features.len();
    for (group, entries) in view.scatter_of(bundle) {
        let sums = &mut sums[group * split_features..][..split_features];
        for entry in entries {
            sums[entry.split_feature] += slots[entry.slot];
        }
    }
}

/// Computes the contributions of a block of rows to one group, summed over a range of trees: split
/// features x rows, padded to a multiple of [`FILL`].
pub(crate) fn contributions_of_rows<'a>(
    view: &EnsembleView<'_>,
    trees: Range<usize>,
    group: usize,
    block: &RowBlock,
    simd: Simd,
    scratch: &'a mut ShapScratch,
) -> &'a [f64] {
    let (rules, vectors) = (&mut scratch.rules, &mut scratch.vectors);
    let width = block.rows.next_multiple_of(FILL);
    vectors.sums.clear();
    vectors
        .sums
        .resize(view.binned.split_features.len() * width, 0.0);
    // In bundle order, as for one row.
    let in_order = view.bundles.trees.as_flattened().iter();
    for index in in_order.filter(|&&tree| tree != NONE) {
        let index = *index as usize;
        if !trees.contains(&index) || view.tree_groups[index] as usize != group {
            continue;
        }
        let tree = view.tree(index);
        let splits = &view.binned.splits[view.splits_of(index)];
        vectors.left_rows.resize(splits.len(), 0);
        simd.left_masks(&block.columns, splits, &mut vectors.left_rows);
        simd.run(TreeShap {
            tree: &tree,
            splits,
            columns: view.binned.columns,
            width,
            rule: rules.of_points(tree.quadrature_points()),
            scratch: vectors,
        });
    }
    &vectors.sums
}
