//! A checked tree with numbered nodes.
//!
//! [`Tree::build`] is the only constructor: it rejects cycles, shared nodes, indices out of range
//! and trees deeper than the bound, drops unreachable nodes, and numbers the others in pre-order,
//! so that a child's number is greater than its parent's.

use crate::error::{ModelError, ModelResult};
use crate::limits::{DEPTH_MAX, TREE_NODES_MAX};

/// Bits of [`TreeNode::flags`].
pub mod flag {
    /// The node is a leaf.
    pub const LEAF: u8 = 1;
    /// The split tests membership in a category set instead of comparing with a threshold.
    pub const CATEGORICAL: u8 = 2;
    /// Default direction: a missing value goes left.
    pub const DEFAULT_LEFT: u8 = 4;
    /// LightGBM's rule: `x <= threshold` goes left, members of the set go left, and a category is
    /// truncated towards zero before its sign is tested. Without this flag XGBoost's rule: `x <
    /// threshold` goes left, members go *right*, and a negative number is not a category.
    pub const INCLUSIVE: u8 = 8;
    /// NaN is a missing value at this split. Without this flag NaN counts as 0.
    pub const MISSING_NAN: u8 = 16;
    /// Values of magnitude up to LightGBM's zero, 1e-35, are missing values at this split.
    pub const MISSING_ZERO: u8 = 32;
}

/// A node as read from a file; children are indices into the reader's list.
#[derive(Debug, Clone, Copy)]
pub struct RawNode {
    /// Node number in the library: XGBoost's node id, LightGBM's leaf index.
    pub label: u32,
    /// Left and right child of a split; `None` for a leaf.
    pub children: Option<(usize, usize)>,
    /// Feature of the split.
    pub feature: u32,
    /// Bits of [`flag`] except [`flag::LEAF`].
    pub flags: u8,
    /// Split threshold, index of the category set in the tree, leaf value, or index of the leaf's
    /// vector in the tree's leaf vectors.
    pub value: f64,
    /// Cover: amount of training data that reached the node.
    pub cover: f64,
}

/// A node in pre-order.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TreeNode {
    /// Node number in the library.
    pub label: u32,
    /// Bits of [`flag`].
    pub flags: u8,
    /// Feature of the split; 0 for a leaf.
    pub feature: u32,
    /// Left child, which is the next node; 0 for a leaf.
    pub left: u32,
    /// Right child; 0 for a leaf.
    pub right: u32,
    /// Split threshold, index of the category set in the tree, leaf value, or index of the leaf's
    /// vector in the tree's leaf vectors.
    pub value: f64,
    /// Cover: amount of training data that reached the node.
    pub cover: f64,
}

/// A tree as read from a file.
#[derive(Debug, Clone, Default)]
pub struct RawTree {
    /// Group that the leaf values are added to; `None`: each leaf has one value per group.
    pub group: Option<u32>,
    /// Splits and leaves in any order, the root first; unreachable nodes are dropped.
    pub nodes: Vec<RawNode>,
    /// Leaf vectors, concatenated.
    pub leaf_vectors: Vec<f64>,
    /// Category sets of the categorical splits.
    pub sets: CategorySets,
    /// Whether the file contains covers.
    pub has_covers: bool,
}

#[derive(Debug, Clone)]
pub struct Tree {
    pub(crate) group: Option<u32>,
    pub(crate) nodes: Vec<TreeNode>,
    pub(crate) depth: u32,
    pub(crate) leaf_vectors: Vec<f64>,
    pub(crate) sets: CategorySets,
    pub(crate) has_covers: bool,
}

/// Category sets of a tree's splits as sparse bitsets: memory grows with the number of categories
/// listed in the file, not with the largest category.
#[derive(Debug, Clone, Default)]
pub struct CategorySets {
    /// End of each set in `words`.
    pub(crate) ends: Vec<u32>,
    /// Word index (category / 32, ascending within a set) and bits.
    pub(crate) words: Vec<(u32, u32)>,
}

impl CategorySets {
    /// Returns the end of each set in [`words`](Self::words).
    #[must_use]
    pub fn ends(&self) -> &[u32] {
        &self.ends
    }

