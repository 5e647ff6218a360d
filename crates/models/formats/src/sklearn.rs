//! scikit-learn's trees: the JSON that `scripts/sklearn_to_json.py` writes from an estimator, run
//! in the user's own Python.
//!
//! For a LightGBM estimator the file contains its classes and the text of its booster, which is
//! parsed as LightGBM text.
//!
//! The first key is `scikit_learn`, with the library's version. Numbers are `f64` with as many
//! digits as needed. Forests and gradient boosting compare rows rounded to `f32` with thresholds in
//! `f64`; here the rounding is moved into the threshold ([`before_rounding`]), so that the engine
//! compares rows without rounding.

use crate::error::{ModelError, ModelResult, excerpt};
use crate::json::JsonReader;
use crate::lightgbm;
use crate::limits::{FEATURES_MAX, GROUPS_MAX, TREE_NODES_MAX, TREES_MAX};
use crate::model::{Format, Model, ModelParts};
use crate::transform::Transform;
use crate::tree::{CategorySets, RawNode, RawTree, Tree, check_shape, flag};
use crate::value_reader::{ValueReader, column, put_once, required};

/// Fields of the file.
#[derive(Default)]
struct SklearnFields {
    version: Option<String>,
    estimator: Option<String>,
    transform: Option<String>,
    feature_names: Vec<String>,
    /// Class labels of a classifier.
    classes: Option<Vec<String>>,
    /// Features, groups, trees per iteration; 1 if rows are rounded, 1 if values are means.
    counts: Option<Vec<i32>>,
    base: Option<Vec<f64>>,
    trees: Option<Vec<SklearnTreeFields>>,
    /// Text of the booster of a LightGBM estimator; then only the classes follow.
    lightgbm: Option<String>,
}

/// Columns of a tree's node table. Both children of a leaf are -1.
#[derive(Default)]
struct SklearnTreeFields {
    left: Option<Vec<i32>>,
    right: Option<Vec<i32>>,
    feature: Option<Vec<i32>>,
    missing_left: Option<Vec<i32>>,
    threshold: Option<Vec<f64>>,
    cover: Option<Vec<f64>>,
    /// One value per node, or one per node and group.
    value: Option<Vec<f64>>,
}

pub(crate) fn parse(bytes: &[u8]) -> ModelResult<Model> {
    let mut reader = JsonReader::new(bytes);
    let mut fields = SklearnFields::default();
    reader.object(&mut |source, key| fields.field(source, key))?;
    reader.finish()?;
    fields.finish()
}

impl SklearnFields {
    fn field(&mut self, source: &mut JsonReader<'_>, key: &str) -> ModelResult<()> {
        match key {
            "scikit_learn" => put_once(&mut self.version, source.string()?),
            "estimator" => put_once(&mut self.estimator, source.string()?),
            "transform" => put_once(&mut self.transform, source.string()?),
            "feature_names" => source.array(&mut |source, _| {
                self.feature_names.push(source.string()?);
                Ok(())
            }),
            "classes" => {
                let mut classes = Vec::new();
                source.array(&mut |source, index| {
                    if index >= GROUPS_MAX {
                        return Err(ModelError::too_large(format!("{index} classes")));
                    }
                    classes.push(label(source.string()?)?);
                    Ok(())
                })?;
                put_once(&mut self.classes, classes)
            }
            "lightgbm" => put_once(&mut self.lightgbm, source.string()?),
            "counts" => put_once(&mut self.counts, source.integers(5)?),
            "base" => put_once(&mut self.base, source.doubles(GROUPS_MAX)?),
            "trees" => {
                let mut trees = Vec::new();
                source.array(&mut |source, index| {
                    if index >= TREES_MAX {
                        return Err(ModelError::too_large(format!("{index} trees")));
                    }
                    trees.push(SklearnTreeFields::read(source)?);
                    Ok(())
                })?;
                put_once(&mut self.trees, trees)
            }
            _ => source.skip(),
        }
    }

