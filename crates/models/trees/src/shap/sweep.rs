//! SHAP values of one row and one tree without vectors, for one group of quadrature points: a
//! sweep down computes the products of the path factors, a sweep up the weighted sums of the
//! leaves.
//!
//! **Problem.** For a leaf with value v let z_i be the product of the cover shares of feature i on
//! its path, and p_i one if the row passes all tests of feature i there, else zero. Path-dependent
//! SHAP is
//!
//! - phi_i: the sum over leaves of v (p_i - z_i) times the integral over t in \[0, 1\] of the
//!   product of all f_k with k other than i;
//! - Phi_ij: half the sum over leaves of v (p_i - z_i)(p_j - z_j) times the integral of the
//!   product of all f_k with k other than i and j.
//!
//! Here f_k(t) = z_k (1 - t) + p_k t: the probability that the path is followed at feature k if
//! every feature participates with probability t.
//!
//! **Approach.** With g_i = (p_i - z_i) / f_i these are integrals of G g_i and G g_i g_j / 2, where
//! G is v times the product of all f. On the way down the path, an edge of feature i with share s
//! changes g_i by p z (o - s) / (f f'): (z, p, f) merge the edges of i above it, f' includes it,
//! and o is 1 if the row follows the edge and 0 if not. Because g_i is the sum of these changes,
//! every edge contributes separately, to all leaves below it at once, and a feature that is split
//! on again needs no special case. Below an edge that the row did not follow p = 0: the feature
//! contributes no more, and f' / f = s.
//!
//! On the way down, `above` is the quadrature weight times the product of the factors so far, and
//! `ratio` is f' / f of an edge. On the way up, `below` of a node is the sum over its leaves of v
//! times the ratios on the way. The two edges of a split add to phi_i the sum over points of
//! above * z / f^2 * ((o - s) below, left, + (o - s) below, right). If the feature is new,
//! z = f = 1 and no division is needed. Otherwise f >= t > 0, because p = 1 above every edge that
//! contributes.
//!
//! **Proof sketch.** g' - g = (p' - z') / f' - (p - z) / f with p' = p o and z' = z s. Over the
//! common denominator f f' the numerator is p' z - p z' = p z (o - s): the terms in t and 1 - t
//! cancel.
//!
//! **Cost.** Two sweeps over the nodes per group, which is possible because children follow their
//! parents. Pairs add one step for each split and each edge above it.

use crate::layout::ensemble::{NONE, TreeView};
use crate::limits::POINT_GROUP_SIZE;
use crate::shap::quadrature::{PointGroup, PointValues};

/// Results of the sweeps at each node. Reused for subsequent trees and rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct ShapSweep {
    nodes: Vec<SweepNode>,
    changes: Vec<Option<PointValues>>,
}

/// A node and the edge above it.
#[derive(Clone, Copy, Debug, Default)]
struct SweepNode {
    /// Weight times the product of the factors on the path to the node.
    above: PointValues,
    /// f' / f of the edge.
    ratio: PointValues,
    /// Sum over the leaves below of value times the ratios on the way.
    below: PointValues,
    /// o - s of the edge.
    difference: f64,
    /// The upper node of the edge.
    parent: usize,
    /// Whether the row follows this edge and all above it on the same feature.
    followed: bool,
}

/// A tree, a row and a group of points.
#[derive(Clone, Copy)]
pub(crate) struct SweepInput<'a> {
    pub(crate) tree: &'a TreeView<'a>,
    /// The prepared row.
    pub(crate) row: &'a [f64],
    pub(crate) points: &'a PointGroup,
}

impl ShapSweep {
    /// Reserves memory for trees of this many nodes.
    pub(crate) fn reserve(&mut self, nodes: usize) {
        if self.nodes.len() < nodes {
            self.nodes.resize(nodes, SweepNode::default());
            self.changes.resize(nodes, None);
        }
    }

    /// Sweeps from the root to the leaves and computes the products of the factors.
    #[inline(always)]
    pub(crate) fn descend(&mut self, input: &SweepInput<'_>) {
        let tree = input.tree;
        self.nodes[0].above = input.points.weights;
        for node in 0..tree.nodes() {
            if tree.is_leaf(node) {
                continue;
            }
            let goes_left = tree.goes_left(node, input.row[tree.feature[node] as usize]);
            let earlier_share = self.earlier_share(tree, node);
            let above = self.nodes[node].above;
            for (child, follows) in [(tree.left[node], goes_left), (tree.right[node], !goes_left)] {
                let child = child as usize;
                let share = tree.share[child];
                let ratio = ratio(earlier_share, share, follows, input.points);
                let edge = &mut self.nodes[child];
                edge.above = times(&above, &ratio);
                edge.ratio = ratio;
                edge.difference = f64::from(u8::from(follows)) - share;
                edge.parent = node;
                edge.followed = earlier_share.is_some() && follows;
            }
        }
    }

