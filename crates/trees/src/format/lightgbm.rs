//! LightGBM's text: `key=value` lines, first of the model, then of each tree.
//!
//! Splits and leaves are numbered apart there: a child that is not negative is a split, a negative
//! one the complement of a leaf. Numbers are read exactly, thresholds in `f64`, as the library
//! does.

use std::str::FromStr;

use crate::error::{ModelError, excerpt};
use crate::limits::{FEATURES_MAX, GROUPS_MAX, TREES_MAX};
use crate::model::{CategorySets, Format, Model, RawNode, Tree};
use crate::transform::Transform;
use crate::view::flag;

type Read<T> = Result<T, ModelError>;

/// The decision is by category.
const DECISION_CATEGORICAL: u32 = 1;
/// Missing values go left.
const DECISION_DEFAULT_LEFT: u32 = 2;

/// Lines of the model, with their place for error messages.
struct Lines<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Lines<'a> {
    /// The next line, without its end.
    fn next(&mut self) -> Option<&'a str> {
        let rest = &self.text[self.at..];
        if rest.is_empty() {
            return None;
        }
        let length = rest.find('\n').unwrap_or(rest.len());
        self.at = (self.at + length + 1).min(self.text.len());
        Some(rest[..length].trim_end_matches('\r'))
    }

    fn error<T>(&self, reason: impl Into<String>) -> Read<T> {
        let path = "LightGBM text".to_owned();
        Err(ModelError::Syntax {
            path,
            offset: self.at,
            reason: reason.into(),
        })
    }
}

/// Fields of the model.
#[derive(Default)]
struct Header<'a> {
    version: Option<&'a str>,
    groups: Option<&'a str>,
    last_feature: Option<&'a str>,
    objective: Option<&'a str>,
    feature_names: Option<&'a str>,
    is_averaged: bool,
}

/// Fields of a tree.
#[derive(Default)]
struct TreeFields<'a> {
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

/// Reads a model.
pub(crate) fn parse(bytes: &[u8]) -> Read<Model> {
    let text = std::str::from_utf8(bytes).map_err(|error| ModelError::Syntax {
        path: "LightGBM text".to_owned(),
        offset: error.valid_up_to(),
        reason: "not UTF-8".to_owned(),
    })?;
    let mut lines = Lines { text, at: 0 };
    let mut header = Header::default();
    let mut trees = Vec::new();
    let mut is_tree = read_header(&mut lines, &mut header)?;
    // bound: each step takes the lines of a tree.
    while is_tree {
        if trees.len() >= TREES_MAX {
            return Err(ModelError::TooLarge(format!("{} trees", trees.len())));
        }
        let mut fields = TreeFields::default();
        let path = format!("Tree={}", trees.len());
        is_tree = fields
            .read(&mut lines)
            .map_err(|error| error.inside(&path))?;
        trees.push(fields.tree().map_err(|error| error.inside(&path))?);
    }
    read_trailer(&mut lines)?;
    header.finish(trees)
}

/// Reads the model's fields; says whether a tree follows.
fn read_header<'a>(lines: &mut Lines<'a>, header: &mut Header<'a>) -> Read<bool> {
    // bound: each step takes a line.
    while let Some(line) = lines.next() {
        if line.starts_with("Tree=") {
            return Ok(true);
        }
        match line.split_once('=').unwrap_or((line, "")) {
            ("end of trees", _) => return Ok(false),
            ("version", value) => put(&mut header.version, value, "version")?,
            ("num_tree_per_iteration", value) => {
                put(&mut header.groups, value, "num_tree_per_iteration")?;
            }
            ("max_feature_idx", value) => {
                put(&mut header.last_feature, value, "max_feature_idx")?;
            }
            ("objective", value) => put(&mut header.objective, value, "objective")?,
            ("feature_names", value) => put(&mut header.feature_names, value, "feature_names")?,
            ("average_output", _) => header.is_averaged = true,
            _ => {}
        }
    }
    lines.error("the file ends before 'end of trees'")
}

/// Reads over what follows the trees, which must end where it says that it ends.
fn read_trailer(lines: &mut Lines<'_>) -> Read<()> {
    let mut is_open = false;
    // bound: each step takes a line.
    while let Some(line) = lines.next() {
        match line {
            "parameters:" => is_open = true,
            "end of parameters" => is_open = false,
            _ => {}
        }
    }
    match is_open {
        false => Ok(()),
        true => lines.error("the file ends before 'end of parameters'"),
    }
}

