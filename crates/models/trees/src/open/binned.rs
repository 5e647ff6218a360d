//! Checks a binned form when an image is opened, so that kernels never index out of range.

use albacore_formats::Library;

use super::{Checked, out_of_range};
use crate::layout::binned::{
    BinColumn, BinnedView, COLUMN_CUTS, ColumnSplit, LEAF_PADDING, LEAVES_MAX, SplitFeature,
    WalkNode,
};
use crate::layout::ensemble::{EnsembleView, LeafTarget};

/// Checks the binned form of a model whose other arrays have been checked; an empty form is valid.
pub(super) fn check(view: &EnsembleView<'_>, library: Library) -> Checked<()> {
    let form = &view.binned;
    if form.splits.is_empty() && form.leaf_nodes.is_empty() {
        return match form.walk_nodes.is_empty() && form.key_planes.is_empty() {
            true => Ok(()),
            false => check_walk(view, library),
        };
    }
    check_columns(view)?;
    let leaves = form.leaf_nodes.len();
    let values = form.leaf_values.len();
    if values != 0 && (values != leaves + LEAF_PADDING || library != Library::Xgboost) {
        return out_of_range("leaf values", 0);
    }
    let leaf_f64s = form.leaf_f64s.len();
    if leaf_f64s != 0 && (leaf_f64s != leaves + LEAF_PADDING || library == Library::Xgboost) {
        return out_of_range("leaf values", 0);
    }
    let nodes = view.flags.len();
    let has_walk_nodes = !form.walk_nodes.is_empty();
    if has_walk_nodes && (form.walk_nodes.len() != nodes || values + leaf_f64s == 0) {
        return out_of_range("walk nodes", 0);
    }
    if !has_walk_nodes && !form.key_planes.is_empty() {
        return out_of_range("key planes", 0);
    }
    if has_walk_nodes {
        check_key_count(view)?;
    }
    if form.level_order.len() != form.splits.len() {
        return out_of_range("splits", 0);
    }
    if nodes != form.splits.len() + leaves || leaves != form.splits.len() + view.trees() {
        return out_of_range("splits", 0);
    }
    let (mut visited, mut depths) = (Vec::new(), Vec::new());
    for tree in 0..view.trees() {
        check_tree(view, tree, &mut visited)?;
        if has_walk_nodes {
            check_walk_nodes(view, tree, &mut depths)?;
        }
    }
    Ok(())
}

/// Checks the form of a model with larger trees, which supports only the walk kernel.
fn check_walk(view: &EnsembleView<'_>, library: Library) -> Checked<()> {
    let form = &view.binned;
    check_columns(view)?;
    check_key_count(view)?;
    let nodes = view.flags.len();
    let leaf_f64s = match library {
        Library::Xgboost => 0,
        Library::Lightgbm | Library::Sklearn => (nodes + view.trees()) / 2 + LEAF_PADDING,
    };
    let is_walk = form.walk_nodes.len() == nodes
        && form.leaf_f64s.len() == leaf_f64s
        && form.leaf_values.is_empty()
        && form.level_order.is_empty();
    if !is_walk {
        return out_of_range("walk nodes", 0);
    }
    let mut depths = Vec::new();
    (0..view.trees()).try_for_each(|tree| check_walk_nodes(view, tree, &mut depths))
}

/// Key indices have 16 bits.
fn check_key_count(view: &EnsembleView<'_>) -> Checked<()> {
    match view.key_count() > usize::from(u16::MAX) {
        true => out_of_range("key planes", 0),
        false => Ok(()),
    }
}

