//! The row-independent part of path-dependent SHAP: cover shares, computed once per model.
//!
//! Path-dependent SHAP needs, for each edge of a tree, the *share*: the fraction of the parent's
//! training data that went to the child. If a path splits on a feature again, it also needs the
//! product of the shares of that feature's earlier edges. Neither depends on the row, so both are
//! stored with the model:
//!
//! - `share[node]`: cover of the node divided by the cover of its parent (1 at the root);
//! - `earlier_share[node]`: for a split, the product of the shares of the edges above it that
//!   belong to the same feature (1 if there are none);
//! - `earlier_edge[node]`: for a split, the lower node of the nearest of those edges, or [`NONE`].
//!
//! Nodes are numbered so that a parent precedes its children. The cover is that of the library: the
//! sum of hessians for XGBoost, the number of rows for LightGBM.
//!
//! Both children of a split without cover (a refreshed or hand-made model) have a share of 0.5, as
//! in XGBoost. A child without cover of a split with cover has share 0, for which the formulas of
//! `shap` remain exact.

use std::collections::BTreeMap;

use albacore_formats::{TreeNode, flag};

use crate::layout::ensemble::NONE;

/// Returns the children of a split; `None` for a leaf.
fn children(node: &TreeNode) -> Option<[usize; 2]> {
    let is_split = node.flags & flag::LEAF == 0;
    is_split.then_some([node.left as usize, node.right as usize])
}

/// Arrays of one tree.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PathArrays {
    /// Share of the parent's cover, per node.
    pub(crate) share: Vec<f64>,
    /// Product of the earlier shares of the same feature, per node.
    pub(crate) earlier_share: Vec<f64>,
    /// Lower node of the nearest earlier edge of the same feature, per node.
    pub(crate) earlier_edge: Vec<u32>,
    /// Maximum number of distinct features on a path from the root to a leaf.
    pub(crate) path_features: u32,
}

/// A step of the depth-first traversal of [`PathArrays::build`].
enum PathStep {
    Visit(u32),
    Enter { feature: u32, child: u32 },
    Leave { feature: u32, earlier: Option<u32> },
}

impl PathArrays {
    /// Computes the arrays of a tree from its nodes.
    pub(crate) fn build(nodes: &[TreeNode]) -> Self {
        let share = shares(nodes);
        let mut earlier_share = vec![1.0; nodes.len()];
        let mut earlier_edge = vec![NONE; nodes.len()];
        // For each node, the product of the shares of its edge's feature down to the node.
        let mut product = vec![1.0; nodes.len()];
        let mut last_edge = BTreeMap::new();
        let mut path_features = 0;
        let mut steps = vec![PathStep::Visit(0)];
        // bound: six steps per split; every child is greater than its parent.
        while let Some(step) = steps.pop() {
            match step {
                PathStep::Visit(node) => {
                    let node = node as usize;
                    let Some([left, right]) = children(&nodes[node]) else {
                        path_features = path_features.max(last_edge.len());
                        continue;
                    };
                    let feature = nodes[node].feature;
                    let earlier = last_edge.get(&feature).copied();
                    if let Some(edge) = earlier {
                        earlier_edge[node] = edge;
                        earlier_share[node] = product[edge as usize];
                    }
                    for child in [left, right] {
                        product[child] = earlier_share[node] * share[child];
                    }
                    steps.push(PathStep::Leave { feature, earlier });
                    for child in [right as u32, left as u32] {
                        steps.push(PathStep::Visit(child));
                        steps.push(PathStep::Enter { feature, child });
                    }
                }
                PathStep::Enter { feature, child } => {
                    last_edge.insert(feature, child);
                }
                PathStep::Leave { feature, earlier } => {
                    match earlier {
                        Some(edge) => last_edge.insert(feature, edge),
                        None => last_edge.remove(&feature),
                    };
                }
            }
        }
        let path_features = u32::try_from(path_features).unwrap_or(u32::MAX);
        Self {
            share,
            earlier_share,
            earlier_edge,
            path_features,
        }
    }
}

