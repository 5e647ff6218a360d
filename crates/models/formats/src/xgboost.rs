//! XGBoost models in JSON and UBJSON: versions 1.0 to 3.4, `gbtree` and `dart`.
//!
//! A file is read with the rules of the version that wrote it (`version`); uncertainties of that
//! version are listed in [`ModelParts::notices`].
//!
//! Keys can appear in any order, so a first pass collects fields (trees are checked and numbered as
//! they are read) and [`finish`] combines them. Unknown keys are skipped, duplicate keys are
//! rejected.

mod base;
mod categories;
mod category_tables;
mod tree;
mod version;

use self::base::{BaseScoreLink, base_margins};
use self::category_tables::CategoryTables;
use self::tree::XgboostTreeFields;
use self::version::XgboostVersion;
use crate::error::{ModelError, ModelResult, excerpt};
use crate::limits::{FEATURES_MAX, GROUPS_MAX, TREES_MAX, VERSION_PARTS_MAX};
use crate::model::{Format, Model, ModelParts};
use crate::transform::Transform;
use crate::tree::{Tree, flag};
use crate::value_reader::{ValueReader, put_once, required};

/// Fields of the file that are used.
#[derive(Default)]
struct XgboostFields {
    version: Option<Vec<i32>>,
    best_iteration: Option<String>,
    is_saved_by_sklearn: bool,
    is_classifier: bool,
    feature_names: Option<Vec<String>>,
    feature_types: Option<Vec<String>>,
    booster: Option<String>,
    weight_drop: Option<Vec<f32>>,
    parallel_trees: Option<String>,
    tree_info: Option<Vec<i32>>,
    iteration_starts: Option<Vec<i32>>,
    trees: Option<Vec<Tree>>,
    category_tables: Option<CategoryTables>,
    base_score: Option<String>,
    boost_from_average: Option<String>,
    classes: Option<String>,
    targets: Option<String>,
    features: Option<String>,
    objective: Option<String>,
    /// Objects that have been entered, to reject duplicates.
    entered: Vec<&'static str>,
}

pub(crate) fn parse<S: ValueReader>(source: &mut S, format: Format) -> ModelResult<Model> {
    let mut fields = XgboostFields::default();
    source.object(&mut |source, key| match key {
        "learner" => {
            fields.enter("learner")?;
            fields.learner(source)
        }
        "version" => put_once(&mut fields.version, source.integers(VERSION_PARTS_MAX)?),
        _ => source.skip(),
    })?;
    source.finish()?;
    fields.finish(format)
}

/// Parses a count that the file stores as text; `default` if it is absent.
fn count(text: Option<&str>, path: &str, default: usize) -> ModelResult<usize> {
    let Some(text) = text else { return Ok(default) };
    text.parse()
        .map_err(|_| ModelError::inconsistent(path, format!("'{}' is not a count", excerpt(text))))
}

/// Reads an array with one string per feature.
fn read_strings<S: ValueReader>(source: &mut S) -> ModelResult<Vec<String>> {
    let mut strings = Vec::new();
    source.array(&mut |source, index| {
        if index >= FEATURES_MAX {
            return Err(ModelError::too_large(format!("{index} features")));
        }
        strings.push(source.string()?);
        Ok(())
    })?;
    Ok(strings)
}

impl XgboostFields {
    /// Records the start of an object; rejects a duplicate.
    fn enter(&mut self, object: &'static str) -> ModelResult<()> {
        if self.entered.contains(&object) {
            return Err(ModelError::inconsistent("", "the key appears twice"));
        }
        self.entered.push(object);
        Ok(())
    }

    fn learner<S: ValueReader>(&mut self, source: &mut S) -> ModelResult<()> {
        source.object(&mut |source, key| match key {
            "attributes" => source.object(&mut |source, key| match key {
                "best_iteration" => put_once(&mut self.best_iteration, source.string()?),
                // Only save_model of the scikit-learn classes writes this, since 1.0.
                "scikit_learn" => {
                    self.is_saved_by_sklearn = true;
                    self.is_classifier = is_classifier(&source.string()?);
                    Ok(())
                }
                _ => source.skip(),
            }),
            "feature_names" => put_once(&mut self.feature_names, read_strings(source)?),
            "feature_types" => put_once(&mut self.feature_types, read_strings(source)?),
            "gradient_booster" => {
                self.enter("gradient_booster")?;
                self.booster(source)
            }
            "learner_model_param" => source.object(&mut |source, key| match key {
                "base_score" => put_once(&mut self.base_score, source.string()?),
                "boost_from_average" => put_once(&mut self.boost_from_average, source.string()?),
                "num_class" => put_once(&mut self.classes, source.string()?),
                "num_target" => put_once(&mut self.targets, source.string()?),
                "num_feature" => put_once(&mut self.features, source.string()?),
                _ => source.skip(),
            }),
            "objective" => source.object(&mut |source, key| match key {
                "name" => put_once(&mut self.objective, source.string()?),
                _ => source.skip(),
            }),
            _ => source.skip(),
        })
    }