    fn finish(self) -> ModelResult<Model> {
        if let Some(text) = &self.lightgbm {
            let model = lightgbm::parse(text.as_bytes());
            let parts = model
                .map_err(|error| error.inside("lightgbm"))?
                .into_parts();
            let classes = self.classes;
            return Model::new(ModelParts { classes, ..parts });
        }
        let counts = required(self.counts, "counts")?;
        let &[features, groups, step, is_rounded, is_averaged] = &counts[..] else {
            let reason = format!("{} numbers instead of 5", counts.len());
            return Err(ModelError::inconsistent("counts", reason));
        };
        let count = |value: i32| usize::try_from(value).unwrap_or(0);
        let (features, groups, step) = (count(features), count(groups), count(step));
        if features == 0 || groups == 0 || features > FEATURES_MAX || groups > GROUPS_MAX {
            let reason = format!("{features} features, {groups} groups");
            return Err(ModelError::inconsistent("counts", reason));
        }
        let trees = required(self.trees, "trees")?;
        // As many trees per iteration as groups: one tree per group. One tree per iteration: leaf
        // vectors.
        let has_vectors = groups > 1 && step == 1;
        if (step != groups && !has_vectors) || !trees.len().is_multiple_of(step) {
            let reason = format!(
                "{} trees, {step} per iteration, {groups} groups",
                trees.len()
            );
            return Err(ModelError::inconsistent("trees", reason));
        }
        let trees: ModelResult<Vec<Tree>> = trees
            .into_iter()
            .enumerate()
            .map(|(index, tree)| {
                let group = (!has_vectors).then_some((index % step) as u32);
                tree.tree(group, groups, is_rounded != 0)
                    .map_err(|error| error.inside(&format!("trees[{index}]")))
            })
            .collect();
        let trees = trees?;
        Model::new(ModelParts {
            format: Format::SklearnJson,
            version: required(self.version, "scikit_learn")?,
            objective: required(self.estimator, "estimator")?,
            feature_names: self.feature_names,
            feature_types: Vec::new(),
            categories: Vec::new(),
            best_iteration: None,
            is_saved_by_sklearn: false,
            classes: self.classes,
            features,
            groups,
            transform: transform_of(&required(self.transform, "transform")?)?,
            base: required(self.base, "base")?,
            is_averaged: is_averaged != 0,
            iteration_starts: (0..=trees.len())
                .step_by(step)
                .map(|it| it as u32)
                .collect(),
            trees,
            notices: Vec::new(),
        })
    }
}

/// Checks that a label is valid JSON, because replies contain it verbatim.
fn label(text: String) -> ModelResult<String> {
    let mut json = JsonReader::new(text.as_bytes());
    let read = json.skip().and_then(|()| json.finish());
    read.map_err(|error| error.inside("classes"))?;
    Ok(text)
}

fn transform_of(name: &str) -> ModelResult<Transform> {
    Ok(match name {
        "identity" => Transform::Identity,
        "logistic" => Transform::Sigmoid(1.0),
        // The exponential loss: half of the log odds.
        "half_logistic" => Transform::Sigmoid(2.0),
        "softmax" => Transform::Softmax,
        "exp" => Transform::Exp,
        _ => {
            let reason = format!("transform {} is not known", excerpt(name));
            return Err(ModelError::Unsupported(reason));
        }
    })
}

impl SklearnTreeFields {
    fn read(source: &mut JsonReader<'_>) -> ModelResult<Self> {
        let mut fields = Self::default();
        source.object(&mut |source, key| match key {
            "left" => put_once(&mut fields.left, source.integers(TREE_NODES_MAX)?),
            "right" => put_once(&mut fields.right, source.integers(TREE_NODES_MAX)?),
            "feature" => put_once(&mut fields.feature, source.integers(TREE_NODES_MAX)?),
            "missing_left" => put_once(&mut fields.missing_left, source.integers(TREE_NODES_MAX)?),
            "threshold" => put_once(&mut fields.threshold, source.doubles(TREE_NODES_MAX)?),
            "cover" => put_once(&mut fields.cover, source.doubles(TREE_NODES_MAX)?),
            "value" => put_once(&mut fields.value, source.doubles(usize::MAX)?),
            _ => source.skip(),
        })?;
        Ok(fields)
    }

