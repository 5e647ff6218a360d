//! XGBoost models, JSON and UBJSON alike: versions 1.7 to 3.4, `gbtree` and `dart`.
//!
//! Keys come in any order, so a first pass collects fields (trees are checked and numbered as they
//! are read) and [`finish`] puts them together. Unknown keys are skipped, keys that appear twice
//! are refused.

use super::source::{Read, Source};
use crate::error::ModelError;
use crate::limits::{CATEGORY_MAX, FEATURES_MAX, GROUPS_MAX, TREES_MAX};
use crate::model::{CategorySets, Format, Model, Node, RawNode, Tree};
use crate::transform::Transform;
use crate::view::flag;

/// Fields of the file, as far as they matter.
#[derive(Default)]
struct Fields {
    version: Option<Vec<i32>>,
    best_iteration: Option<String>,
    feature_names: Option<Vec<String>>,
    booster: Option<String>,
    weight_drop: Option<Vec<f32>>,
    parallel_trees: Option<String>,
    tree_info: Option<Vec<i32>>,
    iteration_starts: Option<Vec<i32>>,
    trees: Option<Vec<Tree>>,
    base_score: Option<String>,
    classes: Option<String>,
    targets: Option<String>,
    features: Option<String>,
    objective: Option<String>,
}

/// Reads a model.
pub(crate) fn parse<S: Source>(source: &mut S, format: Format) -> Read<Model> {
    let mut fields = Fields::default();
    source.object(&mut |source, key| match key {
        "learner" => fields.learner(source),
        "version" => put(&mut fields.version, source.integers()?),
        _ => source.skip(),
    })?;
    source.finish()?;
    fields.finish(format)
}

/// Keeps the value of a key that may appear once.
fn put<T>(slot: &mut Option<T>, value: T) -> Read<()> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(ModelError::inconsistent("", "the key appears twice")),
    }
}

fn required<T>(slot: Option<T>, path: &str) -> Read<T> {
    slot.ok_or_else(|| ModelError::inconsistent(path, "the key is missing"))
}

/// A parameter that the file holds as text; absent means `default`.
fn count(text: Option<&str>, path: &str, default: usize) -> Read<usize> {
    let Some(text) = text else { return Ok(default) };
    text.parse()
        .map_err(|_| ModelError::inconsistent(path, format!("'{text}' is not a count")))
}

impl Fields {
    fn learner<S: Source>(&mut self, source: &mut S) -> Read<()> {
        source.object(&mut |source, key| match key {
            "attributes" => source.object(&mut |source, key| match key {
                "best_iteration" => put(&mut self.best_iteration, source.string()?),
                _ => source.skip(),
            }),
            "feature_names" => {
                let mut names = Vec::new();
                source.array(&mut |source, _| {
                    names.push(source.string()?);
                    Ok(())
                })?;
                put(&mut self.feature_names, names)
            }
            "gradient_booster" => self.booster(source),
            "learner_model_param" => source.object(&mut |source, key| match key {
                "base_score" => put(&mut self.base_score, source.string()?),
                "num_class" => put(&mut self.classes, source.string()?),
                "num_target" => put(&mut self.targets, source.string()?),
                "num_feature" => put(&mut self.features, source.string()?),
                _ => source.skip(),
            }),
            "objective" => source.object(&mut |source, key| match key {
                "name" => put(&mut self.objective, source.string()?),
                _ => source.skip(),
            }),
            _ => source.skip(),
        })
    }

    /// `dart` wraps the fields of `gbtree` up to 3.3; 3.4 keeps its weights inside `model`.
    fn booster<S: Source>(&mut self, source: &mut S) -> Read<()> {
        source.object(&mut |source, key| match key {
            "name" => put(&mut self.booster, source.string()?),
            "model" => self.model(source),
            "gbtree" => source.object(&mut |source, key| match key {
                "model" => self.model(source),
                _ => source.skip(),
            }),
            "weight_drop" => put(&mut self.weight_drop, source.floats()?),
            _ => source.skip(),
        })
    }