    /// `dart` wraps the fields of `gbtree` up to 3.3; 3.4 stores its weights inside `model`.
    fn booster<S: ValueReader>(&mut self, source: &mut S) -> ModelResult<()> {
        source.object(&mut |source, key| match key {
            "name" => put_once(&mut self.booster, source.string()?),
            "model" => {
                self.enter("model")?;
                self.model(source)
            }
            "gbtree" => source.object(&mut |source, key| match key {
                "model" => {
                    self.enter("model")?;
                    self.model(source)
                }
                _ => source.skip(),
            }),
            "weight_drop" => put_once(&mut self.weight_drop, source.floats(TREES_MAX)?),
            _ => source.skip(),
        })
    }

    fn model<S: ValueReader>(&mut self, source: &mut S) -> ModelResult<()> {
        source.object(&mut |source, key| match key {
            "gbtree_model_param" => source.object(&mut |source, key| match key {
                "num_parallel_tree" => put_once(&mut self.parallel_trees, source.string()?),
                _ => source.skip(),
            }),
            "tree_info" => put_once(&mut self.tree_info, source.integers(TREES_MAX)?),
            "iteration_indptr" => {
                put_once(&mut self.iteration_starts, source.integers(TREES_MAX + 1)?)
            }
            "weight_drop" => put_once(&mut self.weight_drop, source.floats(TREES_MAX)?),
            "cats" => put_once(&mut self.category_tables, CategoryTables::read(source)?),
            "trees" => {
                let mut trees = Vec::new();
                source.array(&mut |source, index| {
                    if index >= TREES_MAX {
                        return Err(ModelError::too_large(format!("{index} trees")));
                    }
                    trees.push(XgboostTreeFields::read(source)?.tree()?);
                    Ok(())
                })?;
                put_once(&mut self.trees, trees)
            }
            _ => source.skip(),
        })
    }

    fn finish(self, format: Format) -> ModelResult<Model> {
        let booster = required(self.booster, "learner.gradient_booster.name")?;
        if booster != "gbtree" && booster != "dart" {
            let booster = excerpt(&booster);
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
            return Err(ModelError::too_large(reason));
        }
        if features == 0 {
            let path = format!("{param}.num_feature");
            return Err(ModelError::inconsistent(path, "a model without features"));
        }
        let objective = required(self.objective, "learner.objective.name")?;
        let version = XgboostVersion::of(self.version.as_deref());
        let (transform, link) = objective_of(&objective, version)?;
        let base_score = required(self.base_score, &format!("{param}.base_score"))?;

        let at = "learner.gradient_booster.model";
        let mut trees = required(self.trees, &format!("{at}.trees"))?;
        // A base score that was never set in training.
        let is_unset = trees.is_empty() && self.boost_from_average.as_deref() != Some("0");
        let link = match is_unset && version.unset_base_score_is_margin() {
            true => BaseScoreLink::Identity,
            false => link,
        };
        let base = base_margins(&base_score, link, groups)?;
        let mut notices = apply_version_rules(version, &objective, &mut trees)?;
        let tables = self.category_tables.unwrap_or_default();
        let categories = tables.finish(version, features, &mut notices);
        let categories = categories.map_err(|error| error.inside(&format!("{at}.cats")))?;
        let tree_info = required(self.tree_info, &format!("{at}.tree_info"))?;
        assign_groups(&mut trees, &tree_info, groups).map_err(|error| error.inside(at))?;
        if let Some(weights) = self.weight_drop {
            fold_weights(&mut trees, &weights).map_err(|error| error.inside(at))?;
        }
        // Versions before 2 write the last iteration, or -1 for a model without trees.
        let best = self.best_iteration.as_deref().filter(|&best| best != "-1");
        let best_iteration = best.map(|best| {
            let path = "learner.attributes.best_iteration";
            count(Some(best), path, 0)
        });
        let parallel = count(self.parallel_trees.as_deref(), "num_parallel_tree", 1)?.max(1);
        let iteration_starts = match self.iteration_starts {
            Some(starts) => listed_iteration_starts(&starts, trees.len()),
            None => derived_iteration_starts(&trees, parallel, groups),
        }
        .map_err(|error| error.inside(at))?;
        Model::new(ModelParts {
            format,
            version: version.to_string(),
            objective,
            feature_names: self.feature_names.unwrap_or_default(),
            feature_types: self.feature_types.unwrap_or_default(),
            categories,
            best_iteration: best_iteration.transpose()?,
            is_saved_by_sklearn: self.is_saved_by_sklearn,
            classes: self.is_classifier.then(Vec::new),
            features,
            groups,
            transform,
            base,
            is_averaged: false,
            iteration_starts,
            trees,
            notices,
        })
    }
}

/// Returns whether the attributes of a scikit-learn class, as JSON, are those of a classifier.
fn is_classifier(attributes: &str) -> bool {
    let kind = attributes
        .split_once("\"_estimator_type\"")
        .map(|(_, kind)| kind);
    let value = kind.and_then(|kind| kind.trim_start().strip_prefix(':'));
    value.is_some_and(|value| value.trim_start().starts_with("\"classifier\""))
}