    fn tree(self, group: Option<u32>, groups: usize, is_rounded: bool) -> ModelResult<Tree> {
        let left = required(self.left, "left")?;
        let nodes = left.len();
        let right = column(self.right, "right", nodes)?;
        let child = |child: i32| usize::try_from(child).unwrap_or(usize::MAX);
        let children = |node: usize| {
            let is_leaf = left[node] == -1 && right[node] == -1;
            (!is_leaf).then(|| (child(left[node]), child(right[node])))
        };
        check_shape(nodes, &children)?;
        let feature = column(self.feature, "feature", nodes)?;
        let missing_left = column(self.missing_left, "missing_left", nodes)?;
        let threshold = column(self.threshold, "threshold", nodes)?;
        let cover = column(self.cover, "cover", nodes)?;
        let width = if group.is_none() { groups } else { 1 };
        let value = column(self.value, "value", nodes.saturating_mul(width))?;
        let mut leaf_vectors = Vec::new();
        let mut vector_indices = vec![0; nodes];
        for node in (0..nodes).filter(|_| group.is_none()) {
            // The check of the model counts only reachable leaves; the script writes no others.
            if children(node).is_none() {
                vector_indices[node] = leaf_vectors.len() / groups;
                leaf_vectors.extend_from_slice(&value[node * groups..][..groups]);
            }
        }
        let threshold_of = |node: usize| match is_rounded {
            true => before_rounding(threshold[node]),
            false => threshold[node],
        };
        let node = |node: usize| {
            let children = children(node);
            let is_left = missing_left[node] != 0;
            Ok(RawNode {
                label: node as u32,
                children,
                feature: u32::try_from(feature[node]).unwrap_or(u32::MAX),
                flags: flag::INCLUSIVE
                    | flag::MISSING_NAN
                    | if is_left { flag::DEFAULT_LEFT } else { 0 },
                value: match (children, group) {
                    (Some(_), _) => threshold_of(node),
                    (None, Some(_)) => value[node],
                    (None, None) => vector_indices[node] as f64,
                },
                cover: cover[node],
            })
        };
        let rest = RawTree {
            group,
            leaf_vectors,
            sets: CategorySets::default(),
            has_covers: true,
            ..RawTree::default()
        };
        Tree::from_nodes(nodes, &node, rest)
    }
}

/// Returns the largest `f64` that is at most `threshold` after rounding to `f32`.
fn before_rounding(threshold: f64) -> f64 {
    let nearest = threshold as f32;
    if !threshold.is_finite() || !nearest.is_finite() {
        return threshold;
    }
    let below = match f64::from(nearest) > threshold {
        true => nearest.next_down(),
        false => nearest,
    };
    let above = below.next_up();
    // Above the largest f32 the next value would be 2^128.
    let end = if above.is_finite() {
        f64::from(above)
    } else {
        2.0_f64.powi(128)
    };
    let middle = f64::from(below).midpoint(end);
    if middle as f32 == below {
        middle
    } else {
        middle.next_down()
    }
}

#[cfg(test)]
mod tests {
    use super::before_rounding;

    #[test]
    fn a_threshold_before_rounding_separates_the_same_values() {
        for threshold in [
            0.0,
            -0.0,
            0.1,
            -0.1,
            1e-45,
            1e-40,
            -1e-40,
            1.5,
            3.3e38,
            -3.3e38,
            16_777_217.0,
            0.300_000_011,
        ] {
            let moved = before_rounding(threshold);
            let is_left = |x: f64| f64::from(x as f32) <= threshold;
            assert!(is_left(moved), "{threshold}");
            assert!(!is_left(moved.next_up()), "{threshold}");
        }
        assert!(before_rounding(f64::from(f32::MAX)) > f64::from(f32::MAX));
    }
}
