//! The model file of a folder that MLflow wrote, as its file `MLmodel` names it.
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
    ("sklearn", ["pickled_model", "data"]),
];

/// The file that `MLmodel` in this folder names, by its path in it; `None` if the folder has none.
pub(crate) fn of_folder(folder: &Path) -> Result<Option<String>, Problem> {
    match File::open(folder.join(FILE)) {
        Ok(file) => named_file(file),
        Err(_) => Ok(None),
    }
}

/// The file that an `MLmodel` names, by its path in the folder; `None` if it has no flavors: then
/// it is not MLflow's.
///
/// # Errors
/// No flavor is one of trees, or the file's path leaves the folder.
pub(crate) fn named_file(mlmodel: impl Read) -> Result<Option<String>, Problem> {
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
    let path = flavor_file(flavors)?;
    let is_inside = |part| matches!(part, Component::Normal(_) | Component::CurDir);
    if !Path::new(path).components().all(is_inside) {
        return Err(Problem::Mlmodel(format!(
            "names the file {path:?}, which is outside of the folder"
        )));
    }
    Ok(Some(path.to_owned()))
}

fn flavor_file(flavors: &Node) -> Result<&str, Problem> {
    for (flavor, fields) in FLAVORS {
        let Some(found) = flavors.get(flavor) else {
            continue;
        };
        let named = fields
            .into_iter()
            .find_map(|field| found.get(field)?.text());
        return named.ok_or_else(|| {
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
mod tests {
    use super::*;

    fn found(text: &str) -> Result<Option<String>, String> {
        named_file(text.as_bytes()).map_err(|problem| problem.to_string())
    }

    #[test]
    fn the_file_of_a_flavor_of_trees_is_found() {
        for (text, file) in [
            (
                "flavors:\n  python_function: {data: x}\n  xgboost:\n    code: null\n    data: model.ubj\n",
                "model.ubj",
            ),
            (
                "flavors: {lightgbm: {data: data/model.lgb}}",
                "data/model.lgb",
            ),
            (
                "flavors: {sklearn: {pickled_model: model.pkl}}",
                "model.pkl",
            ),
            ("flavors: {sklearn: {data: model.skops}}", "model.skops"),
        ] {
            assert_eq!(found(text), Ok(Some(file.to_owned())), "{text}");
        }
        assert_eq!(found("name: other\n"), Ok(None));
    }

    #[test]
    fn other_flavors_and_other_folders_are_refused() {
        for (text, part) in [
            (
                "flavors: {python_function: {}, pytorch: {data: x}}",
                "\"python_function\", \"pytorch\"], none",
            ),
            (
                "flavors: {xgboost: {code: null}}",
                "has no data in its flavor xgboost",
            ),
            (
                "flavors: {xgboost: {data: ../model.ubj}}",
                "outside of the folder",
            ),
            (
                "flavors: {xgboost: {data: /etc/passwd}}",
                "outside of the folder",
            ),
            ("flavors: {xgboost: [", "MLmodel"),
        ] {
            let problem = found(text).unwrap_err();
            assert!(
                problem.contains(part) && problem.contains("MLmodel"),
                "{problem}"
            );
        }
    }
}