    /// Returns the word indices (category / 32, ascending within a set) and their bits.
    #[must_use]
    pub fn words(&self) -> &[(u32, u32)] {
        &self.words
    }

    /// Adds a set given by its words in ascending order; returns its index.
    pub fn push(&mut self, words: impl IntoIterator<Item = (u32, u32)>) -> usize {
        self.words
            .extend(words.into_iter().filter(|&(_, bits)| bits != 0));
        self.ends.push(self.words.len() as u32);
        self.ends.len() - 1
    }

    /// Adds a set given by its categories; returns its index.
    pub fn push_categories(&mut self, mut categories: Vec<u32>) -> usize {
        categories.sort_unstable();
        let words: Vec<(u32, u32)> = categories
            .chunk_by(|a, b| a / 32 == b / 32)
            .map(|chunk| {
                (
                    chunk[0] / 32,
                    chunk.iter().fold(0, |bits, c| bits | 1 << (c % 32)),
                )
            })
            .collect();
        self.push(words)
    }
}

/// A node that has not been visited yet.
struct PendingNode {
    raw: usize,
    /// Parent in the reader's numbering.
    parent: usize,
    depth: u32,
    /// The parent in pre-order if this is a right child; a left child directly follows its parent.
    right_of: Option<u32>,
}

impl Tree {
    /// Checks the nodes reachable from the first and numbers them in pre-order.
    ///
    /// # Errors
    /// A node that is out of range, in a cycle, too deep, or refers to a missing category set.
    pub fn build(mut raw: RawTree) -> ModelResult<Self> {
        let nodes = std::mem::take(&mut raw.nodes);
        Self::from_nodes(nodes.len(), &|index| Ok(nodes[index]), raw)
    }

    /// Like [`build`](Self::build), with `count` nodes that are created when they are reached, so
    /// that a rejected tree uses no memory; `rest` has no nodes.
    pub(crate) fn from_nodes(
        count: usize,
        node: &dyn Fn(usize) -> ModelResult<RawNode>,
        rest: RawTree,
    ) -> ModelResult<Self> {
        let nodes = number_nodes(count, node)?;
        let sets = rest.sets.ends.len();
        for node in nodes.iter().filter(|it| it.flags & flag::LEAF == 0) {
            let label = node.label;
            if node.value.is_nan() {
                let reason = format!("the threshold of node {label} is not a number");
                return Err(ModelError::inconsistent("", reason));
            }
            let is_set = node.value >= 0.0 && node.value < sets as f64 && node.value.fract() == 0.0;
            if node.flags & flag::CATEGORICAL != 0 && !is_set {
                let reason = format!(
                    "node {label} refers to category set {}, but the tree has {sets}",
                    node.value
                );
                return Err(ModelError::inconsistent("", reason));
            }
        }
        Ok(Self {
            group: rest.group,
            depth: depth_of(&nodes),
            nodes,
            leaf_vectors: rest.leaf_vectors,
            sets: rest.sets,
            has_covers: rest.has_covers,
        })
    }

    /// Returns the group that the leaf values are added to; `None`: each leaf has one value per
    /// group.
    #[must_use]
    pub fn group(&self) -> Option<u32> {
        self.group
    }

    /// Returns the nodes in pre-order.
    #[must_use]
    pub fn nodes(&self) -> &[TreeNode] {
        &self.nodes
    }

    /// Returns the depth: the number of edges from the root to the deepest leaf.
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// Returns the leaf vectors, concatenated; a leaf's `value` is its index.
    #[must_use]
    pub fn leaf_vectors(&self) -> &[f64] {
        &self.leaf_vectors
    }

    /// Returns the category sets of the categorical splits.
    #[must_use]
    pub fn sets(&self) -> &CategorySets {
        &self.sets
    }

    /// Returns whether the file contains covers.
    #[must_use]
    pub fn has_covers(&self) -> bool {
        self.has_covers
    }

