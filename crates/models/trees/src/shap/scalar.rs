//! SHAP values and interactions without vectors, for all models: sums of `sweep` over the
//! trees, in `f64`, in model order.

use std::ops::Range;

use albacore_simd::{Lanes, WithSimd};

use crate::layout::ensemble::{EnsembleView, LeafTarget, TreeView};
use crate::shap::quadrature::PointValues;
use crate::shap::scratch::ShapScratch;
use crate::shap::sweep::SweepInput;

/// Computes the contributions of each prepared row in `rows`, summed over a range of trees.
/// Overwrites `out`, rows x groups x (features + 1); the last column is the sum of the trees'
/// expected values.
pub(crate) fn contribs(
    view: &EnsembleView<'_>,
    trees: Range<usize>,
    rows: &[f64],
    out: &mut [f64],
    scratch: &mut ShapScratch,
) {
    out.fill(0.0);
    let columns = view.features + 1;
    for tree in trees.map(|index| view.tree(index)) {
        let ShapScratch { sweep, rules, .. } = scratch;
        sweep.reserve(tree.nodes());
        let rule = rules.for_path(tree.path_features.min(tree.depth));
        for (index, out) in out.chunks_exact_mut(view.groups * columns).enumerate() {
            for (output, group) in groups_of(view, &tree).enumerate() {
                out[group * columns + view.features] += tree.expected[output];
            }
            let row = &rows[index * view.features..][..view.features];
            for points in rule {
                let input = SweepInput {
                    tree: &tree,
                    row,
                    points,
                };
                sweep.descend(&input);
                for (output, group) in groups_of(view, &tree).enumerate() {
                    let contribution = &mut out[group * columns..][..columns];
                    sweep.ascend(&input, output, |_, _, feature, integrand| {
                        contribution[feature] += integrand.iter().sum::<f64>();
                    });
                }
            }
        }
    }
}

/// Returns the bias of a group: the sum of the expected values of its trees, which have one value
/// each.
pub(crate) fn bias(view: &EnsembleView<'_>, trees: Range<usize>, group: usize) -> f64 {
    trees
        .filter(|&tree| view.tree_groups[tree] as usize == group)
        .map(|tree| view.expected[tree])
        .sum()
}

/// [`interactions`] compiled for the instruction set of a `Simd`: the compiler vectorizes the
/// loops; the arithmetic is the same for all of them.
pub(crate) struct Interactions<'a> {
    pub(crate) view: &'a EnsembleView<'a>,
    pub(crate) trees: Range<usize>,
    pub(crate) row: &'a [f64],
    pub(crate) group: usize,
    pub(crate) out: &'a mut [f64],
    pub(crate) scratch: &'a mut ShapScratch,
}

impl WithSimd for Interactions<'_> {
    #[inline(always)]
    fn with_simd<L: Lanes>(self, _: L) {
        let Self {
            view,
            trees,
            row,
            group,
            out,
            scratch,
        } = self;
        interactions(view, trees, row, group, out, scratch);
    }
}

/// Computes the interactions of one prepared row in one group, summed over a range of trees.
/// Overwrites `out`, (features + 1) x (features + 1). The matrix is symmetric; a row of the matrix
/// sums to the feature's contribution; the last cell is the sum of the trees' expected values, and
/// the rest of its row and column is zero. Computed group by group, because the matrices of all
/// groups rarely fit in a cache.
#[inline(always)]
pub(super) fn interactions(
    view: &EnsembleView<'_>,
    trees: Range<usize>,
    row: &[f64],
    group: usize,
    out: &mut [f64],
    scratch: &mut ShapScratch,
) {
    out.fill(0.0);
    let columns = view.features + 1;
    for tree in trees.map(|index| view.tree(index)) {
        let Some(output) = groups_of(view, &tree).position(|of_tree| of_tree == group) else {
            continue;
        };
        let ShapScratch { sweep, rules, .. } = scratch;
        sweep.reserve(tree.nodes());
        out[columns * columns - 1] += tree.expected[output];
        for points in rules.for_path(tree.path_features.min(tree.depth)) {
            let input = SweepInput {
                tree: &tree,
                row,
                points,
            };
            sweep.descend(&input);
            sweep.compute_changes(&input);
            sweep.ascend(&input, output, |sweep, node, feature, integrand| {
                let pairs = &mut out[feature * columns..][..columns];
                pairs[feature] += total(integrand);
                // Added once for both orders; pairs of a feature with itself are the remainder.
                for (upper, change) in sweep.edges_above(&tree, node) {
                    if upper != feature {
                        let both = std::array::from_fn(|k| integrand[k] * change[k]);
                        pairs[upper] += total(&both);
                    }
                }
            });
        }
    }
    combine_orders(out, columns);
}

/// Assigns half of their sum to both orders of each pair, and subtracts the pairs from the
/// diagonal, which contains contributions.
#[inline(always)]
pub(super) fn combine_orders(out: &mut [f64], columns: usize) {
    for feature in 1..columns - 1 {
        let (before, own) = out.split_at_mut(feature * columns);
        for (other, own) in own[..feature].iter_mut().enumerate() {
            let across = &mut before[other * columns + feature];
            let pair = 0.5 * (*own + *across);
            (*own, *across) = (pair, pair);
        }
    }
    for (feature, row) in out.chunks_exact_mut(columns).enumerate().take(columns - 1) {
        let own = row[feature];
        row[feature] = 0.0;
        row[feature] = own - row[..columns - 1].iter().sum::<f64>();
    }
}

/// Returns the sum over the points of a group, added in pairs, which is faster than sequentially.
#[inline(always)]
fn total(values: &PointValues) -> f64 {
    let [a, b, c, d] = *values;
    (a + c) + (b + d)
}

/// Returns the groups that a tree's leaves add to, in the order of a leaf's values.
pub(super) fn groups_of(view: &EnsembleView<'_>, tree: &TreeView<'_>) -> Range<usize> {
    match tree.target {
        LeafTarget::Group(group) => group..group + 1,
        LeafTarget::All => 0..view.groups,
    }
}
