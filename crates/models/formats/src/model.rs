//! A checked model: the interface between the readers and the engine.
//!
//! Readers fill [`ModelParts`]; [`Model::new`] checks their consistency. The engine relies on these
//! checks.

use crate::categories::{self, ColumnCategories};
use crate::error::ModelError;
use crate::limits::{FEATURES_MAX, GROUPS_MAX, TREES_MAX};
use crate::transform::Transform;
use crate::tree::{Tree, TreeNode, flag};

/// The library that trained a model; determines element types, comparisons and sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Library {
    /// XGBoost: rows, margins and values in `f32`.
    Xgboost,
    /// LightGBM: rows, margins and values in `f64`; values of magnitude up to 1e-35 count as 0.
    Lightgbm,
    /// scikit-learn: rows, margins and values in `f64`.
    Sklearn,
}

/// The format of a model file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// XGBoost's binary JSON (`.ubj`).
    XgboostUbjson,
    /// XGBoost's JSON (`.json`).
    XgboostJson,
    /// LightGBM's text (`.txt`).
    LightgbmText,
    /// JSON written by `scripts/sklearn_to_json.py` from a scikit-learn estimator.
    SklearnJson,
}

impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::XgboostUbjson => "XGBoost UBJSON",
            Self::XgboostJson => "XGBoost JSON",
            Self::LightgbmText => "LightGBM text",
            Self::SklearnJson => "scikit-learn JSON",
        })
    }
}

impl Format {
    /// Returns the path of a tree in the file, for error messages.
    fn tree_path(self, index: usize) -> String {
        match self {
            Self::XgboostUbjson | Self::XgboostJson => {
                format!("learner.gradient_booster.model.trees[{index}]")
            }
            Self::LightgbmText => format!("Tree={index}"),
            Self::SklearnJson => format!("trees[{index}]"),
        }
    }
}

/// Contents of a model file.
#[derive(Debug, Clone)]
pub struct ModelParts {
    pub format: Format,
    /// Version of the library (XGBoost) or of the format (LightGBM).
    pub version: String,
    /// Name of the objective in its library.
    pub objective: String,
    /// Feature names; empty if the file has none.
    pub feature_names: Vec<String>,
    /// Feature types with the library's names (XGBoost's `feature_types`; `numerical`,
    /// `categorical` or `none` from LightGBM's `feature_infos`); empty if the file has none.
    pub feature_types: Vec<String>,
    /// Category names of the columns that have any, by ascending column.
    pub categories: Vec<ColumnCategories>,
    /// Best iteration, as recorded by early stopping.
    pub best_iteration: Option<usize>,
    /// Whether XGBoost's scikit-learn interface saved the file; it predicts up to the best
    /// iteration.
    pub is_saved_by_sklearn: bool,
    /// Class labels, each as JSON, if the model is a classifier of the scikit-learn interface,
    /// whose `predict` returns classes; empty if the classes are the numbers from 0.
    pub classes: Option<Vec<String>>,
    /// Number of features, the width of a row.
    pub features: usize,
    /// Number of classes or targets, the margins of a row.
    pub groups: usize,
    /// The transformation of margins into values.
    pub transform: Transform,
    /// Base score as a margin, per group.
    pub base: Vec<f64>,
    /// Whether values, unlike margins, are averages over the iterations.
    pub is_averaged: bool,
    /// First tree of each iteration, followed by the number of trees.
    pub iteration_starts: Vec<u32>,
    /// The trees, in summation order.
    pub trees: Vec<Tree>,
    /// Notices for the user about uncertain predictions.
    pub notices: Vec<String>,
}

/// Iterations of a file that a model uses for prediction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IterationRange {
    pub begin: usize,
    /// One past the last.
    pub end: usize,
    /// Number of iterations in the file.
    pub in_file: usize,
    /// Best iteration recorded in the file.
    pub best: Option<usize>,
}

impl std::fmt::Display for IterationRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            begin,
            end,
            in_file,
            ..
        } = self;
        write!(f, "{begin}:{end} of {in_file}")
    }
}

/// A trained ensemble of trees.
#[derive(Debug, Clone)]
pub struct Model {
    parts: ModelParts,
    range: IterationRange,
}

impl Model {
    /// Checks the parts of a model.
    ///
    /// # Errors
    /// A part contradicts the others or exceeds a bound.
    pub fn new(parts: ModelParts) -> Result<Self, ModelError> {
        parts.check_counts()?;
        for (index, tree) in parts.trees.iter().enumerate() {
            parts
                .check_tree(tree)
                .map_err(|error| error.inside(&parts.format.tree_path(index)))?;
        }
        let iterations = parts.iteration_starts.len() - 1;
        let range = IterationRange {
            begin: 0,
            end: iterations,
            in_file: iterations,
            best: parts.best_iteration,
        };
        Ok(Self { parts, range })
    }

    /// Returns the library that trained the model.
    #[must_use]
    pub fn library(&self) -> Library {
        match self.parts.format {
            Format::XgboostUbjson | Format::XgboostJson => Library::Xgboost,
            Format::LightgbmText => Library::Lightgbm,
            Format::SklearnJson => Library::Sklearn,
        }
    }