    fn model<S: Source>(&mut self, source: &mut S) -> Read<()> {
        source.object(&mut |source, key| match key {
            "gbtree_model_param" => source.object(&mut |source, key| match key {
                "num_parallel_tree" => put(&mut self.parallel_trees, source.string()?),
                _ => source.skip(),
            }),
            "tree_info" => put(&mut self.tree_info, source.integers()?),
            "iteration_indptr" => put(&mut self.iteration_starts, source.integers()?),
            "weight_drop" => put(&mut self.weight_drop, source.floats()?),
            "trees" => {
                let mut trees = Vec::new();
                source.array(&mut |source, index| {
                    if index >= TREES_MAX {
                        return Err(ModelError::TooLarge(format!("{index} trees")));
                    }
                    trees.push(TreeFields::read(source)?.tree()?);
                    Ok(())
                })?;
                put(&mut self.trees, trees)
            }
            _ => source.skip(),
        })
    }

    fn finish(self, format: Format) -> Read<Model> {
        let booster = required(self.booster, "learner.gradient_booster.name")?;
        if booster != "gbtree" && booster != "dart" {
            let reason = format!("booster {booster} is not a tree model");
            return Err(ModelError::Unsupported(reason));
        }
        let param = "learner.learner_model_param";
        let features = count(self.features.as_deref(), &format!("{param}.num_feature"), 0)?;
        let classes = count(self.classes.as_deref(), &format!("{param}.num_class"), 0)?;
        let targets = count(self.targets.as_deref(), &format!("{param}.num_target"), 0)?;
        let groups = classes.max(targets).max(1);
        if features > FEATURES_MAX || groups > GROUPS_MAX {
            let reason = format!("{features} features, {groups} groups");
            return Err(ModelError::TooLarge(reason));
        }
        if features == 0 {
            let path = format!("{param}.num_feature");
            return Err(ModelError::inconsistent(path, "a model without features"));
        }
        let objective = required(self.objective, "learner.objective.name")?;
        let (transform, link) = objective_of(&objective)?;
        let base_score = required(self.base_score, &format!("{param}.base_score"))?;
        let base = base_margins(&base_score, link, groups)?;

        let at = "learner.gradient_booster.model";
        let mut trees = required(self.trees, &format!("{at}.trees"))?;
        check_trees(&trees, features, groups).map_err(|error| error.inside(at))?;
        let tree_info = required(self.tree_info, &format!("{at}.tree_info"))?;
        assign_groups(&mut trees, &tree_info, groups).map_err(|error| error.inside(at))?;
        if let Some(weights) = self.weight_drop {
            fold_weights(&mut trees, &weights).map_err(|error| error.inside(at))?;
        }
        let parallel = count(self.parallel_trees.as_deref(), "num_parallel_tree", 1)?.max(1);
        let iteration_starts = match self.iteration_starts {
            Some(starts) => given_starts(&starts, trees.len()),
            None => derived_starts(&trees, parallel, groups),
        }
        .map_err(|error| error.inside(at))?;
        Ok(Model {
            format,
            version: dotted(&self.version.unwrap_or_default()),
            objective,
            feature_names: self.feature_names.unwrap_or_default(),
            best_iteration: self.best_iteration.and_then(|text| text.parse().ok()),
            features,
            groups,
            transform,
            base,
            is_averaged: false,
            iteration_starts,
            trees,
        })
    }
}

fn dotted(version: &[i32]) -> String {
    version
        .iter()
        .map(i32::to_string)
        .collect::<Vec<_>>()
        .join(".")
}

/// How a base score becomes a base margin.
#[derive(Clone, Copy)]
enum Link {
    Identity,
    Logit,
    Log,
}

/// What an objective does to margins and to base scores.
fn objective_of(name: &str) -> Read<(Transform, Link)> {
    Ok(match name {
        "reg:squarederror"
        | "reg:linear"
        | "reg:squaredlogerror"
        | "reg:absoluteerror"
        | "reg:quantileerror"
        | "reg:pseudohubererror"
        | "binary:logitraw"
        | "rank:pairwise"
        | "rank:ndcg"
        | "rank:map" => (Transform::Identity, Link::Identity),
        "binary:logistic" | "reg:logistic" => (Transform::Sigmoid(1.0), Link::Logit),
        "count:poisson" | "reg:gamma" | "reg:tweedie" | "survival:cox" | "survival:aft" => {
            (Transform::Exp, Link::Log)
        }
        "multi:softprob" => (Transform::Softmax, Link::Identity),
        "multi:softmax" => (Transform::Argmax, Link::Identity),
        "binary:hinge" => (Transform::Step, Link::Identity),
        _ => {
            let reason = format!("objective {name} is not known, so its values cannot be computed");
            return Err(ModelError::Unsupported(reason));
        }
    })
}