    /// Checks that no split uses a feature outside of the row.
    pub(crate) fn check_features(&self, features: usize) -> ModelResult<()> {
        match self.nodes.iter().map(|node| node.feature as usize).max() {
            Some(feature) if feature >= features => {
                let reason =
                    format!("a split on feature {feature}, but the model has {features} features");
                Err(ModelError::inconsistent("", reason))
            }
            _ => Ok(()),
        }
    }
}

/// Checks that the nodes reachable from the first form a tree within the bounds.
pub(crate) fn check_shape(
    count: usize,
    children: &dyn Fn(usize) -> Option<(usize, usize)>,
) -> ModelResult<()> {
    visit_pre_order(count, &mut |index, _| Ok(children(index)))
}

/// Numbers the nodes reachable from the first in pre-order.
fn number_nodes(
    count: usize,
    node: &dyn Fn(usize) -> ModelResult<RawNode>,
) -> ModelResult<Vec<TreeNode>> {
    let mut nodes: Vec<TreeNode> = Vec::new();
    visit_pre_order(count, &mut |index, right_of| {
        let raw = node(index)?;
        let number = nodes.len() as u32;
        if let Some(parent) = right_of {
            // The children follow their parent, and the left subtree precedes the right child.
            nodes[parent as usize].right = number;
        }
        nodes.push(raw.numbered(number));
        Ok(raw.children)
    })?;
    Ok(nodes)
}

/// Visits a node: receives its index and, for a right child, the pre-order number of its parent;
/// returns its children.
type VisitNode<'a> = dyn FnMut(usize, Option<u32>) -> ModelResult<Option<(usize, usize)>> + 'a;

/// Visits the nodes reachable from the first in pre-order.
fn visit_pre_order(count: usize, visit: &mut VisitNode<'_>) -> ModelResult<()> {
    if count == 0 {
        return Err(ModelError::inconsistent("", "a tree without nodes"));
    }
    if count > TREE_NODES_MAX {
        return Err(ModelError::too_large(format!("{count} nodes in a tree")));
    }
    let mut visited = vec![false; count];
    let mut number = 0;
    let mut stack = vec![PendingNode {
        raw: 0,
        parent: 0,
        depth: 0,
        right_of: None,
    }];
    while let Some(next) = stack.pop() {
        let (index, depth) = (next.raw, next.depth);
        if depth as usize > DEPTH_MAX {
            let reason = format!("a path of {depth} steps to node {index}");
            return Err(ModelError::too_large(reason));
        }
        if index >= count {
            let reason = format!(
                "node {}: child {index}, but the tree has {count} nodes",
                next.parent
            );
            return Err(ModelError::inconsistent("", reason));
        }
        // bound: each node is visited once.
        if std::mem::replace(&mut visited[index], true) {
            let reason = format!("node {index} is the child of two splits, or of itself");
            return Err(ModelError::inconsistent("", reason));
        }
        if let Some((left, right)) = visit(index, next.right_of)? {
            let child = |raw: usize, right_of: Option<u32>| PendingNode {
                raw,
                parent: index,
                depth: depth + 1,
                right_of,
            };
            stack.push(child(right, Some(number)));
            stack.push(child(left, None));
        }
        number += 1;
    }
    Ok(())
}

/// Returns the number of edges from the root to the deepest leaf.
fn depth_of(nodes: &[TreeNode]) -> u32 {
    let mut depths = vec![0_u32; nodes.len()];
    for (index, node) in nodes.iter().enumerate() {
        if node.flags & flag::LEAF == 0 {
            depths[node.left as usize] = depths[index] + 1;
            depths[node.right as usize] = depths[index] + 1;
        }
    }
    depths.into_iter().max().unwrap_or(0)
}

impl RawNode {
    fn numbered(&self, number: u32) -> TreeNode {
        let is_leaf = self.children.is_none();
        TreeNode {
            label: self.label,
            flags: if is_leaf {
                flag::LEAF
            } else {
                self.flags & !flag::LEAF
            },
            feature: if is_leaf { 0 } else { self.feature },
            left: if is_leaf { 0 } else { number + 1 },
            right: 0,
            value: self.value,
            cover: self.cover,
        }
    }
}
