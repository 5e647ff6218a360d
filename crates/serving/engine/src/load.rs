//! Loads models: from the bytes of a file to a compiled image in sealed memory, and its metadata.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use albacore_trees::{Format, Image, Iterations, Library, Model, Predictor, Transform};
use albacore_values::sentence;
use albacore_worker::{RevisionId, outputs_of};

use super::model::{
    ClassNames, ClassRule, KernelChoice, ModelClasses, ModelRevision, Usage, kernel_choices,
};
use super::{Kind, KindSet, ModelInfo, OutputInfo};
use crate::columns::{CategoryTable, Columns, UnknownCategory};
use crate::image::PlacedImage;

/// Number of column names listed in a message.
const SHOWN_NAMES: usize = 5;

/// A model that is ready to be served: its image is immutable.
#[derive(Debug)]
pub struct LoadedModel {
    pub(super) info: ModelInfo,
    pub(super) kernels: Vec<KernelChoice>,
    /// Rule and number of its classes, for a classifier that was compiled here.
    class_count: Option<(ClassRule, usize)>,
    /// Whether it is a classifier, but its file lacks the classes of `predict`.
    lacks_classes: bool,
    unknown_category: UnknownCategory,
    image: PlacedImage,
}

impl LoadedModel {
    /// Checks and compiles the bytes of a model file. Only the chosen iterations are kept.
    ///
    /// # Errors
    /// A message: the bytes are not a model, are damaged, contain an unsupported model, or lack the
    /// iterations.
    pub fn compile(name: &str, bytes: &[u8], iterations: Iterations) -> Result<Self, String> {
        let model = Model::parse(bytes).map_err(|error| error.to_string())?;
        Self::of_model(name, model, iterations)
    }

    /// Like [`Self::compile`], but predicts like XGBoost's `Booster` with this file, regardless of
    /// the object that saved it.
    ///
    /// # Errors
    /// See [`Self::compile`].
    pub fn compile_booster(
        name: &str,
        bytes: &[u8],
        iterations: Iterations,
    ) -> Result<Self, String> {
        let model = Model::parse(bytes).map_err(|error| error.to_string())?;
        Self::of_model(name, model.as_booster(), iterations)
    }

    fn of_model(name: &str, model: Model, iterations: Iterations) -> Result<Self, String> {
        for notice in &model.parts().notices {
            tracing::warn!(model = name, "{notice}");
        }
        let model = model.with_iterations(iterations);
        let model = model.map_err(|error| error.to_string())?;
        let platform = match model.parts().format {
            Format::XgboostUbjson => "xgboost_ubj",
            Format::XgboostJson => "xgboost_json",
            Format::LightgbmText => "lightgbm_text",
            Format::SklearnJson => "sklearn_json",
        };
        let start = Instant::now();
        let mut clock = || u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        // Tuned once, here: the image contains the chosen kernels for the workers.
        let image = Image::compile(&model).tuned(&mut clock);
        let columns = columns_of(&model);
        let unknown_category = unknown_category(&model);
        let range = model.iteration_range();
        let iterations_notice = match iterations {
            Iterations::AsSaved => model.iterations_notice(range),
            Iterations::All | Iterations::Best | Iterations::Range { .. } => None,
        };
        let classes = classes_of(&model);
        let class_count = class_count_of(&model, classes.as_ref());
        let lacks_classes = lacks_classes(&model, class_count.is_some());
        drop(model);
        let predictor = Predictor::open(image.bytes()).map_err(|error| error.to_string())?;
        let info = ModelInfo {
            name: name.to_owned(),
            platform: platform.to_owned(),
            features: predictor.features(),
            columns,
            missing_is_nan: false,
            iterations: range,
            iterations_notice,
            classes,
            class_names: None,
            predicts_probabilities: false,
            outputs: all_outputs(&predictor),
        };
        let kernels = kernel_choices(&predictor);
        let image = PlacedImage::write(image.bytes()).map_err(|error| sentence(&error))?;
        Ok(Self {
            info,
            kernels,
            class_count,
            lacks_classes,
            unknown_category,
            image,
        })
    }