    /// Sweeps from the leaves to the root. For each split whose feature still contributes, `add`
    /// receives the node, the feature, and an integrand, whose sum over the points both edges
    /// together add to the feature's contribution. `output` selects the explained value of a leaf.
    #[inline(always)]
    pub(crate) fn ascend(
        &mut self,
        input: &SweepInput<'_>,
        output: usize,
        mut add: impl FnMut(&Self, usize, usize, &PointValues),
    ) {
        let tree = input.tree;
        for node in (0..tree.nodes()).rev() {
            if tree.is_leaf(node) {
                self.nodes[node].below = [tree.leaf_values(node)[output]; POINT_GROUP_SIZE];
                continue;
            }
            let left = &self.nodes[tree.left[node] as usize];
            let right = &self.nodes[tree.right[node] as usize];
            let mut below = times(&left.ratio, &left.below);
            for (sum, part) in below.iter_mut().zip(times(&right.ratio, &right.below)) {
                *sum += part;
            }
            if let Some(earlier_share) = self.earlier_share(tree, node) {
                let mut integrand = self.nodes[node].above;
                for (lane, value) in integrand.iter_mut().enumerate() {
                    *value *=
                        left.difference * left.below[lane] + right.difference * right.below[lane];
                }
                if earlier_share != NEW_FEATURE {
                    for (value, f) in
                        integrand
                            .iter_mut()
                            .zip(factor(earlier_share, true, input.points))
                    {
                        *value *= earlier_share / (f * f);
                    }
                }
                add(self, node, tree.feature[node] as usize, &integrand);
            }
            self.nodes[node].below = below;
        }
    }

    /// Computes the change of g by every edge, for [`ShapSweep::edges_above`]; call after
    /// [`ShapSweep::descend`].
    #[inline(always)]
    pub(crate) fn compute_changes(&mut self, input: &SweepInput<'_>) {
        for node in 1..input.tree.nodes() {
            let edge = &self.nodes[node];
            let earlier_share = self.earlier_share(input.tree, edge.parent);
            let share = input.tree.share[node];
            self.changes[node] =
                earlier_share.map(|earlier_share| edge.change(earlier_share, share, input.points));
        }
    }

    /// Returns the edges above a node that change g, lowest first: their features and changes.
    #[inline(always)]
    pub(crate) fn edges_above<'a>(
        &'a self,
        tree: &'a TreeView<'a>,
        node: usize,
    ) -> impl Iterator<Item = (usize, &'a PointValues)> {
        let edges = std::iter::successors(Some(node), |&edge| Some(self.nodes[edge].parent));
        edges.take_while(|&edge| edge != 0).filter_map(move |edge| {
            let feature = tree.feature[self.nodes[edge].parent] as usize;
            Some((feature, self.changes[edge].as_ref()?))
        })
    }

    /// Returns z of a split's feature if the row follows all earlier edges of the feature.
    #[inline(always)]
    fn earlier_share(&self, tree: &TreeView<'_>, node: usize) -> Option<f64> {
        let earlier_edge = tree.earlier_edge[node];
        if earlier_edge == NONE {
            return Some(NEW_FEATURE);
        }
        self.nodes[earlier_edge as usize]
            .followed
            .then_some(tree.earlier_share[node])
    }
}

/// z of a feature that is new on the path. A product of shares that happens to be 1 is equivalent.
const NEW_FEATURE: f64 = 1.0;

impl SweepNode {
    /// Returns z (o - s) / (f f') of the edge.
    #[inline(always)]
    fn change(&self, earlier_share: f64, share: f64, points: &PointGroup) -> PointValues {
        let mut change = factor(earlier_share, true, points);
        if self.followed {
            let after = factor(earlier_share * share, true, points);
            for (value, after) in change.iter_mut().zip(after) {
                *value = earlier_share * self.difference / (*value * after);
            }
        } else {
            // f' = z s (1 - t): s cancels, so an edge without cover needs no special case.
            for (value, t) in change.iter_mut().zip(points.abscissas) {
                *value = -1.0 / (*value * (1.0 - t));
            }
        }
        change
    }
}

/// Returns f' / f of an edge at each point.
#[inline(always)]
fn ratio(
    earlier_share: Option<f64>,
    share: f64,
    follows: bool,
    points: &PointGroup,
) -> PointValues {
    let Some(earlier_share) = earlier_share else {
        return [share; POINT_GROUP_SIZE];
    };
    let mut ratio = factor(earlier_share * share, follows, points);
    if earlier_share != NEW_FEATURE {
        for (value, before) in ratio.iter_mut().zip(factor(earlier_share, true, points)) {
            *value /= before;
        }
    }
    ratio
}

/// Returns z (1 - t) + p t at each point.
#[inline(always)]
fn factor(earlier_share: f64, followed: bool, points: &PointGroup) -> PointValues {
    let p = f64::from(u8::from(followed));
    points.abscissas.map(|t| earlier_share * (1.0 - t) + p * t)
}

/// Multiplies per point.
#[inline(always)]
fn times(a: &PointValues, b: &PointValues) -> PointValues {
    let mut product = *a;
    for (value, b) in product.iter_mut().zip(b) {
        *value *= b;
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_not_reallocated_after_the_largest_tree() {
        let mut sweep = ShapSweep::default();
        sweep.reserve(1000);
        let pointers = (sweep.nodes.as_ptr(), sweep.changes.as_ptr());
        for nodes in [1, 999, 1000] {
            sweep.reserve(nodes);
        }
        assert_eq!((sweep.nodes.as_ptr(), sweep.changes.as_ptr()), pointers);
    }
}
