//! One tree of a LightGBM model: lists of numbers, one entry per split or per leaf.

use super::{count, list, number};
use crate::error::{ModelError, ModelResult};
use crate::tree::{CategorySets, RawNode, RawTree, Tree, check_shape, flag};

/// The split is categorical.
const DECISION_CATEGORICAL: u32 = 1;
/// Default direction: missing values go left.
const DECISION_DEFAULT_LEFT: u32 = 2;

/// Fields of a tree.
#[derive(Default)]
pub(super) struct LightgbmTreeFields<'a> {
    leaves: Option<&'a str>,
    categorical: Option<&'a str>,
    feature: Option<&'a str>,
    threshold: Option<&'a str>,
    decision: Option<&'a str>,
    left: Option<&'a str>,
    right: Option<&'a str>,
    leaf_value: Option<&'a str>,
    leaf_count: Option<&'a str>,
    internal_count: Option<&'a str>,
    set_starts: Option<&'a str>,
    set_words: Option<&'a str>,
    is_linear: Option<&'a str>,
}

impl<'a> LightgbmTreeFields<'a> {
    pub(super) fn slot(&mut self, key: &str) -> Option<&mut Option<&'a str>> {
        Some(match key {
            "num_leaves" => &mut self.leaves,
            "num_cat" => &mut self.categorical,
            "split_feature" => &mut self.feature,
            "threshold" => &mut self.threshold,
            "decision_type" => &mut self.decision,
            "left_child" => &mut self.left,
            "right_child" => &mut self.right,
            "leaf_value" => &mut self.leaf_value,
            "leaf_count" => &mut self.leaf_count,
            "internal_count" => &mut self.internal_count,
            "cat_boundaries" => &mut self.set_starts,
            "cat_threshold" => &mut self.set_words,
            "is_linear" => &mut self.is_linear,
            _ => return None,
        })
    }

    pub(super) fn tree(&self) -> ModelResult<Tree> {
        if self.is_linear.is_some_and(|text| text.trim() != "0") {
            let reason =
                "linear trees (linear_tree=true): their leaves are regressions, not values";
            return Err(ModelError::Unsupported(reason.to_owned()));
        }
        let leaves = count(self.leaves, "num_leaves")?;
        let splits = leaves.saturating_sub(1);
        // Reject cycles and excessive depth before the rest of a large tree is read.
        let (left, right) = match splits {
            0 => (Vec::new(), Vec::new()),
            _ => (
                list(self.left, "left_child", splits)?,
                list(self.right, "right_child", splits)?,
            ),
        };
        // Leaf k follows the splits; the check rejects children that do not exist.
        let child = |child: i32| match usize::try_from(child) {
            Ok(split) if split < splits => split,
            Ok(_) => usize::MAX,
            Err(_) => usize::try_from(!child).map_or(usize::MAX, |l| l.saturating_add(splits)),
        };
        let children =
            |node: usize| (node < splits).then(|| (child(left[node]), child(right[node])));
        if leaves > 0 {
            check_shape(splits + leaves, &children)?;
        }
        let table = self.table(splits, leaves)?;
        let sets = self.category_sets()?;
        let rest = RawTree {
            group: Some(0),
            sets,
            has_covers: splits == 0 || (self.leaf_count.is_some() && self.internal_count.is_some()),
            ..RawTree::default()
        };
        let node = |index: usize| {
            Ok(RawNode {
                children: children(index),
                ..table.node(index, splits)
            })
        };
        Tree::from_nodes(splits + leaves, &node, rest)
    }

    fn category_sets(&self) -> ModelResult<CategorySets> {
        let mut sets = CategorySets::default();
        let categorical = self
            .categorical
            .map_or(Ok(0), |text| number(text, "num_cat"))?;
        if categorical == 0 {
            return Ok(sets);
        }
        let length = self
            .set_words
            .unwrap_or("")
            .split_ascii_whitespace()
            .count();
        let words: Vec<u32> = list(self.set_words, "cat_threshold", length)?;
        let starts = self.set_starts;
        let starts: Vec<usize> = list(
            starts,
            "cat_boundaries",
            usize::saturating_add(categorical, 1),
        )?;
        if starts[0] != 0 || starts[categorical] != words.len() || !starts.is_sorted() {
            let reason = format!("not an ascending list from 0 to {}", words.len());
            return Err(ModelError::inconsistent("cat_boundaries", reason));
        }
        for bounds in starts.windows(2) {
            let set = &words[bounds[0]..bounds[1]];
            sets.push((0..).zip(set.iter().copied()));
        }
        Ok(sets)
    }

    fn table(&self, splits: usize, leaves: usize) -> ModelResult<LightgbmTreeColumns> {
        let value = list(self.leaf_value, "leaf_value", leaves)?;
        if splits == 0 {
            // A tree with a single leaf has no splits, so its cover is never used.
            return Ok(LightgbmTreeColumns {
                value,
                ..LightgbmTreeColumns::default()
            });
        }
        let decision: Vec<u32> = list(self.decision, "decision_type", splits)?;
        let covers = |text: Option<&str>, key: &str, length: usize| match text {
            Some(_) => list(text, key, length),
            None => Ok(Vec::new()),
        };
        Ok(LightgbmTreeColumns {
            feature: list(self.feature, "split_feature", splits)?,
            threshold: list(self.threshold, "threshold", splits)?,
            flags: decision
                .into_iter()
                .map(flags_of)
                .collect::<ModelResult<_>>()?,
            cover: covers(self.internal_count, "internal_count", splits)?,
            leaf_cover: covers(self.leaf_count, "leaf_count", leaves)?,
            value,
        })
    }
}

/// Columns of a tree: of the splits, then of the leaves. Covers may be absent.
#[derive(Default)]
struct LightgbmTreeColumns {
    feature: Vec<u32>,
    threshold: Vec<f64>,
    flags: Vec<u8>,
    cover: Vec<f64>,
    value: Vec<f64>,
    leaf_cover: Vec<f64>,
}

impl LightgbmTreeColumns {
    /// Returns a node without its children: splits first, then leaves.
    fn node(&self, index: usize, splits: usize) -> RawNode {
        let cover = |covers: &[f64], index: usize| covers.get(index).copied().unwrap_or(0.0);
        if let Some(leaf) = index.checked_sub(splits) {
            return RawNode {
                label: leaf as u32,
                children: None,
                feature: 0,
                flags: 0,
                value: self.value[leaf],
                cover: cover(&self.leaf_cover, leaf),
            };
        }
        RawNode {
            label: index as u32,
            children: None,
            feature: self.feature[index],
            flags: self.flags[index],
            value: self.threshold[index],
            cover: cover(&self.cover, index),
        }
    }
}

/// Converts LightGBM's decision type: categorical, default left, and in the next two bits the kind
/// of missing values. NaN is not a member of any category set, so it goes right in a categorical
/// split for all values of the bits.
fn flags_of(decision: u32) -> ModelResult<u8> {
    let mut flags = flag::INCLUSIVE;
    if decision & DECISION_CATEGORICAL != 0 {
        return Ok(flags | flag::CATEGORICAL | flag::MISSING_NAN);
    }
    if decision & DECISION_DEFAULT_LEFT != 0 {
        flags |= flag::DEFAULT_LEFT;
    }
    match decision >> 2 {
        0 => {}
        1 => flags |= flag::MISSING_ZERO,
        2 => flags |= flag::MISSING_NAN,
        other => {
            let reason = format!("unknown missing type {other}");
            return Err(ModelError::inconsistent("decision_type", reason));
        }
    }
    Ok(flags)
}
