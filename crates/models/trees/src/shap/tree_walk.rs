//! SHAP values of one row and one tree without vectors, for one packet of quadrature points: a
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
//! **Cost.** Two sweeps over the nodes per packet, which is possible because children follow their
//! parents. Pairs add one step for each split and each edge above it.

use crate::layout::ensemble::{NONE, TreeView};
use crate::limits::PACKET_POINTS;
use crate::shap::quadrature::{Packet, PacketValues};

/// Results of the sweeps at each node. Reused for subsequent trees and rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct TreeWalk {
    nodes: Vec<WalkedNode>,
    changes: Vec<Option<PacketValues>>,
}

/// A node and the edge above it.
#[derive(Clone, Copy, Debug, Default)]
struct WalkedNode {
    /// Weight times the product of the factors on the path to the node.
    above: PacketValues,
    /// f' / f of the edge.
    ratio: PacketValues,
    /// Sum over the leaves below of value times the ratios on the way.
    below: PacketValues,
    /// o - s of the edge.
    difference: f64,
    /// The upper node of the edge.
    parent: usize,
    /// Whether the row follows this edge and all above it on the same feature.
    followed: bool,
}

/// A tree, a row and a packet of points.
#[derive(Clone, Copy)]
pub(crate) struct TreePacket<'a> {
    pub(crate) tree: &'a TreeView<'a>,
    /// The prepared row.
    pub(crate) row: &'a [f64],
    pub(crate) packet: &'a Packet,
}

impl TreeWalk {
    /// Reserves memory for trees of this many nodes.
    pub(crate) fn reserve(&mut self, nodes: usize) {
        if self.nodes.len() < nodes {
            self.nodes.resize(nodes, WalkedNode::default());
            self.changes.resize(nodes, None);
        }
    }

    /// Sweeps from the root to the leaves and computes the products of the factors.
    #[inline(always)]
    pub(crate) fn descend(&mut self, input: &TreePacket<'_>) {
        let tree = input.tree;
        self.nodes[0].above = input.packet.weight;
        for node in 0..tree.nodes() {
            if tree.is_leaf(node) {
                continue;
            }
            let goes_left = tree.goes_left(node, input.row[tree.feature[node] as usize]);
            let merged = self.merged(tree, node);
            let above = self.nodes[node].above;
            for (child, follows) in [(tree.left[node], goes_left), (tree.right[node], !goes_left)] {
                let child = child as usize;
                let share = tree.share[child];
                let ratio = ratio(merged, share, follows, input.packet);
                let edge = &mut self.nodes[child];
                edge.above = times(&above, &ratio);
                edge.ratio = ratio;
                edge.difference = f64::from(u8::from(follows)) - share;
                edge.parent = node;
                edge.followed = merged.is_some() && follows;
            }
        }
    }

    /// Sweeps from the leaves to the root. For each split whose feature still contributes, `add`
    /// receives the node, the feature, and an integrand, whose sum over the points both edges
    /// together add to the feature's contribution. `output` selects the explained value of a leaf.
    #[inline(always)]
    pub(crate) fn ascend(
        &mut self,
        input: &TreePacket<'_>,
        output: usize,
        mut add: impl FnMut(&Self, usize, usize, &PacketValues),
    ) {
        let tree = input.tree;
        for node in (0..tree.nodes()).rev() {
            if tree.is_leaf(node) {
                self.nodes[node].below = [tree.leaf_values(node)[output]; PACKET_POINTS];
                continue;
            }
            let left = &self.nodes[tree.left[node] as usize];
            let right = &self.nodes[tree.right[node] as usize];
            let mut below = times(&left.ratio, &left.below);
            for (sum, part) in below.iter_mut().zip(times(&right.ratio, &right.below)) {
                *sum += part;
            }
            if let Some(merged) = self.merged(tree, node) {
                let mut integrand = self.nodes[node].above;
                for (lane, value) in integrand.iter_mut().enumerate() {
                    *value *=
                        left.difference * left.below[lane] + right.difference * right.below[lane];
                }
                if merged != NEW_FEATURE {
                    for (value, f) in integrand.iter_mut().zip(factor(merged, true, input.packet)) {
                        *value *= merged / (f * f);
                    }
                }
                add(self, node, tree.feature[node] as usize, &integrand);
            }
            self.nodes[node].below = below;
        }
    }