fn check_columns(view: &EnsembleView<'_>) -> Checked<()> {
    let form: &BinnedView<'_> = &view.binned;
    for &words in form.split_features {
        let feature = SplitFeature::from_words(words);
        let is_within = feature.feature < view.features
            && feature.first_cut + feature.cut_count <= form.cuts.len()
            && feature.table + feature.table_length() <= form.tables.len();
        if !is_within {
            return out_of_range("split features", 0);
        }
    }
    if !form.split_features.is_sorted_by(|a, b| a[0] < b[0]) {
        return out_of_range("split features", 0);
    }
    let sets = view.set_starts.len() - 1;
    for &words in form.columns {
        let column = BinColumn::from_words(words);
        let Some(&feature) = form.split_features.get(column.split_feature as usize) else {
            return out_of_range("columns", 0);
        };
        let start = column.start as usize;
        let is_within = if column.is_categorical() {
            start < sets
        } else {
            start < SplitFeature::from_words(feature).cut_count && start.is_multiple_of(COLUMN_CUTS)
        };
        if !is_within {
            return out_of_range("columns", 0);
        }
    }
    let is_sorted = form.columns.is_sorted_by_key(|words| words[0]);
    match is_sorted && form.columns.len() <= usize::from(u16::MAX) {
        true => Ok(()),
        false => out_of_range("columns", 0),
    }
}

/// Checks that every slot except the root is the child of exactly one split, which precedes it.
fn check_tree(view: &EnsembleView<'_>, tree: usize, visited: &mut Vec<bool>) -> Checked<()> {
    let form = &view.binned;
    let nodes = view.tree(tree).nodes();
    if nodes.is_multiple_of(2) || nodes >= 2 * LEAVES_MAX {
        return out_of_range("slots", tree);
    }
    let (splits, leaves) = (view.splits_of(tree), view.leaves_of(tree));
    for splits in [&form.splits[splits.clone()], &form.level_order[splits]] {
        check_splits(form, splits, tree, visited)?;
    }
    let view = view.tree(tree);
    let is_leaf = |&node: &u32| (node as usize) < nodes && view.is_leaf(node as usize);
    match form.leaf_nodes[leaves].iter().all(is_leaf) {
        true => Ok(()),
        false => out_of_range("leaves", tree),
    }
}

fn check_splits(
    form: &BinnedView<'_>,
    splits: &[ColumnSplit],
    tree: usize,
    visited: &mut Vec<bool>,
) -> Checked<()> {
    visited.clear();
    visited.resize(2 * splits.len() + 1, false);
    for (index, &[column, byte, left, right]) in splits.iter().enumerate() {
        if usize::from(column) >= form.columns.len() || usize::from(byte) >= COLUMN_CUTS {
            return out_of_range("splits", tree);
        }
        for child in [left, right].map(usize::from) {
            let is_new = visited
                .get_mut(child)
                .is_some_and(|visited| !std::mem::replace(visited, true));
            if child <= index || !is_new {
                return out_of_range("slots", tree);
            }
        }
    }
    Ok(())
}

/// Checks that children are nodes of the tree, key indices are in range, leaves have values, and a
/// walk, which takes as many steps as the tree is deep, ends at a leaf.
fn check_walk_nodes(view: &EnsembleView<'_>, tree: usize, depths: &mut Vec<u32>) -> Checked<()> {
    let form = &view.binned;
    let nodes = view.node_starts[tree] as usize..view.node_starts[tree + 1] as usize;
    let keys = view.key_count();
    if view.tree(tree).target == LeafTarget::All {
        return out_of_range("walk nodes", tree);
    }
    let (count, depth) = (nodes.len(), view.depths[tree]);
    depths.clear();
    depths.resize(count, 0);
    for (index, &words) in form.walk_nodes[nodes].iter().enumerate() {
        let node = WalkNode::from_words(words);
        let is_right = if node.left_offset == 0 {
            let leaves = form.leaf_f64s.len();
            node.key == 0 && (leaves == 0 || (node.last_left as usize) < leaves)
        } else {
            let child = index + node.left_offset;
            let own = depths[index];
            if let Some(below) = depths.get_mut(child..child + 2) {
                below.fill(own + 1);
            }
            node.key < keys && child + 1 < count && own < depth
        };
        if !is_right {
            return out_of_range("walk nodes", tree);
        }
    }
    Ok(())
}
