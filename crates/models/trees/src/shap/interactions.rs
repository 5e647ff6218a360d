//! SHAP interaction values of one row, by tree bundles.
//!
//! **Problem.** As in `sweep`: each split forms a pair with each edge above it. Eight trees are
//! processed at once, but each adds to different cells of the matrix.
//!
//! **Approach.** The descent of `one_row` stores, for each node and each node above it, the
//! interaction in each lane; then all lanes are added to the cells of their features, in node
//! order. A pair is added to one cell, in the row of the lower split's feature and the column of
//! the upper split's; at the end the two orders of each pair are combined. The diagonal is the
//! remainder of the contributions, so pairs of a feature with itself need no special case.
//!
//! **Proof sketch.** With a, b and c of `contributions`, the change z (o - s) / (f f') of g is
//! c (1 - s) divided by the edge's ratio for an edge that the row follows, and -1 / (f (1 - t)) for
//! an edge that it does not follow: z and s cancel.
//!
//! **Limits.** Those of `contributions`, plus [`PAIR_TERMS_MAX`] and [`CELLS_MAX`].

use albacore_simd::Simd;

use crate::layout::bundles::LANES;
use crate::layout::ensemble::EnsembleView;
use crate::shap::contributions::add_contributions;
use crate::shap::one_row::BundleShap;
use crate::shap::scalar::combine_orders;
use crate::shap::scratch::ShapScratch;

/// Maximum terms of the pairs of a bundle: 16 MiB.
const PAIR_TERMS_MAX: usize = 1 << 21;

/// Maximum cells of the matrices of all groups: 8 MiB.
const CELLS_MAX: usize = 1 << 20;

/// Returns whether the pairs of each bundle and the matrices of all groups are within the limits.
pub(crate) fn fits_memory(view: &EnsembleView<'_>) -> bool {
    let columns = view.binned.split_features.len() + 1;
    let cells = columns.saturating_mul(columns).saturating_mul(view.groups);
    let mut pairs = (0..view.bundles.len()).map(|bundle| {
        let (header, next) = view.bundles.headers_of(bundle);
        (next.nodes - header.nodes) * header.depth
    });
    cells <= CELLS_MAX && pairs.all(|pairs| pairs <= PAIR_TERMS_MAX / LANES)
}

/// Computes the interactions of one row, summed over all trees: groups x (split features + 1) x
/// (split features + 1), with the last row and column unspecified. `keys` are the keys of the row.
pub(crate) fn interactions_of_row<'a>(
    view: &EnsembleView<'_>,
    keys: &[u32],
    simd: Simd,
    scratch: &'a mut ShapScratch,
) -> &'a [f64] {
    let (rules, vectors) = (&mut scratch.rules, &mut scratch.vectors);
    let features = view.binned.split_features.len();
    let columns = features + 1;
    vectors.cells.clear();
    vectors.cells.resize(view.groups * columns * columns, 0.0);
    vectors.sums.clear();
    vectors.sums.resize(view.groups * features, 0.0);
    for bundle in 0..view.bundles.len() {
        let (header, _) = view.bundles.headers_of(bundle);
        simd.run(BundleShap::<true> {
            bundles: &view.bundles,
            bundle,
            keys,
            rule: rules.of_points(header.points),
            scratch: vectors,
        });
        add_contributions(view, bundle, &vectors.contributions, &mut vectors.sums);
        vectors.pairs.add_to(view, bundle, &mut vectors.cells);
    }
    let matrices = vectors.cells.chunks_exact_mut(columns * columns);
    for (group, cells) in matrices.enumerate() {
        let contributions = &vectors.sums[group * features..][..features];
        for (feature, &contribution) in contributions.iter().enumerate() {
            cells[feature * columns + feature] = contribution;
        }
        combine_orders(cells, columns);
    }
    &vectors.cells
}