    /// Computes the change of g by every edge, for [`TreeWalk::edges_above`]; call after
    /// [`TreeWalk::descend`].
    #[inline(always)]
    pub(crate) fn compute_changes(&mut self, input: &TreePacket<'_>) {
        for node in 1..input.tree.nodes() {
            let edge = &self.nodes[node];
            let merged = self.merged(input.tree, edge.parent);
            let share = input.tree.share[node];
            self.changes[node] = merged.map(|merged| edge.change(merged, share, input.packet));
        }
    }

    /// Returns the edges above a node that change g, lowest first: their features and changes.
    #[inline(always)]
    pub(crate) fn edges_above<'a>(
        &'a self,
        tree: &'a TreeView<'a>,
        node: usize,
    ) -> impl Iterator<Item = (usize, &'a PacketValues)> {
        let edges = std::iter::successors(Some(node), |&edge| Some(self.nodes[edge].parent));
        edges.take_while(|&edge| edge != 0).filter_map(move |edge| {
            let feature = tree.feature[self.nodes[edge].parent] as usize;
            Some((feature, self.changes[edge].as_ref()?))
        })
    }

    /// Returns z of a split's feature if the row follows all earlier edges of the feature.
    #[inline(always)]
    fn merged(&self, tree: &TreeView<'_>, node: usize) -> Option<f64> {
        let previous = tree.previous[node];
        if previous == NONE {
            return Some(NEW_FEATURE);
        }
        self.nodes[previous as usize]
            .followed
            .then_some(tree.merged[node])
    }
}

/// z of a feature that is new on the path. A product of shares that happens to be 1 is equivalent.
const NEW_FEATURE: f64 = 1.0;

impl WalkedNode {
    /// Returns z (o - s) / (f f') of the edge.
    #[inline(always)]
    fn change(&self, merged: f64, share: f64, packet: &Packet) -> PacketValues {
        let mut change = factor(merged, true, packet);
        if self.followed {
            let after = factor(merged * share, true, packet);
            for (value, after) in change.iter_mut().zip(after) {
                *value = merged * self.difference / (*value * after);
            }
        } else {
            // f' = z s (1 - t): s cancels, so an edge without cover needs no special case.
            for (value, t) in change.iter_mut().zip(packet.at) {
                *value = -1.0 / (*value * (1.0 - t));
            }
        }
        change
    }
}

/// Returns f' / f of an edge at each point.
#[inline(always)]
fn ratio(merged: Option<f64>, share: f64, follows: bool, packet: &Packet) -> PacketValues {
    let Some(merged) = merged else {
        return [share; PACKET_POINTS];
    };
    let mut ratio = factor(merged * share, follows, packet);
    if merged != NEW_FEATURE {
        for (value, before) in ratio.iter_mut().zip(factor(merged, true, packet)) {
            *value /= before;
        }
    }
    ratio
}

/// Returns z (1 - t) + p t at each point.
#[inline(always)]
fn factor(merged: f64, followed: bool, packet: &Packet) -> PacketValues {
    let taken = f64::from(u8::from(followed));
    packet.at.map(|t| merged * (1.0 - t) + taken * t)
}

/// Multiplies per point.
#[inline(always)]
fn times(a: &PacketValues, b: &PacketValues) -> PacketValues {
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
    fn memory_is_not_moved_after_the_largest_tree() {
        let mut walk = TreeWalk::default();
        walk.reserve(1000);
        let place = (walk.nodes.as_ptr(), walk.changes.as_ptr());
        for nodes in [1, 999, 1000] {
            walk.reserve(nodes);
        }
        assert_eq!((walk.nodes.as_ptr(), walk.changes.as_ptr()), place);
    }
}