fn put<'a>(slot: &mut Option<&'a str>, value: &'a str, key: &str) -> Read<()> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(ModelError::inconsistent(key, "the key appears twice")),
    }
}

fn number<T: FromStr>(text: &str, key: &str) -> Read<T> {
    let text = text.trim();
    let shown = excerpt(text);
    text.parse()
        .map_err(|_| ModelError::inconsistent(key, format!("'{shown}' is not a number")))
}

/// A count that must be there.
fn count(field: Option<&str>, key: &str) -> Read<usize> {
    number(
        field.ok_or_else(|| ModelError::inconsistent(key, "the key is missing"))?,
        key,
    )
}

/// A list of exactly `length` numbers.
fn list<T: FromStr>(field: Option<&str>, key: &str, length: usize) -> Read<Vec<T>> {
    let text = field.ok_or_else(|| ModelError::inconsistent(key, "the key is missing"))?;
    let numbers: Read<Vec<T>> = text
        .split_ascii_whitespace()
        .map(|item| number(item, key))
        .collect();
    let numbers = numbers?;
    if numbers.len() != length {
        let reason = format!("{} numbers where {length} are due", numbers.len());
        return Err(ModelError::inconsistent(key, reason));
    }
    Ok(numbers)
}

impl Header<'_> {
    fn finish(self, trees: Vec<Tree>) -> Read<Model> {
        let version = self.version.unwrap_or("").to_owned();
        if version != "v3" && version != "v4" {
            let shown = excerpt(&version);
            let reason = format!("LightGBM text version '{shown}': save it with LightGBM 3 or 4");
            return Err(ModelError::Unsupported(reason));
        }
        let groups = count(self.groups, "num_tree_per_iteration")?;
        let features = count(self.last_feature, "max_feature_idx")?.saturating_add(1);
        if groups > GROUPS_MAX || features > FEATURES_MAX {
            return Err(ModelError::TooLarge(format!(
                "{features} features, {groups} groups"
            )));
        }
        if groups == 0 || !trees.len().is_multiple_of(groups) {
            let reason = format!("{} trees are not iterations of {groups}", trees.len());
            return Err(ModelError::inconsistent("num_tree_per_iteration", reason));
        }
        let (objective, transform) = objective_of(self.objective.unwrap_or("custom"))?;
        let mut trees = trees;
        for (index, tree) in trees.iter_mut().enumerate() {
            tree.check_features(features)
                .map_err(|e| e.inside(&format!("Tree={index}")))?;
            tree.group = Some((index % groups) as u32);
        }
        let names = self.feature_names.unwrap_or("");
        Ok(Model {
            format: Format::LightgbmText,
            version,
            objective,
            feature_names: names.split_ascii_whitespace().map(str::to_owned).collect(),
            best_iteration: None,
            features,
            groups,
            transform,
            base: vec![0.0; groups],
            is_averaged: self.is_averaged,
            iteration_starts: (0..=trees.len())
                .step_by(groups)
                .map(|tree| tree as u32)
                .collect(),
            trees,
        })
    }
}

/// Name and transform of an objective such as `binary sigmoid:1` or `regression sqrt`.
fn objective_of(line: &str) -> Read<(String, Transform)> {
    let mut words = line.split([' ', ',']).filter(|word| !word.is_empty());
    let name = words.next().unwrap_or("custom");
    let mut sigmoid = 1.0;
    let mut is_sqrt = false;
    for word in words {
        match word.split_once(':') {
            Some(("sigmoid", value)) => sigmoid = number(value, "objective")?,
            None if word == "sqrt" => is_sqrt = true,
            _ => {}
        }
    }
    let transform = match name {
        "regression" | "regression_l1" | "quantile" | "mape" | "fair" if is_sqrt => {
            Transform::SignedSquare
        }
        "regression" | "regression_l1" | "huber" | "fair" | "quantile" | "mape" | "lambdarank"
        | "rank_xendcg" | "custom" | "none" => Transform::Identity,
        "binary" | "multiclassova" => Transform::Sigmoid(sigmoid),
        "cross_entropy" => Transform::Sigmoid(1.0),
        "cross_entropy_lambda" => Transform::Softplus,
        "multiclass" => Transform::Softmax,
        "poisson" | "gamma" | "tweedie" => Transform::Exp,
        _ => {
            let name = excerpt(name);
            let reason = format!("objective {name} is not known, so its values cannot be computed");
            return Err(ModelError::Unsupported(reason));
        }
    };
    Ok((name.to_owned(), transform))
}