    /// Reopens a model that another front loaded, from its image and metadata. Checks the image.
    ///
    /// # Errors
    /// A message: the image cannot be mapped, or is damaged.
    pub fn reopen(image: OwnedFd, info: ModelInfo) -> Result<Self, String> {
        let opened = PlacedImage::open(image);
        let (image, mapping) = opened.map_err(|error| sentence(&error))?;
        let predictor = Predictor::open(mapping.as_slice()).map_err(|error| error.to_string())?;
        Ok(Self {
            info: ModelInfo {
                features: predictor.features(),
                outputs: all_outputs(&predictor),
                ..info
            },
            kernels: kernel_choices(&predictor),
            class_count: None,
            lacks_classes: false,
            unknown_category: UnknownCategory::Refused,
            image,
        })
    }

    /// Treats columns missing from a request with named columns as NaN.
    #[must_use]
    pub fn with_missing_as_nan(mut self) -> Self {
        self.info.missing_is_nan = true;
        self
    }

    /// Sets the class names, by number.
    ///
    /// # Errors
    /// A message: the model has no classes, or a different number of them.
    pub fn with_class_names(mut self, names: Vec<String>) -> Result<Self, String> {
        let given = names.len();
        let Some((rule, count)) = self.class_count else {
            return Err(format!(
                "{given} names of classes are given, but the value of this model is neither a \
                 class nor a probability of a class: leave them out"
            ));
        };
        if given != count {
            return Err(format!(
                "{given} names of classes are given, but the model has {count} classes: name each \
                 of them, by number"
            ));
        }
        self.info.class_names = Some(ClassNames { rule, names });
        Ok(self)
    }

    /// Rejects a file without the classes returned by `predict` of a classifier: any such file if
    /// `is_classifier`, otherwise only if the model was trained as a classifier.
    ///
    /// # Errors
    /// A message: the file has no classes.
    pub fn require_classes(&self, is_classifier: bool) -> Result<(), String> {
        if self.info.classes.is_some() || !(is_classifier || self.lacks_classes) {
            return Ok(());
        }
        Err(
            "the file does not have the class labels that MLflow returns: convert the file that \
             MLmodel names with scripts/sklearn_to_json.py, or save an XGBClassifier again with \
             mlflow.xgboost"
                .to_owned(),
        )
    }

    /// Makes replies in MLflow's protocol those of `predict_proba` by default.
    ///
    /// # Errors
    /// A message: the model has no such function.
    pub fn with_probabilities(mut self) -> Result<Self, String> {
        let rule = self.info.classes.as_ref().map(|classes| classes.rule);
        if let Some(problem) = no_probabilities(rule) {
            return Err(format!(
                "MLmodel has the predict_fn \"predict_proba\", but the model has no such \
                 function: {problem}"
            ));
        }
        self.info.predicts_probabilities = true;
        Ok(self)
    }

    /// Sets the categories that are denoted by the codes in the trees, by column name; replaces
    /// those of the file.
    ///
    /// # Errors
    /// A message: the model has no such column, or two names refer to the same column.
    pub fn with_categories(
        mut self,
        categories: impl IntoIterator<Item = (String, Vec<String>)>,
    ) -> Result<Self, String> {
        let mut given = BTreeSet::new();
        for (name, texts) in categories {
            let Some(index) = self.column_index(&name) else {
                let mut names = (0..self.info.features).map(|it| self.info.columns.name(it));
                let shown: Vec<_> = names.by_ref().take(SHOWN_NAMES).collect();
                let more = if names.next().is_some() {
                    " and more"
                } else {
                    ""
                };
                return Err(format!(
                    "categories are given for column {name:?}, which the model does not have; it \
                     has {shown:?}{more}"
                ));
            };
            if !given.insert(index) {
                return Err(format!(
                    "categories are given for column {name:?} by its number, too: give them once"
                ));
            }
            let table = CategoryTable::new(texts, self.unknown_category);
            self.info.columns.categories.insert(index, Arc::new(table));
        }
        Ok(self)
    }

