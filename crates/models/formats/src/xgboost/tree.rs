//! One tree of an XGBoost model: columns of a node table.

use super::count;
use crate::error::{ModelError, ModelResult};
use crate::limits::{CATEGORY_MAX, TREE_NODES_MAX};
use crate::tree::{CategorySets, RawNode, RawTree, Tree, TreeNode, check_shape, flag};
use crate::value_reader::{ValueReader, column, put_once, required};

/// Fields of a tree.
#[derive(Default)]
pub(super) struct XgboostTreeFields {
    leaf_size: Option<String>,
    left: Option<Vec<i32>>,
    right: Option<Vec<i32>>,
    split_index: Option<Vec<i32>>,
    condition: Option<Vec<f32>>,
    default_left: Option<Vec<i32>>,
    split_type: Option<Vec<i32>>,
    hessian: Option<Vec<f32>>,
    leaf_weights: Option<Vec<f32>>,
    base_weights: Option<Vec<f32>>,
    categories: Option<Vec<i32>>,
    category_nodes: Option<Vec<i32>>,
    category_starts: Option<Vec<i32>>,
    category_sizes: Option<Vec<i32>>,
}

impl XgboostTreeFields {
    pub(super) fn read<S: ValueReader>(source: &mut S) -> ModelResult<Self> {
        let mut fields = Self::default();
        source.object(&mut |source, key| match key {
            "tree_param" => source.object(&mut |source, key| match key {
                "size_leaf_vector" => put_once(&mut fields.leaf_size, source.string()?),
                _ => source.skip(),
            }),
            "left_children" => {
                put_once(&mut fields.left, source.integers(TREE_NODES_MAX)?)?;
                fields.check_shape()
            }
            "right_children" => {
                put_once(&mut fields.right, source.integers(TREE_NODES_MAX)?)?;
                fields.check_shape()
            }
            "split_indices" => put_once(&mut fields.split_index, source.integers(TREE_NODES_MAX)?),
            "split_conditions" => put_once(&mut fields.condition, source.floats(TREE_NODES_MAX)?),
            "default_left" => put_once(&mut fields.default_left, source.integers(TREE_NODES_MAX)?),
            "split_type" => put_once(&mut fields.split_type, source.integers(TREE_NODES_MAX)?),
            "sum_hessian" => put_once(&mut fields.hessian, source.floats(TREE_NODES_MAX)?),
            "leaf_weights" => put_once(&mut fields.leaf_weights, source.floats(usize::MAX)?),
            "base_weights" => put_once(&mut fields.base_weights, source.floats(usize::MAX)?),
            "categories" => put_once(&mut fields.categories, source.integers(TREE_NODES_MAX)?),
            "categories_nodes" => {
                put_once(&mut fields.category_nodes, source.integers(TREE_NODES_MAX)?)
            }
            "categories_segments" => put_once(
                &mut fields.category_starts,
                source.integers(TREE_NODES_MAX)?,
            ),
            "categories_sizes" => {
                put_once(&mut fields.category_sizes, source.integers(TREE_NODES_MAX)?)
            }
            _ => source.skip(),
        })?;
        Ok(fields)
    }

    /// Rejects cycles and excessive depth as soon as the children are known, before the rest of a
    /// large tree is read.
    fn check_shape(&self) -> ModelResult<()> {
        let (Some(left), Some(right)) = (&self.left, &self.right) else {
            return Ok(());
        };
        match left.len() == right.len() {
            true => check_shape(left.len(), &|node| children(left[node], right[node])),
            // `columns` reports the difference.
            false => Ok(()),
        }
    }

    pub(super) fn tree(self) -> ModelResult<Tree> {
        let leaf_size = count(self.leaf_size.as_deref(), "tree_param.size_leaf_vector", 1)?.max(1);
        let mut sets = CategorySets::default();
        let numbers = self.category_sets(&mut sets)?;
        let table = self.table()?;
        let rest = RawTree {
            group: (leaf_size == 1).then_some(0),
            sets,
            has_covers: self.hessian.is_some(),
            ..RawTree::default()
        };
        let node = |index: usize| table.node(index, &numbers);
        let mut tree = Tree::from_nodes(table.left.len(), &node, rest)?;
        if leaf_size > 1 {
            tree.leaf_vectors = self.leaf_vectors(&mut tree.nodes, leaf_size)?;
        }
        Ok(tree)
    }