impl<'a> TreeFields<'a> {
    /// Reads the tree's fields; says whether another tree follows.
    fn read(&mut self, lines: &mut Lines<'a>) -> Read<bool> {
        // bound: each step takes a line.
        while let Some(line) = lines.next() {
            if line.starts_with("Tree=") {
                return Ok(true);
            }
            if line == "end of trees" {
                return Ok(false);
            }
            let Some((key, value)) = line.split_once('=') else {
                continue;
            };
            if let Some(slot) = self.slot(key) {
                put(slot, value, key)?;
            }
        }
        lines.error("the file ends before 'end of trees'")
    }

    fn slot(&mut self, key: &str) -> Option<&mut Option<&'a str>> {
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

    fn tree(&self) -> Read<Tree> {
        if self.is_linear.is_some_and(|text| text.trim() != "0") {
            let reason =
                "linear trees (linear_tree=true): their leaves are regressions, not values";
            return Err(ModelError::Unsupported(reason.to_owned()));
        }
        let leaves = count(self.leaves, "num_leaves")?;
        let splits = leaves.saturating_sub(1);
        let values: Vec<f64> = list(self.leaf_value, "leaf_value", leaves)?;
        let sets = self.category_sets()?;
        let mut raw = self.splits(splits, sets.ends.len())?;
        // A tree of one leaf says nothing about rows; any cover will do.
        let leaf_covers = match self.leaf_count {
            Some(_) if splits > 0 => list(self.leaf_count, "leaf_count", leaves)?,
            _ => vec![0.0; leaves],
        };
        for (leaf, (&value, &cover)) in values.iter().zip(&leaf_covers).enumerate() {
            let label = leaf as u32;
            raw.push(RawNode {
                label,
                children: None,
                feature: 0,
                flags: 0,
                value,
                cover,
            });
        }
        let nodes = Tree::build(&raw)?;
        Ok(Tree {
            group: Some(0),
            depth: Tree::depth_of(&nodes),
            nodes,
            leaf_vectors: Vec::new(),
            sets,
            has_covers: splits == 0 || (self.leaf_count.is_some() && self.internal_count.is_some()),
        })
    }

    fn category_sets(&self) -> Read<CategorySets> {
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

    fn splits(&self, splits: usize, sets: usize) -> Read<Vec<RawNode>> {
        if splits == 0 {
            return Ok(Vec::new());
        }
        let feature: Vec<u32> = list(self.feature, "split_feature", splits)?;
        let threshold: Vec<f64> = list(self.threshold, "threshold", splits)?;
        let decision: Vec<u32> = list(self.decision, "decision_type", splits)?;
        let left: Vec<i64> = list(self.left, "left_child", splits)?;
        let right: Vec<i64> = list(self.right, "right_child", splits)?;
        let cover: Vec<f64> = match self.internal_count {
            Some(_) => list(self.internal_count, "internal_count", splits)?,
            None => vec![0.0; splits],
        };
        // Leaf k stands behind the splits; what does not exist is found by `Tree::build`.
        let child = |child: i64| match usize::try_from(child) {
            Ok(split) if split < splits => split,
            Ok(_) => usize::MAX,
            Err(_) => usize::try_from(!child).map_or(usize::MAX, |l| l.saturating_add(splits)),
        };
        let mut raw = Vec::with_capacity(splits);
        for split in 0..splits {
            let flags = flags_of(decision[split])?;
            let value = threshold[split];
            let is_set = value >= 0.0 && value < sets as f64 && value.fract() == 0.0;
            if flags & flag::CATEGORICAL != 0 && !is_set {
                let reason = format!("split {split} asks for set {value} of {sets}");
                return Err(ModelError::inconsistent("threshold", reason));
            }
            raw.push(RawNode {
                label: split as u32,
                children: Some((child(left[split]), child(right[split]))),
                feature: feature[split],
                flags,
                value,
                cover: cover[split],
            });
        }
        Ok(raw)
    }
}

/// LightGBM's bits: category, default side, and in the next two the kind of missing values. NaN is
/// a member of no set, so it goes right there whatever the bits say.
fn flags_of(decision: u32) -> Read<u8> {
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
            let reason = format!("kind {other} of missing values");
            return Err(ModelError::inconsistent("decision_type", reason));
        }
    }
    Ok(flags)
}
