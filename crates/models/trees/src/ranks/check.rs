//! Checks a rank form when an image is opened: after that no kernel meets an index out of range.

use super::{Asked, COLUMN_CUTS, Column, LEAF_PADDING, LEAVES_MAX, RankView, Split};
use crate::error::ImageError;
use crate::view::{EnsembleView, Target, flag};
use albacore_formats::Library;

type Checked<T> = Result<T, ImageError>;

fn out_of_range<T>(section: &'static str, tree: usize) -> Checked<T> {
    Err(ImageError::Range { section, tree })
}

/// Checks the form of a model whose other arrays have been checked; an empty one is right.
pub(crate) fn check(view: &EnsembleView<'_>, library: Library) -> Checked<()> {
    let form = &view.ranks;
    if form.splits.is_empty() && form.leaf_nodes.is_empty() {
        return match form.steps.is_empty() && form.planes.is_empty() {
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
    let doubles = form.leaf_doubles.len();
    if doubles != 0 && (doubles != leaves + LEAF_PADDING || library == Library::Xgboost) {
        return out_of_range("leaf values", 0);
    }
    let nodes = view.flags.len();
    let has_steps = !form.steps.is_empty();
    if has_steps && (form.steps.len() != nodes || values + doubles == 0) {
        return out_of_range("steps", 0);
    }
    if !has_steps && !form.planes.is_empty() {
        return out_of_range("planes", 0);
    }
    if has_steps {
        check_keys(view)?;
    }
    if form.levels.len() != form.splits.len() {
        return out_of_range("splits", 0);
    }
    if nodes != form.splits.len() + leaves || leaves != form.splits.len() + view.trees() {
        return out_of_range("splits", 0);
    }
    let (mut seen, mut depths) = (Vec::new(), Vec::new());
    for tree in 0..view.trees() {
        check_tree(view, tree, &mut seen)?;
        if has_steps {
            check_steps(view, tree, &mut depths)?;
        }
    }
    Ok(())
}

/// Checks the form of a model with trees of more leaves, which can be walked only.
fn check_walk(view: &EnsembleView<'_>, library: Library) -> Checked<()> {
    let form = &view.ranks;
    check_columns(view)?;
    check_keys(view)?;
    let nodes = view.flags.len();
    let doubles = match library {
        Library::Xgboost => 0,
        Library::Lightgbm | Library::Sklearn => (nodes + view.trees()) / 2 + LEAF_PADDING,
    };
    let is_walk = form.steps.len() == nodes
        && form.leaf_doubles.len() == doubles
        && form.leaf_values.is_empty()
        && form.levels.is_empty();
    if !is_walk {
        return out_of_range("steps", 0);
    }
    let mut depths = Vec::new();
    (0..view.trees()).try_for_each(|tree| check_steps(view, tree, &mut depths))
}

/// Places of keys are 16 bits.
fn check_keys(view: &EnsembleView<'_>) -> Checked<()> {
    match view.key_count() > usize::from(u16::MAX) {
        true => out_of_range("planes", 0),
        false => Ok(()),
    }
}

fn check_columns(view: &EnsembleView<'_>) -> Checked<()> {
    let form: &RankView<'_> = &view.ranks;
    for &words in form.asked {
        let asked = Asked::of_words(words);
        let is_within = asked.feature < view.features
            && asked.cuts + asked.count <= form.cuts.len()
            && asked.table + asked.table_length() <= form.tables.len();
        if !is_within {
            return out_of_range("asked features", 0);
        }
    }
    if !form.asked.is_sorted_by(|a, b| a[0] < b[0]) {
        return out_of_range("asked features", 0);
    }
    let sets = view.set_starts.len() - 1;
    for &words in form.columns {
        let column = Column::of_words(words);
        let Some(&asked) = form.asked.get(column.asked as usize) else {
            return out_of_range("columns", 0);
        };
        let start = column.start as usize;
        let is_within = if column.has(flag::CATEGORICAL) {
            start < sets
        } else {
            start < Asked::of_words(asked).count && start.is_multiple_of(COLUMN_CUTS)
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

/// Checks that every slot but the root is the child of one split, which comes before it.
fn check_tree(view: &EnsembleView<'_>, tree: usize, seen: &mut Vec<bool>) -> Checked<()> {
    let form = &view.ranks;
    let nodes = view.tree(tree).nodes();
    if nodes.is_multiple_of(2) || nodes >= 2 * LEAVES_MAX {
        return out_of_range("slots", tree);
    }
    let (splits, leaves) = (view.splits_of(tree), view.leaves_of(tree));
    for splits in [&form.splits[splits.clone()], &form.levels[splits]] {
        check_splits(form, splits, tree, seen)?;
    }
    let view = view.tree(tree);
    let is_leaf = |&node: &u32| (node as usize) < nodes && view.is_leaf(node as usize);
    match form.leaf_nodes[leaves].iter().all(is_leaf) {
        true => Ok(()),
        false => out_of_range("leaves", tree),
    }
}

fn check_splits(
    form: &RankView<'_>,
    splits: &[Split],
    tree: usize,
    seen: &mut Vec<bool>,
) -> Checked<()> {
    seen.clear();
    seen.resize(2 * splits.len() + 1, false);
    for (index, &[column, byte, left, right]) in splits.iter().enumerate() {
        if usize::from(column) >= form.columns.len() || usize::from(byte) >= COLUMN_CUTS {
            return out_of_range("splits", tree);
        }
        for child in [left, right].map(usize::from) {
            let is_new = seen
                .get_mut(child)
                .is_some_and(|seen| !std::mem::replace(seen, true));
            if child <= index || !is_new {
                return out_of_range("slots", tree);
            }
        }
    }
    Ok(())
}

/// Checks that ways lead to nodes of the tree, columns are among the keys, leaves have values, and
/// that the walk, which takes as many steps as the tree is deep, ends at a leaf.
fn check_steps(view: &EnsembleView<'_>, tree: usize, depths: &mut Vec<u32>) -> Checked<()> {
    let form = &view.ranks;
    let nodes = view.node_starts[tree] as usize..view.node_starts[tree + 1] as usize;
    let keys = view.key_count();
    if view.tree(tree).target == Target::All {
        return out_of_range("steps", tree);
    }
    let (count, depth) = (nodes.len(), view.depths[tree]);
    depths.clear();
    depths.resize(count, 0);
    for (index, &[word, place]) in form.steps[nodes].iter().enumerate() {
        let (column, way) = ((place & 0xffff) as usize, (place >> 16) as usize);
        let is_right = if way == 0 {
            let leaves = form.leaf_doubles.len();
            column == 0 && (leaves == 0 || (word as usize) < leaves)
        } else {
            let child = index + way;
            let own = depths[index];
            if let Some(below) = depths.get_mut(child..child + 2) {
                below.fill(own + 1);
            }
            column < keys && child + 1 < count && own < depth
        };
        if !is_right {
            return out_of_range("steps", tree);
        }
    }
    Ok(())
}