    /// Index of the column with this name, or with this number if the model has no names.
    fn column_index(&self, name: &str) -> Option<usize> {
        let columns = &self.info.columns;
        let own = columns.names.iter().position(|own| own == name);
        let is_number = |index: &usize| {
            columns.are_numbered() && *index < self.info.features && index.to_string() == name
        };
        own.or_else(|| name.parse().ok().filter(is_number))
    }

    #[must_use]
    pub fn info(&self) -> &ModelInfo {
        &self.info
    }

    pub(super) fn into_revision(self, id: RevisionId, slot: usize) -> Arc<ModelRevision> {
        Arc::new(ModelRevision {
            id,
            slot,
            info: self.info,
            kernels: self.kernels,
            image: Arc::new(self.image),
            usage: Usage::default(),
        })
    }
}

/// The columns, as described by the file.
fn columns_of(model: &Model) -> Columns {
    let parts = model.parts();
    let unknown = unknown_category(model);
    let table = |texts: &Vec<String>| Arc::new(CategoryTable::new(texts.clone(), unknown));
    let categories = parts.categories.iter();
    Columns {
        names: parts.feature_names.clone(),
        types: parts.feature_types.clone(),
        categories: categories
            .map(|own| (own.column, table(&own.texts)))
            .collect(),
    }
}

/// How the library handles a category that was not in the training data.
fn unknown_category(model: &Model) -> UnknownCategory {
    match model.library() {
        Library::Lightgbm => UnknownCategory::Missing,
        Library::Xgboost | Library::Sklearn => UnknownCategory::Refused,
    }
}

/// How `predict` of a classifier with scikit-learn's interface derives classes from values.
fn classes_of(model: &Model) -> Option<ModelClasses> {
    let parts = model.parts();
    let labels = parts.classes.clone()?;
    let rule = match (parts.transform, parts.groups) {
        (Transform::Argmax | Transform::Step, _) => ClassRule::Given,
        (_, 1) => ClassRule::AboveHalf,
        // LGBMClassifier returns a single class for models trained one-vs-all.
        (Transform::Sigmoid(_), _) if model.library() == Library::Lightgbm => ClassRule::Largest,
        (Transform::Sigmoid(_), _) => ClassRule::EachAboveHalf,
        _ => ClassRule::Largest,
    };
    Some(ModelClasses { rule, labels })
}

/// Rule and number of the classes of a model with exactly one class per row.
fn class_count_of(model: &Model, classes: Option<&ModelClasses>) -> Option<(ClassRule, usize)> {
    let parts = model.parts();
    let groups = parts.groups;
    match (classes.map(|classes| classes.rule), parts.transform) {
        (Some(ClassRule::EachAboveHalf), _) => None,
        (Some(rule @ (ClassRule::Largest | ClassRule::Given)), _) if groups > 1 => {
            Some((rule, groups))
        }
        (Some(rule), _) => Some((rule, 2)),
        (None, Transform::Argmax) => Some((ClassRule::Given, groups)),
        (None, Transform::Step) if groups == 1 => Some((ClassRule::Given, 2)),
        (None, Transform::Softmax) => Some((ClassRule::Largest, groups)),
        (None, Transform::Sigmoid(_)) => match (parts.objective.as_str(), groups) {
            ("binary:logistic" | "binary", 1) => Some((ClassRule::AboveHalf, 2)),
            ("multiclassova", _) => Some((ClassRule::Largest, groups)),
            // A regression, or several classes that may apply at once.
            _ => None,
        },
        (None, _) => None,
    }
}

