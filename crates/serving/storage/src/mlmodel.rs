//! What the file `MLmodel` of a folder that MLflow wrote says: the model file, and what MLflow's
//! scoring server answers with.
//!
//! Pickles and skops files are named, too: reading them says how they are converted.

use std::fs::File;
use std::io::Read;
use std::path::{Component, Path};

use albacore_settings::yaml_tree::{self, Kind, Node};

use crate::error::Problem;
use crate::limits::MLMODEL_BYTES_MAX;

pub(crate) const FILE: &str = "MLmodel";

/// Flavors of trees, each with the fields that may name its file.
const FLAVORS: [(&str, [&str; 2]); 3] = [
    ("xgboost", ["data", "data"]),
    ("lightgbm", ["data", "data"]),
    (SKLEARN, ["pickled_model", "data"]),
];

const SKLEARN: &str = "sklearn";

/// The classes of Python whose `predict` gives values.
const REGRESSOR_CLASSES: [&str; 7] = [
    "xgboost.sklearn.XGBRegressor",
    "xgboost.sklearn.XGBRFRegressor",
    "xgboost.sklearn.XGBRanker",
    "xgboost.sklearn.XGBModel",
    "lightgbm.sklearn.LGBMRegressor",
    "lightgbm.sklearn.LGBMRanker",
    "lightgbm.sklearn.LGBMModel",
];

/// The classes of Python whose `predict` gives classes.
const CLASSIFIER_CLASSES: [&str; 3] = [
    "xgboost.sklearn.XGBClassifier",
    "xgboost.sklearn.XGBRFClassifier",
    "lightgbm.sklearn.LGBMClassifier",
];

/// What an `MLmodel` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mlmodel {
    /// The model file, by its path in the folder.
    pub(crate) file: String,
    pub(crate) python: PythonModel,
}

/// The object that MLflow's scoring server makes of a folder, and what it calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PythonModel {
    pub estimator: Estimator,
    /// It calls `predict_proba` in place of `predict`.
    pub is_predict_proba: bool,
}

/// Kinds of objects by what their `predict` gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Estimator {
    /// Values of all iterations, whichever object trained the model.
    Booster,
    /// Classes.
    Classifier,
    /// Values.
    Regressor,
    /// One of scikit-learn's interface; `MLmodel` does not say which.
    Sklearn,
}

impl std::fmt::Display for PythonModel {
    /// A word that differs where models differ.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let function = match self.is_predict_proba {
            true => "predict_proba",
            false => "predict",
        };
        write!(f, "{:?}.{function}", self.estimator)
    }
}

/// What `MLmodel` in this folder says; `None` if the folder has none.
pub(crate) fn read_folder(folder: &Path) -> Result<Option<Mlmodel>, Problem> {
    match File::open(folder.join(FILE)) {
        Ok(file) => read(file),
        Err(_) => Ok(None),
    }
}

/// What an `MLmodel` says; `None` if it has no flavors: then it is not MLflow's.
///
/// # Errors
/// No flavor is one of trees, the file's path leaves the folder, or MLflow answers with what is not
/// computed here.
pub(crate) fn read(mlmodel: impl Read) -> Result<Option<Mlmodel>, Problem> {
    let mut text = String::new();
    let read = mlmodel.take(MLMODEL_BYTES_MAX).read_to_string(&mut text);
    read.map_err(|error| Problem::Mlmodel(format!("cannot be read: {error}")))?;
    if text.len() as u64 == MLMODEL_BYTES_MAX {
        let problem = format!("has more than {MLMODEL_BYTES_MAX} bytes");
        return Err(Problem::Mlmodel(problem));
    }
    let tree = yaml_tree::parse(&text).map_err(Problem::Mlmodel)?;
    let Some(flavors) = tree.get("flavors") else {
        return Ok(None);
    };
    let (flavor, path) = flavor_file(flavors)?;
    let is_inside = |part| matches!(part, Component::Normal(_) | Component::CurDir);
    if !Path::new(path).components().all(is_inside) {
        return Err(Problem::Mlmodel(format!(
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

fn estimator(flavors: &Node, flavor: &str) -> Result<Estimator, Problem> {
    if flavor == SKLEARN {
        return Ok(Estimator::Sklearn);
    }
    let class = flavors
        .get(flavor)
        .and_then(|found| found.get("model_class")?.text());
    match class {
        // MLflow, too, takes a folder without it for that of a booster.
        None | Some("xgboost.core.Booster" | "lightgbm.basic.Booster") => Ok(Estimator::Booster),
        Some(class) if CLASSIFIER_CLASSES.contains(&class) => Ok(Estimator::Classifier),
        Some(class) if REGRESSOR_CLASSES.contains(&class) => Ok(Estimator::Regressor),
        Some(class) => Err(Problem::Mlmodel(format!(
            "has the model_class {class:?}, whose predict is not known here: save its booster \
             with mlflow.{flavor}"
        ))),
    }
}

/// Whether MLflow calls `predict_proba`; the flavor of scikit-learn alone has other functions than
/// `predict`.
fn is_predict_proba(flavor: &str, function: &str) -> Result<bool, Problem> {
    match (flavor, function) {
        (_, "predict") => Ok(false),
        (SKLEARN, "predict_proba") => Ok(true),
        (SKLEARN, _) => Err(Problem::Mlmodel(format!(
            "has the predict_fn {function:?}, which is not computed here: save the model again \
             with pyfunc_predict_fn=\"predict\" or \"predict_proba\""
        ))),
        _ => Err(Problem::Mlmodel(format!(
            "has the predict_fn {function:?}, which the flavor {flavor} of MLflow does not have: \
             save the model again with mlflow.{flavor}"
        ))),
    }
}

/// The flavor of trees, and the file that it names.
fn flavor_file(flavors: &Node) -> Result<(&'static str, &str), Problem> {
    for (flavor, fields) in FLAVORS {
        let Some(found) = flavors.get(flavor) else {
            continue;
        };
        let named = fields
            .into_iter()
            .find_map(|field| found.get(field)?.text());
        return named.map(|file| (flavor, file)).ok_or_else(|| {
            Problem::Mlmodel(format!(
                "has no {} in its flavor {flavor}: save the model again with mlflow.{flavor}",
                fields[0]
            ))
        });
    }
    let names = match &flavors.kind {
        Kind::Map(entries) => entries.iter().map(|entry| entry.key.as_str()).collect(),
        _ => Vec::new(),
    };
    Err(Problem::Mlmodel(format!(
        "has the flavors {names:?}, none of which is xgboost, lightgbm or sklearn: save the trees \
         with mlflow.xgboost or mlflow.lightgbm"
    )))
}

#[cfg(test)]
mod tests;
