//! Reads the `MLmodel` file of a folder written by MLflow: the model file, and the Python object
//! and function that MLflow's scoring server uses.
//!
//! Pickles and skops files are accepted here; the model reader reports how to convert them.

use std::fs::File;
use std::io::Read;
use std::path::{Component, Path};

use albacore_settings::yaml_tree::{self, YamlNode, YamlValue};

use crate::error::StorageErrorKind;
use crate::limits::MLMODEL_BYTES_MAX;

pub(crate) const FILE: &str = "MLmodel";

/// Flavors of tree models, each with the fields that may contain the path of its file.
const FLAVORS: [(&str, [&str; 2]); 3] = [
    ("xgboost", ["data", "data"]),
    ("lightgbm", ["data", "data"]),
    (SKLEARN, ["pickled_model", "data"]),
];

const SKLEARN: &str = "sklearn";

/// Python classes whose `predict` returns values.
const REGRESSOR_CLASSES: [&str; 7] = [
    "xgboost.sklearn.XGBRegressor",
    "xgboost.sklearn.XGBRFRegressor",
    "xgboost.sklearn.XGBRanker",
    "xgboost.sklearn.XGBModel",
    "lightgbm.sklearn.LGBMRegressor",
    "lightgbm.sklearn.LGBMRanker",
    "lightgbm.sklearn.LGBMModel",
];

/// Python classes whose `predict` returns classes.
const CLASSIFIER_CLASSES: [&str; 3] = [
    "xgboost.sklearn.XGBClassifier",
    "xgboost.sklearn.XGBRFClassifier",
    "lightgbm.sklearn.LGBMClassifier",
];

/// Contents of an `MLmodel` file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mlmodel {
    /// Path of the model file in the folder.
    pub(crate) file: String,
    pub(crate) python: PythonModel,
}

/// The object that MLflow's scoring server loads from a folder, and the method that it calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PythonModel {
    pub estimator: Estimator,
    /// Whether it calls `predict_proba` instead of `predict`.
    pub is_predict_proba: bool,
}

/// Kinds of objects by the output of their `predict`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Estimator {
    /// Values of all iterations, regardless of the object that trained the model.
    Booster,
    /// Classes.
    Classifier,
    /// Values.
    Regressor,
    /// A scikit-learn estimator; `MLmodel` does not contain its class.
    Sklearn,
}

impl std::fmt::Display for PythonModel {
    /// Writes a word that is equal only for equal models; it is part of versions (`store`).
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let function = match self.is_predict_proba {
            true => "predict_proba",
            false => "predict",
        };
        write!(f, "{:?}.{function}", self.estimator)
    }
}

/// Reads the `MLmodel` file of a folder; `None` if it cannot be opened or is not MLflow's.
pub(crate) fn read_folder(folder: &Path) -> Result<Option<Mlmodel>, StorageErrorKind> {
    match File::open(folder.join(FILE)) {
        Ok(file) => read(file),
        Err(_) => Ok(None),
    }
}

/// Reads an `MLmodel` file; `None` if it has no flavors and is therefore not MLflow's.
///
/// # Errors
/// There is no flavor of tree models, the path of the file is outside of the folder, or MLflow's
/// predictions are not supported.
pub(crate) fn read(mlmodel: impl Read) -> Result<Option<Mlmodel>, StorageErrorKind> {
    let mut text = String::new();
    let read = mlmodel.take(MLMODEL_BYTES_MAX).read_to_string(&mut text);
    read.map_err(|error| StorageErrorKind::Mlmodel(format!("cannot be read: {error}")))?;
    if text.len() as u64 == MLMODEL_BYTES_MAX {
        let problem = format!("has more than {MLMODEL_BYTES_MAX} bytes");
        return Err(StorageErrorKind::Mlmodel(problem));
    }
    let tree = yaml_tree::parse(&text).map_err(StorageErrorKind::Mlmodel)?;
    let Some(flavors) = tree.get("flavors") else {
        return Ok(None);
    };
    let (flavor, path) = flavor_file(flavors)?;
    let is_inside = |part| matches!(part, Component::Normal(_) | Component::CurDir);
    if !Path::new(path).components().all(is_inside) {
        return Err(StorageErrorKind::Mlmodel(format!(
            "names the file {path:?}, which is outside of the folder"
        )));
    }
    let function = flavors.get("python_function");
    let function = function.and_then(|found| found.get("predict_fn")?.text());
    let python = PythonModel {
        estimator: estimator(flavors, flavor)?,
        is_predict_proba: is_predict_proba(flavor, function.unwrap_or("predict"))?,
    };
    let file = path.to_owned();
    Ok(Some(Mlmodel { file, python }))
}

fn estimator(flavors: &YamlNode, flavor: &str) -> Result<Estimator, StorageErrorKind> {
    if flavor == SKLEARN {
        return Ok(Estimator::Sklearn);
    }
    let class = flavors
        .get(flavor)
        .and_then(|found| found.get("model_class")?.text());
    match class {
        // Like MLflow, which loads a booster from a folder without a class.
        None | Some("xgboost.core.Booster" | "lightgbm.basic.Booster") => Ok(Estimator::Booster),
        Some(class) if CLASSIFIER_CLASSES.contains(&class) => Ok(Estimator::Classifier),
        Some(class) if REGRESSOR_CLASSES.contains(&class) => Ok(Estimator::Regressor),
        Some(class) => Err(StorageErrorKind::Mlmodel(format!(
            "has the model_class {class:?}, whose predict function is not supported: save its \
             booster with mlflow.{flavor}"
        ))),
    }
}

/// Returns whether MLflow calls `predict_proba`; only the scikit-learn flavor has functions other
/// than `predict`.
fn is_predict_proba(flavor: &str, function: &str) -> Result<bool, StorageErrorKind> {
    match (flavor, function) {
        (_, "predict") => Ok(false),
        (SKLEARN, "predict_proba") => Ok(true),
        (SKLEARN, _) => Err(StorageErrorKind::Mlmodel(format!(
            "has the predict_fn {function:?}, which is not supported: save the model again with \
             pyfunc_predict_fn=\"predict\" or \"predict_proba\""
        ))),
        _ => Err(StorageErrorKind::Mlmodel(format!(
            "has the predict_fn {function:?}, which the flavor {flavor} of MLflow does not have: \
             save the model again with mlflow.{flavor}"
        ))),
    }
}

/// Returns the flavor of tree models, and the path of its file.
fn flavor_file(flavors: &YamlNode) -> Result<(&'static str, &str), StorageErrorKind> {
    for (flavor, fields) in FLAVORS {
        let Some(found) = flavors.get(flavor) else {
            continue;
        };
        let named = fields
            .into_iter()
            .find_map(|field| found.get(field)?.text());
        return named.map(|file| (flavor, file)).ok_or_else(|| {
            StorageErrorKind::Mlmodel(format!(
                "has no {} in its flavor {flavor}: save the model again with mlflow.{flavor}",
                fields[0]
            ))
        });
    }
    let names = match &flavors.kind {
        YamlValue::Map(entries) => entries.iter().map(|entry| entry.key.as_str()).collect(),
        _ => Vec::new(),
    };
    Err(StorageErrorKind::Mlmodel(format!(
        "has the flavors {names:?}, none of which is xgboost, lightgbm or sklearn: save the trees \
         with mlflow.xgboost or mlflow.lightgbm"
    )))
}

#[cfg(test)]
mod tests;