/// Whether a classifier's file lacks the classes of `predict`.
fn lacks_classes(model: &Model, has_class_count: bool) -> bool {
    let parts = model.parts();
    let is_classifier = has_class_count || parts.objective.ends_with("Classifier");
    parts.classes.is_none() && is_classifier
}

/// Reason why a model with this class rule has no `predict_proba`; `None` if it has one.
#[must_use]
pub fn no_probabilities(rule: Option<ClassRule>) -> Option<&'static str> {
    match rule {
        None => Some("its file was not saved by a classifier with scikit-learn's interface"),
        Some(ClassRule::Given) => Some("its objective gives only classes, no probabilities"),
        Some(_) => None,
    }
}

fn all_outputs(predictor: &Predictor<'_>) -> Vec<OutputInfo> {
    outputs_of(predictor, Kind::ALL.into_iter().collect::<KindSet>())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: &str = "tree\nversion=v4\nnum_tree_per_iteration=1\nmax_feature_idx=1\n\n\
        Tree=0\nnum_leaves=3\nsplit_feature=0 1\nthreshold=0.5 0\ndecision_type=10 10\n\
        left_child=1 -1\nright_child=-3 -2\nleaf_value=10 20 30\nleaf_count=2 4 4\n\
        internal_count=10 6\n\nend of trees\n";

    #[test]
    fn a_loaded_model_says_which_kernels_it_was_measured_for() {
        // A stalled machine may leave no time for measurements: retry.
        let compile = || LoadedModel::compile("m", MODEL.as_bytes(), Iterations::All).unwrap();
        let is_measured = |model: &LoadedModel| {
            let mut choices = model.kernels.iter();
            choices.all(|choice| choice.nanoseconds.is_some())
        };
        let mut models = std::iter::repeat_with(compile).take(10);
        let model = models.find(is_measured).unwrap();
        let rows: Vec<usize> = model.kernels.iter().map(|choice| choice.rows).collect();
        assert_eq!(rows, [1, 2, 4, 8, 16, 32, 64]);
        for choice in &model.kernels {
            let is_positive = choice.nanoseconds.is_some_and(|time| time > 0.0);
            assert!(is_positive && choice.reads_bytes > 0, "{choice:?}");
        }
    }

    fn with_categories(file: &str, names: &[&str]) -> Result<LoadedModel, String> {
        let texts = vec!["x".to_owned(), "y".to_owned()];
        let categories = names
            .iter()
            .map(|&name| (name.to_owned(), texts.clone()))
            .collect::<Vec<_>>();
        let model = LoadedModel::compile("m", file.as_bytes(), Iterations::All).unwrap();
        model.with_categories(categories)
    }

    #[test]
    fn categories_are_given_to_columns_by_name_or_by_number_without_names() {
        let named = MODEL.replacen("\n\n", "\nfeature_names=a 1\n\n", 1);
        let numbered = MODEL.replacen("\n\n", "\nfeature_names=Column_0 Column_1\n\n", 1);
        for (file, name, column) in [
            (MODEL, "1", 1),
            (&numbered, "0", 0),
            (&numbered, "Column_1", 1),
            (&named, "1", 1),
        ] {
            let model = with_categories(file, &[name]).unwrap();
            let table = &model.info().columns.categories[&column];
            assert_eq!(table.code("y"), Some(1), "{name}");
            assert_eq!(table.unknown(), UnknownCategory::Missing);
        }
        for (file, names, part) in [
            (
                MODEL,
                &["2"][..],
                "column \"2\", which the model does not have; it has [\"0\", \"1\"]",
            ),
            (MODEL, &["01"], "column \"01\""),
            (
                &named,
                &["0"],
                "column \"0\", which the model does not have; it has [\"a\", \"1\"]",
            ),
            (
                &numbered,
                &["Column_1", "1"],
                "column \"1\" by its number, too",
            ),
        ] {
            let error = with_categories(file, names).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