    /// Number of boosting iterations used for prediction; all of the file until a selection is
    /// made.
    #[must_use]
    pub fn iterations(&self) -> usize {
        self.parts.iteration_starts.len().saturating_sub(1)
    }

    /// Returns the iterations used for prediction.
    #[must_use]
    pub fn iteration_range(&self) -> IterationRange {
        self.range
    }

    /// Drops the trees of all iterations outside of `begin..end`, which must be within the model.
    pub(crate) fn keep_iterations(&mut self, begin: usize, end: usize) {
        let ModelParts {
            iteration_starts,
            trees,
            ..
        } = &mut self.parts;
        iteration_starts.truncate(end + 1);
        iteration_starts.drain(..begin);
        let (first, last) = (iteration_starts[0], iteration_starts[end - begin]);
        trees.truncate(last as usize);
        trees.drain(..first as usize);
        for start in iteration_starts {
            *start -= first;
        }
        (self.range.begin, self.range.end) = (begin, end);
    }

    /// Returns the model as XGBoost's `Booster` would predict with the file, regardless of the
    /// object that saved it: with all iterations, and values instead of classes.
    #[must_use]
    pub fn as_booster(mut self) -> Self {
        self.parts.is_saved_by_sklearn = false;
        self.parts.classes = None;
        self
    }

    /// Returns the checked contents of the file, restricted to the iterations used for prediction.
    #[must_use]
    pub fn parts(&self) -> &ModelParts {
        &self.parts
    }

    pub(crate) fn into_parts(self) -> ModelParts {
        self.parts
    }

    /// Returns whether each leaf has one value per group (XGBoost's `multi_output_tree`).
    #[must_use]
    pub fn has_vector_leaves(&self) -> bool {
        self.parts.trees.iter().any(|tree| tree.group.is_none())
    }
}

impl ModelParts {
    fn check_counts(&self) -> Result<(), ModelError> {
        let &Self {
            features, groups, ..
        } = self;
        let trees = self.trees.len();
        if features > FEATURES_MAX || groups > GROUPS_MAX || trees > TREES_MAX {
            let reason = format!("{features} features, {groups} groups, {trees} trees");
            return Err(ModelError::too_large(reason));
        }
        if features == 0 || groups == 0 {
            let reason = format!("a model of {features} features and {groups} groups");
            return Err(ModelError::inconsistent("", reason));
        }
        if self.base.len() != groups {
            let reason = format!("{} base margins for {groups} groups", self.base.len());
            return Err(ModelError::inconsistent("", reason));
        }
        let classes = self.classes.as_ref().map_or(0, Vec::len);
        if classes != 0 && classes != groups.max(2) {
            let reason = format!("{classes} classes for {groups} groups");
            return Err(ModelError::inconsistent("classes", reason));
        }
        for (path, found) in [
            ("feature_names", self.feature_names.len()),
            ("feature_types", self.feature_types.len()),
        ] {
            if found != 0 && found != features {
                let reason = format!("{found} entries for {features} features");
                return Err(ModelError::inconsistent(path, reason));
            }
        }
        categories::check(&self.categories, features)?;
        let starts = &self.iteration_starts;
        let ends = (starts.first(), starts.last().map(|&end| end as usize));
        if ends != (Some(&0), Some(trees)) || !starts.is_sorted() {
            let reason = format!("iterations are not an ascending list from 0 to {trees}");
            return Err(ModelError::inconsistent("", reason));
        }
        // The compiled model uses 32-bit counts for these.
        let sum = |of: fn(&Tree) -> usize| self.trees.iter().map(of).sum::<usize>();
        let nodes = sum(|tree| tree.nodes.len());
        let largest = nodes
            .max(sum(|tree| tree.leaf_vectors.len()))
            .max(sum(|tree| tree.sets.words.len() + tree.sets.ends.len()));
        match u32::try_from(largest) {
            Ok(_) => Ok(()),
            Err(_) => Err(ModelError::too_large(format!("{nodes} nodes"))),
        }
    }

    fn check_tree(&self, tree: &Tree) -> Result<(), ModelError> {
        tree.check_features(self.features)?;
        let is_vector = tree.group.is_none();
        if self.trees[0].group.is_none() != is_vector {
            let reason = "vector leaves in some trees only";
            return Err(ModelError::inconsistent("", reason));
        }
        if let Some(group) = tree.group.filter(|&it| it as usize >= self.groups) {
            let reason = format!("group {group}, but the model has {} groups", self.groups);
            return Err(ModelError::inconsistent("", reason));
        }
        let (values, groups) = (tree.leaf_vectors.len(), self.groups);
        let leaves = tree.nodes.iter().filter(|it| it.flags & flag::LEAF != 0);
        let leaves = leaves.count();
        if is_vector && values != leaves * groups {
            let reason = format!("{values} leaf values for {leaves} leaves of {groups} groups");
            return Err(ModelError::inconsistent("", reason));
        }
        let has_values = |leaf: &TreeNode| (leaf.value as usize) < leaves && leaf.value >= 0.0;
        let is_leaf = |node: &&TreeNode| node.flags & flag::LEAF != 0;
        if is_vector && !tree.nodes.iter().filter(is_leaf).all(has_values) {
            let reason = "a leaf without values";
            return Err(ModelError::inconsistent("", reason));
        }
        Ok(())
    }
}