    /// Reads the category sets in the order of `categories_nodes`; returns the node of each.
    fn category_sets(&self, sets: &mut CategorySets) -> ModelResult<Vec<(i32, usize)>> {
        let nodes = self.category_nodes.as_deref().unwrap_or_default();
        let starts = self.category_starts.as_deref().unwrap_or_default();
        let sizes = self.category_sizes.as_deref().unwrap_or_default();
        let categories = self.categories.as_deref().unwrap_or_default();
        if starts.len() != nodes.len() || sizes.len() != nodes.len() {
            let reason = "categories_segments or categories_sizes differ from it in length";
            return Err(ModelError::inconsistent("categories_nodes", reason));
        }
        // Overlapping segments could make the sets larger than the file, so their total size is
        // bounded by it.
        let total: i64 = sizes.iter().map(|&size| i64::from(size).abs()).sum();
        if total > categories.len() as i64 {
            let reason = format!(
                "the sum is {total}, but there are {} categories",
                categories.len()
            );
            return Err(ModelError::inconsistent("categories_sizes", reason));
        }
        let mut numbers = Vec::with_capacity(nodes.len());
        for ((&node, &start), &size) in nodes.iter().zip(starts).zip(sizes) {
            let set = usize::try_from(start).ok().zip(usize::try_from(size).ok());
            let members = set
                .and_then(|(start, size)| categories.get(start..start.checked_add(size)?))
                .ok_or_else(|| {
                    let reason = format!(
                        "{size} categories from {start}, but there are {}",
                        categories.len()
                    );
                    ModelError::inconsistent("categories_segments", reason)
                })?;
            let members: Option<Vec<u32>> = members
                .iter()
                .map(|&member| {
                    u32::try_from(member)
                        .ok()
                        .filter(|&member| member < CATEGORY_MAX)
                })
                .collect();
            let members = members.ok_or_else(|| {
                ModelError::inconsistent("categories", "a category is negative or not below 2^24")
            })?;
            numbers.push((node, sets.push_categories(members)));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    fn table(&self) -> ModelResult<XgboostTreeColumns<'_>> {
        let left = required(self.left.as_deref(), "left_children")?;
        let length = left.len();
        Ok(XgboostTreeColumns {
            left,
            right: column(self.right.as_deref(), "right_children", length)?,
            split_index: column(self.split_index.as_deref(), "split_indices", length)?,
            condition: column(self.condition.as_deref(), "split_conditions", length)?,
            default_left: column(self.default_left.as_deref(), "default_left", length)?,
            split_type: (self.split_type.as_deref())
                .map(|it| column(Some(it), "split_type", length))
                .transpose()?,
            hessian: (self.hessian.as_deref())
                .map(|it| column(Some(it), "sum_hessian", length))
                .transpose()?,
        })
    }

    /// Returns the leaf vectors in pre-order. Since 3.1 they are listed by leaf, and a leaf's right
    /// child is its index; before, every node has its weights.
    fn leaf_vectors(&self, nodes: &mut [TreeNode], size: usize) -> ModelResult<Vec<f64>> {
        let right = self.right.as_deref().unwrap_or_default();
        let (weights, by_leaf) = match (&self.leaf_weights, &self.base_weights) {
            (Some(weights), _) => (weights, true),
            (None, Some(weights)) => (weights, false),
            (None, None) => return required(None, "leaf_weights"),
        };
        let mut vectors = Vec::new();
        let leaves = nodes.iter_mut().filter(|node| node.flags & flag::LEAF != 0);
        for (index, leaf) in leaves.enumerate() {
            let node = leaf.label as usize;
            let row = if by_leaf {
                usize::try_from(right[node]).ok()
            } else {
                Some(node)
            };
            // Leaves that share values could need more memory than the file.
            let is_within = index.saturating_add(1).saturating_mul(size) <= weights.len();
            let values = row
                .filter(|_| is_within)
                .and_then(|row| row.checked_mul(size))
                .and_then(|start| weights.get(start..start.checked_add(size)?))
                .ok_or_else(|| {
                    let reason = format!("leaf {node} does not have {size} values");
                    ModelError::inconsistent("leaf_weights", reason)
                })?;
            vectors.extend(values.iter().copied().map(f64::from));
            leaf.value = index as f64;
        }
        Ok(vectors)
    }
}

/// Returns the children of a split; `None` for a leaf.
fn children(left: i32, right: i32) -> Option<(usize, usize)> {
    let child = |child: i32| usize::try_from(child).unwrap_or(usize::MAX);
    (left != -1).then(|| (child(left), child(right)))
}

/// Columns of a tree, of equal length.
struct XgboostTreeColumns<'a> {
    left: &'a [i32],
    right: &'a [i32],
    split_index: &'a [i32],
    condition: &'a [f32],
    default_left: &'a [i32],
    split_type: Option<&'a [i32]>,
    hessian: Option<&'a [f32]>,
}

impl XgboostTreeColumns<'_> {
    /// Returns a reachable node; deleted nodes have arbitrary values.
    fn node(&self, node: usize, sets: &[(i32, usize)]) -> ModelResult<RawNode> {
        let children = children(self.left[node], self.right[node]);
        let mut flags = flag::MISSING_NAN;
        if self.default_left[node] != 0 {
            flags |= flag::DEFAULT_LEFT;
        }
        let mut value = f64::from(self.condition[node]);
        if children.is_some() && self.split_type.is_some_and(|it| it[node] == 1) {
            flags |= flag::CATEGORICAL;
            value = set_of(sets, node)? as f64;
        }
        Ok(RawNode {
            label: node as u32,
            children,
            feature: u32::try_from(self.split_index[node]).unwrap_or(u32::MAX),
            flags,
            value,
            cover: self.hessian.map_or(0.0, |it| f64::from(it[node])),
        })
    }
}

/// Returns the set of a categorical split; `sets` is sorted by node.
fn set_of(sets: &[(i32, usize)], node: usize) -> ModelResult<usize> {
    let index = sets.binary_search_by_key(&node, |&(node, _)| usize::try_from(node).unwrap_or(0));
    match index {
        Ok(index) => Ok(sets[index].1),
        Err(_) => {
            let reason = format!("node {node} has a categorical split but no categories");
            Err(ModelError::inconsistent("categories_nodes", reason))
        }
    }
}