/// Base margins from `5E-1` or `[5E-1]` or `[5E-1,2.5E-1]`.
fn base_margins(text: &str, link: Link, groups: usize) -> Read<Vec<f64>> {
    let path = "learner.learner_model_param.base_score";
    let list = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(text);
    let mut margins = Vec::new();
    for item in list.split(',').take(groups + 1) {
        let score: f32 = item.trim().parse().map_err(|_| {
            ModelError::inconsistent(path, format!("'{text}' is not a number or a list of them"))
        })?;
        let margin = match link {
            Link::Identity => score,
            Link::Logit => -((1.0 / score - 1.0) as f64).ln() as f32,
            Link::Log => f64::from(score).ln() as f32,
        };
        margins.push(f64::from(margin));
    }
    if margins.len() == 1 {
        margins.resize(groups, margins[0]);
    }
    if margins.len() != groups {
        let reason = format!("{} scores for {groups} groups", list.split(',').count());
        return Err(ModelError::inconsistent(path, reason));
    }
    Ok(margins)
}

/// Checks what trees say about the model: features, width of leaves.
fn check_trees(trees: &[Tree], features: usize, groups: usize) -> Read<()> {
    for (index, tree) in trees.iter().enumerate() {
        let path = format!("trees[{index}]");
        tree.check_features(features)
            .map_err(|error| error.inside(&path))?;
        let leaves = tree
            .nodes
            .iter()
            .filter(|node| node.flags & flag::LEAF != 0)
            .count();
        let is_vector = tree.group.is_none();
        if is_vector && tree.leaf_vectors.len() != leaves * groups {
            let reason = format!(
                "{} leaf values for {leaves} leaves of {groups} groups",
                tree.leaf_vectors.len()
            );
            return Err(ModelError::inconsistent(path, reason));
        }
        if is_vector != trees[0].group.is_none() {
            return Err(ModelError::inconsistent(
                path,
                "vector leaves in some trees only",
            ));
        }
    }
    Ok(())
}

fn assign_groups(trees: &mut [Tree], tree_info: &[i32], groups: usize) -> Read<()> {
    if tree_info.len() != trees.len() {
        let reason = format!("{} entries for {} trees", tree_info.len(), trees.len());
        return Err(ModelError::inconsistent("tree_info", reason));
    }
    for (index, (tree, &info)) in trees.iter_mut().zip(tree_info).enumerate() {
        let group = u32::try_from(info)
            .ok()
            .filter(|&group| (group as usize) < groups);
        let Some(group) = group else {
            let reason = format!("group {info} of {groups}");
            return Err(ModelError::inconsistent(
                format!("tree_info[{index}]"),
                reason,
            ));
        };
        tree.group = tree.group.map(|_| group);
    }
    Ok(())
}

/// DART: each leaf value is multiplied by its tree's weight, in `f32` as the library does.
fn fold_weights(trees: &mut [Tree], weights: &[f32]) -> Read<()> {
    if weights.len() != trees.len() {
        let reason = format!("{} weights for {} trees", weights.len(), trees.len());
        return Err(ModelError::inconsistent("weight_drop", reason));
    }
    for (tree, &weight) in trees.iter_mut().zip(weights) {
        let fold = |value: &mut f64| *value = f64::from(weight * *value as f32);
        tree.leaf_vectors.iter_mut().for_each(fold);
        if tree.group.is_some() {
            let leaves = tree
                .nodes
                .iter_mut()
                .filter(|node| node.flags & flag::LEAF != 0);
            leaves.for_each(|leaf| fold(&mut leaf.value));
        }
    }
    Ok(())
}

fn given_starts(starts: &[i32], trees: usize) -> Read<Vec<u32>> {
    let ends = (starts.first().copied(), starts.last().copied());
    let is_whole = ends == (Some(0), i32::try_from(trees).ok());
    if !is_whole || !starts.is_sorted() {
        let reason = format!("not an ascending list from 0 to {trees}");
        return Err(ModelError::inconsistent("iteration_indptr", reason));
    }
    Ok(starts.iter().map(|&start| start as u32).collect())
}