/// Rewrites trees by the rules of the version that wrote them; returns notices for the user.
fn apply_version_rules(
    version: XgboostVersion,
    objective: &str,
    trees: &mut [Tree],
) -> ModelResult<Vec<String>> {
    let mut notices = version.notices();
    if objective == "binary:logitraw" && version.logitraw_base_is_probability() {
        notices.push(format!(
            "its base score is read as a probability, as XGBoost {version} does; 1.3.1 and newer \
             read it as a margin. For the predictions of a newer XGBoost load the file with it and \
             save it again (save_model)"
        ));
    }
    if version.unlisted_categories_go_default() && categories::apply_default_direction(trees)? {
        notices.push(categories::notice(version));
    }
    Ok(notices)
}

/// Returns the transformations of an objective: of margins, and of base scores.
fn objective_of(name: &str, version: XgboostVersion) -> ModelResult<(Transform, BaseScoreLink)> {
    Ok(match name {
        "reg:quantileerror" if version.sorts_quantiles() => {
            (Transform::Ascending, BaseScoreLink::Identity)
        }
        "binary:logitraw" if version.logitraw_base_is_probability() => {
            (Transform::Identity, BaseScoreLink::Logit)
        }
        "reg:expectileerror" => (Transform::Steps, BaseScoreLink::Steps),
        "reg:squarederror"
        | "reg:linear"
        | "reg:squaredlogerror"
        | "reg:absoluteerror"
        | "reg:quantileerror"
        | "reg:pseudohubererror"
        | "binary:logitraw"
        | "rank:pairwise"
        | "rank:ndcg"
        | "rank:map" => (Transform::Identity, BaseScoreLink::Identity),
        "binary:logistic" | "reg:logistic" => {
            let link = if version.clamps_base_score() {
                BaseScoreLink::ClampedLogit
            } else {
                BaseScoreLink::Logit
            };
            (Transform::Sigmoid(1.0), link)
        }
        "reg:gamma" if version.checks_gamma() => (Transform::Exp, BaseScoreLink::PositiveLog),
        "count:poisson" | "reg:gamma" | "reg:tweedie" | "survival:cox" | "survival:aft" => {
            (Transform::Exp, BaseScoreLink::Log)
        }
        "multi:softprob" => (Transform::Softmax, BaseScoreLink::Identity),
        "multi:softmax" => (Transform::Argmax, BaseScoreLink::Identity),
        "binary:hinge" => (Transform::Step, BaseScoreLink::Identity),
        _ => {
            let name = excerpt(name);
            let reason = format!("objective {name} is not known, so its values cannot be computed");
            return Err(ModelError::Unsupported(reason));
        }
    })
}

fn assign_groups(trees: &mut [Tree], tree_info: &[i32], groups: usize) -> ModelResult<()> {
    if tree_info.len() != trees.len() {
        let reason = format!("{} entries for {} trees", tree_info.len(), trees.len());
        return Err(ModelError::inconsistent("tree_info", reason));
    }
    for (index, (tree, &info)) in trees.iter_mut().zip(tree_info).enumerate() {
        let group = u32::try_from(info)
            .ok()
            .filter(|&group| (group as usize) < groups);
        let Some(group) = group else {
            let reason = format!("group {info}, but the model has {groups} groups");
            return Err(ModelError::inconsistent(
                format!("tree_info[{index}]"),
                reason,
            ));
        };
        tree.group = tree.group.map(|_| group);
    }
    Ok(())
}

/// DART: multiplies each leaf value by the weight of its tree, in `f32` as in the library.
fn fold_weights(trees: &mut [Tree], weights: &[f32]) -> ModelResult<()> {
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

fn listed_iteration_starts(starts: &[i32], trees: usize) -> ModelResult<Vec<u32>> {
    let ends = (starts.first().copied(), starts.last().copied());
    let is_whole = ends == (Some(0), i32::try_from(trees).ok());
    if !is_whole || !starts.is_sorted() {
        let reason = format!("not an ascending list from 0 to {trees}");
        return Err(ModelError::inconsistent("iteration_indptr", reason));
    }
    Ok(starts.iter().map(|&start| start as u32).collect())
}

/// Derives the iterations of versions before 2, which do not list them: each has one forest per
/// group.
fn derived_iteration_starts(
    trees: &[Tree],
    parallel: usize,
    groups: usize,
) -> ModelResult<Vec<u32>> {
    let is_vector = trees.first().is_some_and(|tree| tree.group.is_none());
    let step = parallel.saturating_mul(if is_vector { 1 } else { groups });
    if !trees.len().is_multiple_of(step) {
        let reason = format!(
            "{} trees are not a multiple of {step} trees per iteration",
            trees.len()
        );
        return Err(ModelError::inconsistent("trees", reason));
    }
    Ok((0..=trees.len())
        .step_by(step)
        .map(|start| start as u32)
        .collect())
}
