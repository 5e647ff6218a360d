//! Categorical splits of XGBoost 1.6.0 to 1.7.2.
//!
//! These versions store a category set as a bitset of 32-bit words; a category beyond the last word
//! (or a value that is not a category) goes in the default direction. Later versions, and this
//! crate, send every value outside of the set left. Therefore the children of a split with default
//! direction right are swapped and its set is replaced by the complement within the same words.

use super::version::XgboostVersion;
use crate::error::{ModelError, ModelResult};
use crate::limits::REWRITTEN_WORDS_MAX;
use crate::tree::{CategorySets, RawNode, RawTree, Tree, TreeNode, flag};

/// Rewrites the affected splits; returns whether there were any.
pub(super) fn apply_default_direction(trees: &mut [Tree]) -> ModelResult<bool> {
    let is_affected = |node: &TreeNode| {
        let kind = node.flags & (flag::LEAF | flag::CATEGORICAL | flag::DEFAULT_LEFT);
        kind == flag::CATEGORICAL
    };
    let (mut is_changed, mut words) = (false, 0);
    for tree in trees {
        for node in tree.nodes.iter().filter(|node| is_affected(node)) {
            words += words_of(&tree.sets, node.value as usize)
                .last()
                .map_or(0, |&(word, _)| word as usize + 1);
        }
        if words > REWRITTEN_WORDS_MAX {
            let reason = "categorical splits of this version with very large categories";
            return Err(ModelError::too_large(reason));
        }
        if tree.nodes.iter().any(is_affected) {
            *tree = swap_children(tree, &is_affected)?;
            is_changed = true;
        }
    }
    Ok(is_changed)
}

fn swap_children(tree: &Tree, is_affected: &dyn Fn(&TreeNode) -> bool) -> ModelResult<Tree> {
    let mut sets = tree.sets.clone();
    let nodes = tree.nodes.iter().map(|node| {
        let is_leaf = node.flags & flag::LEAF != 0;
        let (left, right) = (node.left as usize, node.right as usize);
        let raw = RawNode {
            label: node.label,
            children: (!is_leaf).then_some((left, right)),
            feature: node.feature,
            flags: node.flags,
            value: node.value,
            cover: node.cover,
        };
        match is_affected(node) {
            true => RawNode {
                children: Some((right, left)),
                flags: node.flags | flag::DEFAULT_LEFT,
                value: complement(&mut sets, node.value as usize) as f64,
                ..raw
            },
            false => raw,
        }
    });
    Tree::build(RawTree {
        nodes: nodes.collect(),
        group: tree.group,
        leaf_vectors: tree.leaf_vectors.clone(),
        has_covers: tree.has_covers,
        sets,
    })
}

/// Returns the words of a set.
fn words_of(sets: &CategorySets, set: usize) -> &[(u32, u32)] {
    let start = set.checked_sub(1).map_or(0, |before| sets.ends[before]);
    &sets.words[start as usize..sets.ends[set] as usize]
}

/// Adds the complement of a set within its words; returns the index of the new set.
fn complement(sets: &mut CategorySets, set: usize) -> usize {
    let listed = words_of(sets, set).to_vec();
    let words = listed.last().map_or(0, |&(word, _)| word + 1);
    let mut listed = listed.into_iter().peekable();
    sets.push((0..words).map(|word| {
        let found = listed.next_if(|&(next, _)| next == word);
        (word, !found.map_or(0, |(_, bits)| bits))
    }))
}

/// Returns the notice for a model whose splits were rewritten.
pub(super) fn notice(version: XgboostVersion) -> String {
    format!(
        "its splits send categories that were not seen in training the way of missing values, as \
         XGBoost {version} does; 1.7.3 and newer send them left. For the predictions of a newer \
         XGBoost load the file with it and save it again (save_model)"
    )
}