/// Versions before 2 do not list the iterations: each has one forest per group.
fn derived_starts(trees: &[Tree], parallel: usize, groups: usize) -> Read<Vec<u32>> {
    let is_vector = trees.first().is_some_and(|tree| tree.group.is_none());
    let step = parallel.saturating_mul(if is_vector { 1 } else { groups });
    if !trees.len().is_multiple_of(step) {
        let reason = format!("{} trees are not iterations of {step}", trees.len());
        return Err(ModelError::inconsistent("trees", reason));
    }
    Ok((0..=trees.len())
        .step_by(step)
        .map(|start| start as u32)
        .collect())
}

/// Fields of a tree.
#[derive(Default)]
struct TreeFields {
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

impl TreeFields {
    fn read<S: Source>(source: &mut S) -> Read<Self> {
        let mut fields = Self::default();
        source.object(&mut |source, key| match key {
            "tree_param" => source.object(&mut |source, key| match key {
                "size_leaf_vector" => put(&mut fields.leaf_size, source.string()?),
                _ => source.skip(),
            }),
            "left_children" => put(&mut fields.left, source.integers()?),
            "right_children" => put(&mut fields.right, source.integers()?),
            "split_indices" => put(&mut fields.split_index, source.integers()?),
            "split_conditions" => put(&mut fields.condition, source.floats()?),
            "default_left" => put(&mut fields.default_left, source.integers()?),
            "split_type" => put(&mut fields.split_type, source.integers()?),
            "sum_hessian" => put(&mut fields.hessian, source.floats()?),
            "leaf_weights" => put(&mut fields.leaf_weights, source.floats()?),
            "base_weights" => put(&mut fields.base_weights, source.floats()?),
            "categories" => put(&mut fields.categories, source.integers()?),
            "categories_nodes" => put(&mut fields.category_nodes, source.integers()?),
            "categories_segments" => put(&mut fields.category_starts, source.integers()?),
            "categories_sizes" => put(&mut fields.category_sizes, source.integers()?),
            _ => source.skip(),
        })?;
        Ok(fields)
    }

    fn tree(self) -> Read<Tree> {
        let leaf_size = count(self.leaf_size.as_deref(), "tree_param.size_leaf_vector", 1)?.max(1);
        let mut tree = Tree {
            group: (leaf_size == 1).then_some(0),
            nodes: Vec::new(),
            depth: 0,
            leaf_vectors: Vec::new(),
            sets: CategorySets::default(),
            has_covers: self.hessian.is_some(),
        };
        let sets = self.category_sets(&mut tree.sets)?;
        let raw = self.raw_nodes(&sets)?;
        tree.nodes = Tree::build(&raw)?;
        tree.depth = Tree::depth_of(&tree.nodes);
        if leaf_size > 1 {
            tree.leaf_vectors = self.leaf_vectors(&mut tree.nodes, leaf_size)?;
        }
        Ok(tree)
    }