/// Returns the share of each node in its parent's cover.
fn shares(nodes: &[TreeNode]) -> Vec<f64> {
    let mut share = vec![1.0; nodes.len()];
    for node in nodes {
        let has_cover = node.cover > 0.0 && node.cover.is_finite();
        for child in children(node).into_iter().flatten() {
            share[child] = if has_cover {
                nodes[child].cover.max(0.0) / node.cover
            } else {
                0.5
            };
        }
    }
    share
}

/// Returns the expected value of a tree: its leaves, weighted by the products of the shares on
/// their paths.
pub(crate) fn expected_value(
    nodes: &[TreeNode],
    share: &[f64],
    leaf: impl Fn(usize) -> f64,
) -> f64 {
    let mut reach = share.to_vec();
    let mut sum = 0.0;
    for (node, branch) in nodes.iter().map(children).enumerate() {
        match branch {
            None => sum += reach[node] * leaf(node),
            Some(children) => {
                for child in children {
                    reach[child] *= reach[node];
                }
            }
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(feature: u32, left: u32, right: u32) -> TreeNode {
        TreeNode {
            feature,
            left,
            right,
            flags: 0,
            ..LEAF
        }
    }

    const LEAF: TreeNode = TreeNode {
        label: 0,
        flags: flag::LEAF,
        feature: 0,
        left: 0,
        right: 0,
        value: 0.0,
        cover: 0.0,
    };

    fn with_covers<const N: usize>(mut nodes: [TreeNode; N], covers: [f64; N]) -> [TreeNode; N] {
        for (node, cover) in nodes.iter_mut().zip(covers) {
            node.cover = cover;
        }
        nodes
    }

    #[test]
    fn the_shares_of_earlier_edges_of_a_feature_are_multiplied() {
        // Node 0 splits on feature 7, its left child 1 on feature 3, and node 2 below that on 7
        // again; the right child 5 splits on 7, too.
        let splits = [
            split(7, 1, 5),
            split(3, 2, 4),
            split(7, 3, 6),
            LEAF,
            LEAF,
            split(7, 7, 8),
            LEAF,
            LEAF,
            LEAF,
        ];
        let cover = [100.0, 40.0, 10.0, 4.0, 30.0, 60.0, 6.0, 15.0, 45.0];
        let nodes = with_covers(splits, cover);
        let paths = PathArrays::build(&nodes);
        assert_eq!(paths.path_features, 2);
        assert_eq!(
            paths.share,
            [1.0, 0.4, 0.25, 0.4, 0.75, 0.6, 0.6, 0.25, 0.75]
        );
        assert_eq!(paths.earlier_edge[..3], [NONE, NONE, 1]);
        assert_eq!(paths.earlier_edge[5], 5);
        assert_eq!((paths.earlier_share[2], paths.earlier_share[5]), (0.4, 0.6));
        assert!((expected_value(&nodes, &paths.share, |node| node as f64) - 6.33).abs() < 1e-12);
    }

    #[test]
    fn a_split_without_cover_gives_each_child_half_and_a_child_without_cover_zero() {
        let splits = [split(0, 1, 2), LEAF, split(1, 3, 4), LEAF, LEAF];
        let paths = PathArrays::build(&with_covers(splits, [0.0; 5]));
        assert_eq!(paths.share, [1.0, 0.5, 0.5, 0.5, 0.5]);
        let paths = PathArrays::build(&with_covers(splits, [8.0, 8.0, 0.0, 0.0, 0.0]));
        assert_eq!(paths.share, [1.0, 1.0, 0.0, 0.5, 0.5]);
        let paths = PathArrays::build(&with_covers(
            splits,
            [f64::INFINITY, -1.0, 8.0, -2.0, f64::NAN],
        ));
        assert_eq!(paths.share, [1.0, 0.5, 0.5, 0.0, 0.0]);
    }
}
