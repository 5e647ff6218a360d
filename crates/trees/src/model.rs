//! A model as its file describes it, checked: the value between the formats and the compiler.
//!
//! Parsers hand their trees to [`Tree::build`], which is the only way to make one: it refuses
//! cycles, shared nodes, indices outside of the tree and trees deeper than the bound, drops nodes
//! that nothing points to, and numbers the rest in pre-order. Whatever holds for a [`Tree`] after
//! that, the compiler and the engines take for granted.

use crate::error::ModelError;
use crate::limits::{DEPTH_MAX, TREE_NODES_MAX};
use crate::transform::Transform;
use crate::view::flag;

/// The library that trained a model: decides element types, comparisons and sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Library {
    /// XGBoost: rows, margins and values in `f32`.
    Xgboost,
    /// LightGBM: rows, margins and values in `f64`.
    Lightgbm,
}

/// How the bytes of a model are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// XGBoost's binary JSON (`.ubj`).
    XgboostUbjson,
    /// XGBoost's JSON (`.json`).
    XgboostJson,
    /// LightGBM's text (`.txt`).
    LightgbmText,
}

impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::XgboostUbjson => "XGBoost UBJSON",
            Self::XgboostJson => "XGBoost JSON",
            Self::LightgbmText => "LightGBM text",
        })
    }
}

/// A trained ensemble of trees.
#[derive(Debug, Clone)]
pub struct Model {
    pub(crate) format: Format,
    pub(crate) version: String,
    pub(crate) objective: String,
    pub(crate) feature_names: Vec<String>,
    pub(crate) best_iteration: Option<usize>,
    pub(crate) features: usize,
    pub(crate) groups: usize,
    pub(crate) transform: Transform,
    pub(crate) base: Vec<f64>,
    pub(crate) is_averaged: bool,
    /// First tree of each iteration, and the number of trees.
    pub(crate) iteration_starts: Vec<u32>,
    pub(crate) trees: Vec<Tree>,
}

impl Model {
    /// Reads a model; the format is found by its content.
    ///
    /// # Errors
    /// Says which field is damaged and how, or why the model is not supported.
    pub fn parse(bytes: &[u8]) -> Result<Self, ModelError> {
        crate::format::parse(bytes)
    }

    /// The library that trained the model.
    #[must_use]
    pub fn library(&self) -> Library {
        match self.format {
            Format::XgboostUbjson | Format::XgboostJson => Library::Xgboost,
            Format::LightgbmText => Library::Lightgbm,
        }
    }

    /// The format that the model was read from.
    #[must_use]
    pub fn format(&self) -> Format {
        self.format
    }

    /// The version that the file says: of the library (XGBoost) or of the format (LightGBM).
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The objective's name in its library, such as `binary:logistic`.
    #[must_use]
    pub fn objective(&self) -> &str {
        &self.objective
    }

    /// Values in a row.
    #[must_use]
    pub fn features(&self) -> usize {
        self.features
    }

    /// Names of the features; empty if the file has none.
    #[must_use]
    pub fn feature_names(&self) -> &[String] {
        &self.feature_names
    }

    /// Classes or targets: margins of a row.
    #[must_use]
    pub fn groups(&self) -> usize {
        self.groups
    }

    /// Number of trees.
    #[must_use]
    pub fn trees(&self) -> usize {
        self.trees.len()
    }

    /// Number of boosting iterations.
    #[must_use]
    pub fn iterations(&self) -> usize {
        self.iteration_starts.len().saturating_sub(1)
    }

    /// The best iteration that early stopping noted. Predictions use all iterations unless told
    /// otherwise, as the library's plain `predict` does.
    #[must_use]
    pub fn best_iteration(&self) -> Option<usize> {
        self.best_iteration
    }

    /// Whether each leaf holds one value per group (XGBoost's `multi_output_tree`).
    pub(crate) fn has_vector_leaves(&self) -> bool {
        self.trees.iter().any(|tree| tree.group.is_none())
    }
}

/// A node as a parser found it; children are indices into the parser's list.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawNode {
    pub(crate) label: u32,
    /// Left and right child of a split, `None` of a leaf.
    pub(crate) children: Option<(usize, usize)>,
    pub(crate) feature: u32,
    /// Bits of [`flag`] but [`flag::LEAF`].
    pub(crate) flags: u8,
    /// Threshold, number of the set in the tree, value of the leaf, or its place among the
    /// tree's vector leaves.
    pub(crate) value: f64,
    pub(crate) cover: f64,
}

/// A node, in pre-order; see [`TreeView`](crate::view::TreeView) for the meaning of the fields.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Node {
    pub(crate) label: u32,
    pub(crate) flags: u8,
    pub(crate) feature: u32,
    pub(crate) left: u32,
    pub(crate) right: u32,
    pub(crate) value: f64,
    pub(crate) cover: f64,
}