    /// The sets in the order of `categories_nodes`, with the node of each.
    fn category_sets(&self, sets: &mut CategorySets) -> Read<Vec<(i32, usize)>> {
        let nodes = self.category_nodes.as_deref().unwrap_or_default();
        let starts = self.category_starts.as_deref().unwrap_or_default();
        let sizes = self.category_sizes.as_deref().unwrap_or_default();
        let categories = self.categories.as_deref().unwrap_or_default();
        if starts.len() != nodes.len() || sizes.len() != nodes.len() {
            let reason = "categories_segments or categories_sizes differ from it in length";
            return Err(ModelError::inconsistent("categories_nodes", reason));
        }
        // Segments that overlap could make sets larger than the file: their sum is bounded by it.
        let total: i64 = sizes.iter().map(|&size| i64::from(size).abs()).sum();
        if total > categories.len() as i64 {
            let reason = format!("{total} in sum, of {} categories", categories.len());
            return Err(ModelError::inconsistent("categories_sizes", reason));
        }
        let mut numbers = Vec::with_capacity(nodes.len());
        for ((&node, &start), &size) in nodes.iter().zip(starts).zip(sizes) {
            let set = usize::try_from(start).ok().zip(usize::try_from(size).ok());
            let members = set
                .and_then(|(start, size)| categories.get(start..start.checked_add(size)?))
                .ok_or_else(|| {
                    let reason = format!("{size} from {start} of {}", categories.len());
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
                ModelError::inconsistent("categories", "a category below 0 or above 2^24")
            })?;
            numbers.push((node, sets.push_categories(members)));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    fn raw_nodes(&self, sets: &[(i32, usize)]) -> Read<Vec<RawNode>> {
        let left = column(self.left.as_deref(), "left_children", None)?;
        let length = Some(left.len());
        let right = column(self.right.as_deref(), "right_children", length)?;
        let split_index = column(self.split_index.as_deref(), "split_indices", length)?;
        let condition = column(self.condition.as_deref(), "split_conditions", length)?;
        let default_left = column(self.default_left.as_deref(), "default_left", length)?;
        let split_type = self.split_type.as_deref();
        let split_type = split_type
            .map(|it| column(Some(it), "split_type", length))
            .transpose()?;
        let hessian = self.hessian.as_deref();
        let hessian = hessian
            .map(|it| column(Some(it), "sum_hessian", length))
            .transpose()?;
        let mut raw = Vec::with_capacity(left.len());
        for node in 0..left.len() {
            // Deleted nodes hold anything; what of it can be reached is checked by `Tree::build`.
            let is_leaf = left[node] == -1;
            let child = |child: i32| usize::try_from(child).unwrap_or(usize::MAX);
            let mut flags = flag::MISSING_NAN;
            if default_left[node] != 0 {
                flags |= flag::DEFAULT_LEFT;
            }
            let mut value = f64::from(condition[node]);
            if !is_leaf && split_type.is_some_and(|it| it[node] == 1) {
                flags |= flag::CATEGORICAL;
                value = set_of(sets, node)? as f64;
            }
            raw.push(RawNode {
                label: node as u32,
                children: (!is_leaf).then(|| (child(left[node]), child(right[node]))),
                feature: u32::try_from(split_index[node]).unwrap_or(u32::MAX),
                flags,
                value,
                cover: hessian.map_or(0.0, |it| f64::from(it[node])),
            });
        }
        Ok(raw)
    }

    /// The values of the leaves in pre-order. From 3.1 on they are listed by leaf and a leaf's right
    /// child is its place there; before, every node has its weights.
    fn leaf_vectors(&self, nodes: &mut [Node], size: usize) -> Read<Vec<f64>> {
        let right = self.right.as_deref().unwrap_or_default();
        let (weights, by_leaf) = match (&self.leaf_weights, &self.base_weights) {
            (Some(weights), _) => (weights, true),
            (None, Some(weights)) => (weights, false),
            (None, None) => return required(None, "leaf_weights"),
        };
        let mut vectors = Vec::new();
        let leaves = nodes.iter_mut().filter(|node| node.flags & flag::LEAF != 0);
        for (place, leaf) in leaves.enumerate() {
            let node = leaf.label as usize;
            let row = if by_leaf {
                usize::try_from(right[node]).ok()
            } else {
                Some(node)
            };
            // Leaves that share their values could make more of them than the file holds.
            let is_within = place.saturating_add(1).saturating_mul(size) <= weights.len();
            let values = row
                .filter(|_| is_within)
                .and_then(|row| row.checked_mul(size))
                .and_then(|start| weights.get(start..start.checked_add(size)?))
                .ok_or_else(|| {
                    let reason = format!("no {size} values for leaf {node}");
                    ModelError::inconsistent("leaf_weights", reason)
                })?;
            vectors.extend(values.iter().copied().map(f64::from));
            leaf.value = place as f64;
        }
        Ok(vectors)
    }
}

/// A column of the tree's table, of the length of the others.
fn column<'a, T>(column: Option<&'a [T]>, name: &str, length: Option<usize>) -> Read<&'a [T]> {
    let column = required(column, name)?;
    match length {
        Some(length) if column.len() != length => {
            let reason = format!("{} entries for {length} nodes", column.len());
            Err(ModelError::inconsistent(name, reason))
        }
        _ => Ok(column),
    }
}

/// The set of a categorical split; `sets` is sorted by node.
fn set_of(sets: &[(i32, usize)], node: usize) -> Read<usize> {
    let place = sets.binary_search_by_key(&node, |&(node, _)| usize::try_from(node).unwrap_or(0));
    match place {
        Ok(place) => Ok(sets[place].1),
        Err(_) => {
            let reason = format!("node {node} is split by category but has none");
            Err(ModelError::inconsistent("categories_nodes", reason))
        }
    }
}
