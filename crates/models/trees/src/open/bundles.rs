//! Checks the bundles of a model when its image is opened, so that SHAP of one row never indexes
//! out of range.

use super::Checked;
use crate::error::ImageError;
use crate::layout::binned::LEAVES_MAX;
use crate::layout::bundles::{
    BundleHeader, BundleNode, BundlesView, EarlierEdge, InnerChildren, LANES, ScatterEntry,
};
use crate::layout::ensemble::{EnsembleView, LeafTarget, NONE};
use crate::limits::SHAP_POINTS_MAX;

/// Returns an error with the bundle index in place of a tree index, because a bundle has eight
/// trees.
fn require(is_right: bool, section: &'static str, bundle: usize) -> Checked<()> {
    match is_right {
        true => Ok(()),
        false => Err(ImageError::Range {
            section,
            tree: bundle,
        }),
    }
}

/// Checks the bundles of a model whose other arrays have been checked.
pub(super) fn check(view: &EnsembleView<'_>) -> Checked<()> {
    let form: &BundlesView<'_> = &view.bundles;
    let Some((last, bundles)) = form.headers.split_last() else {
        let lengths = [
            form.trees.len(),
            form.nodes.len(),
            form.key_tests.len(),
            form.scatter.len(),
        ];
        return require(lengths == [0; 4], "bundles", 0);
    };
    let first = BundleHeader::from_words(*bundles.first().unwrap_or(last));
    let ends = [
        form.nodes.len(),
        form.constants.len(),
        form.earlier_edges.len(),
        form.scatter.len(),
    ];
    let is_whole = starts(first) == [0; 4]
        && starts(BundleHeader::from_words(*last)) == ends
        && form.trees.len() == bundles.len()
        && form.key_tests.len() == form.nodes.len() * LANES
        && view.has_blocks()
        && view.leaf_vectors.is_empty();
    require(is_whole, "bundles", bundles.len())?;
    let keys = view.key_count();
    let is_key = |test: &[u32; 2]| (test[1] as usize) < keys;
    require(form.key_tests.iter().all(is_key), "keys of bundles", 0)?;
    // Checked for all bundles before the first use: a start is in range only if all later starts
    // are not smaller.
    for bundle in 0..form.len() {
        let (header, next) = form.headers_of(bundle);
        let mut pairs = starts(header).into_iter().zip(starts(next));
        require(pairs.all(|(start, end)| start <= end), "bundles", bundle)?;
    }
    let mut visited = vec![false; view.trees()];
    for bundle in 0..form.len() {
        check_trees(view, bundle, &mut visited)?;
        check_nodes(form, bundle)?;
        check_scatter(view, bundle)?;
    }
    Ok(())
}

fn starts(header: BundleHeader) -> [usize; 4] {
    [
        header.nodes,
        header.constants,
        header.earlier_edges,
        header.scatter,
    ]
}

/// Checks that no tree is in two lanes, and that a bundle has one scatter entry per split of its
/// trees.
fn check_trees(view: &EnsembleView<'_>, bundle: usize, visited: &mut [bool]) -> Checked<()> {
    let form = &view.bundles;
    let section = "trees of bundles";
    let mut splits = 0;
    for &tree in form.trees[bundle].iter().filter(|&&tree| tree != NONE) {
        let is_new = visited
            .get_mut(tree as usize)
            .is_some_and(|visited| !std::mem::replace(visited, true));
        require(is_new, section, bundle)?;
        let tree = tree as usize;
        require(view.tree(tree).target != LeafTarget::All, section, bundle)?;
        // Blocks of rows have the same bound.
        let path_features = view.path_features[tree].min(view.depths[tree]);
        let is_short = path_features as usize <= 2 * SHAP_POINTS_MAX;
        require(is_short, section, bundle)?;
        splits += view.splits_of(tree).len();
    }
    let (header, next) = form.headers_of(bundle);
    let entries = next.scatter - header.scatter;
    require(entries == splits, "scatter of bundles", bundle)
}

/// Checks that the nodes form one tree of the depth and number of constants in the header.
fn check_nodes(form: &BundlesView<'_>, bundle: usize) -> Checked<()> {
    let (header, next) = form.headers_of(bundle);
    let section = "nodes of bundles";
    let nodes = &form.nodes[header.nodes..next.nodes];
    let is_points = (1..=SHAP_POINTS_MAX).contains(&header.points);
    require(is_points, "points of bundles", bundle)?;
    // Number of remaining inner children of each open inner node.
    let mut pending = vec![1_u8];
    let mut constants = 0;
    for &bytes in nodes {
        let Some(remaining) = pending.last_mut().filter(|remaining| **remaining > 0) else {
            return require(false, section, bundle);
        };
        *remaining -= 1;
        require(bytes[0] <= InnerChildren::Both as u8, section, bundle)?;
        let node = BundleNode::from_bytes(bytes);
        // If the second child is a leaf in every lane, it has constants.
        let has_second = node.inner_children != InnerChildren::First || node.second_leaf_lanes != 0;
        require(has_second, section, bundle)?;
        constants += node.constant_vectors(header.points) * LANES;
        if node.inner_children != InnerChildren::Neither {
            pending.push(node.inner_children as u8);
        }
        require(pending.len() <= header.depth, "depth of bundles", bundle)?;
        // bound: the number of open nodes.
        while pending.len() > 1 && pending.last() == Some(&0) {
            pending.pop();
        }
    }
    let is_tree = pending == [0] && header.depth <= LEAVES_MAX;
    require(is_tree, section, bundle)?;
    let announced = next.constants - header.constants;
    require(constants == announced, "constants of bundles", bundle)?;
    for &word in &form.earlier_edges[header.earlier_edges..next.earlier_edges] {
        let EarlierEdge { node, upper, .. } = EarlierEdge::from_word(word);
        let are_nodes = node < nodes.len() && upper < nodes.len();
        require(are_nodes, "earlier edges of bundles", bundle)?;
    }
    Ok(())
}

/// Checks that slots are in the bundle and features are split features.
fn check_scatter(view: &EnsembleView<'_>, bundle: usize) -> Checked<()> {
    let form = &view.bundles;
    let (header, next) = form.headers_of(bundle);
    let slots = (next.nodes - header.nodes) * LANES;
    let is_right = |&word: &u32| {
        let entry = ScatterEntry::from_word(word);
        entry.slot < slots && entry.split_feature < view.binned.split_features.len()
    };
    let entries = &form.scatter[header.scatter..next.scatter];
    require(entries.iter().all(is_right), "scatter of bundles", bundle)
}