/// One tree, checked.
#[derive(Debug, Clone)]
pub(crate) struct Tree {
    /// The group that the leaves add to; `None`: each leaf holds one value per group.
    pub(crate) group: Option<u32>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) depth: u32,
    /// Values of vector leaves, leaf by leaf; the leaf's `value` is its place here.
    pub(crate) leaf_vectors: Vec<f64>,
    pub(crate) sets: CategorySets,
    /// Whether the file says how much training data reached the nodes.
    pub(crate) has_covers: bool,
}

/// The sets of categories that a tree's splits ask for, as sparse bits: memory goes with what the
/// file lists, not with the largest category.
#[derive(Debug, Clone, Default)]
pub(crate) struct CategorySets {
    /// End of each set in `words`.
    pub(crate) ends: Vec<u32>,
    /// Place of a word (category / 32, ascending in a set) and its bits.
    pub(crate) words: Vec<(u32, u32)>,
}

impl CategorySets {
    /// Adds a set, given its words by ascending place, and returns its number.
    pub(crate) fn push(&mut self, words: impl IntoIterator<Item = (u32, u32)>) -> usize {
        self.words
            .extend(words.into_iter().filter(|&(_, bits)| bits != 0));
        self.ends.push(self.words.len() as u32);
        self.ends.len() - 1
    }

    /// Adds a set, given its categories, and returns its number.
    pub(crate) fn push_categories(&mut self, mut categories: Vec<u32>) -> usize {
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

/// A node that waits for its number.
struct Pending {
    raw: usize,
    depth: u32,
    /// The split whose right child this is; left children follow their parent at once.
    right_of: Option<usize>,
}

impl Tree {
    /// Checks the nodes that hang together from `raw[0]` and numbers them in pre-order.
    pub(crate) fn build(raw: &[RawNode]) -> Result<Vec<Node>, ModelError> {
        if raw.is_empty() {
            return Err(ModelError::inconsistent("", "a tree without nodes"));
        }
        if raw.len() > TREE_NODES_MAX {
            return Err(ModelError::TooLarge(format!(
                "{} nodes in a tree",
                raw.len()
            )));
        }
        let mut nodes = Vec::with_capacity(raw.len());
        let mut seen = vec![false; raw.len()];
        let mut stack = vec![Pending {
            raw: 0,
            depth: 0,
            right_of: None,
        }];
        while let Some(Pending {
            raw: index,
            depth,
            right_of,
        }) = stack.pop()
        {
            if depth as usize > DEPTH_MAX {
                return Err(ModelError::TooLarge(format!("a path of {depth} steps")));
            }
            let Some(node) = raw.get(index) else {
                let reason = format!("child {index} of {} nodes", raw.len());
                return Err(ModelError::inconsistent("", reason));
            };
            // bound: every node is taken once.
            if std::mem::replace(&mut seen[index], true) {
                let reason = format!("node {index} is the child of two splits, or of itself");
                return Err(ModelError::inconsistent("", reason));
            }
            let number = nodes.len() as u32;
            if let Some(parent) = right_of {
                let parent: &mut Node = &mut nodes[parent];
                parent.right = number;
            }
            nodes.push(node.numbered(number));
            if let Some((left, right)) = node.children {
                let parent = Some(number as usize);
                stack.push(Pending {
                    raw: right,
                    depth: depth + 1,
                    right_of: parent,
                });
                stack.push(Pending {
                    raw: left,
                    depth: depth + 1,
                    right_of: None,
                });
            }
        }
        Ok(nodes)
    }

    /// Checks that no split asks for a feature outside of the rows.
    pub(crate) fn check_features(&self, features: usize) -> Result<(), ModelError> {
        match self.nodes.iter().map(|node| node.feature as usize).max() {
            Some(feature) if feature >= features => {
                let reason = format!("a split on feature {feature} of {features}");
                Err(ModelError::inconsistent("", reason))
            }
            _ => Ok(()),
        }
    }

    /// Steps from the root to the deepest leaf.
    pub(crate) fn depth_of(nodes: &[Node]) -> u32 {
        let mut depths = vec![0_u32; nodes.len()];
        for (index, node) in nodes.iter().enumerate() {
            if node.flags & flag::LEAF == 0 {
                depths[node.left as usize] = depths[index] + 1;
                depths[node.right as usize] = depths[index] + 1;
            }
        }
        depths.into_iter().max().unwrap_or(0)
    }
}

impl RawNode {
    fn numbered(&self, number: u32) -> Node {
        let is_leaf = self.children.is_none();
        Node {
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
