//! Accepted and rejected `MLmodel` files.

use super::*;

fn found(text: &str) -> Result<Option<String>, String> {
    read(text.as_bytes())
        .map(|found| found.map(|it| it.file))
        .map_err(|problem| problem.to_string())
}

#[test]
fn the_file_of_a_tree_flavor_is_found() {
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
fn other_flavors_and_paths_outside_of_the_folder_are_rejected() {
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

fn python_of(flavors: &str) -> Result<PythonModel, String> {
    let found = read(format!("flavors: {{{flavors}}}").as_bytes());
    let found = found.map_err(|problem| problem.to_string())?;
    found.map(|it| it.python).ok_or_else(|| "none".to_owned())
}

#[test]
fn the_object_that_mlflow_loads_is_determined() {
    use Estimator::{Booster, Classifier, Regressor, Sklearn};
    for (flavors, estimator, is_predict_proba) in [
        ("xgboost: {data: m}", Booster, false),
        (
            "xgboost: {data: m, model_class: xgboost.core.Booster}",
            Booster,
            false,
        ),
        (
            "xgboost: {data: m, model_class: xgboost.sklearn.XGBRFClassifier}",
            Classifier,
            false,
        ),
        (
            "lightgbm: {data: m, model_class: lightgbm.sklearn.LGBMRegressor}",
            Regressor,
            false,
        ),
        (
            "sklearn: {pickled_model: m}, python_function: {predict_fn: predict}",
            Sklearn,
            false,
        ),
        (
            "sklearn: {pickled_model: m}, python_function: {predict_fn: predict_proba}",
            Sklearn,
            true,
        ),
    ] {
        let expected = PythonModel {
            estimator,
            is_predict_proba,
        };
        assert_eq!(python_of(flavors), Ok(expected), "{flavors}");
    }
}

#[test]
fn unsupported_predict_functions_and_classes_are_rejected_by_name() {
    for function in ["predict_log_proba", "predict_joint_log_proba", "score"] {
        let flavors =
            format!("sklearn: {{pickled_model: m}}, python_function: {{predict_fn: {function}}}");
        let problem = python_of(&flavors).unwrap_err();
        let way_out = "save the model again with pyfunc_predict_fn=\"predict\"";
        assert!(problem.contains(function), "{problem}");
        assert!(problem.contains(way_out), "{problem}");
    }
    for (flavors, part) in [
        (
            "xgboost: {data: m}, python_function: {predict_fn: predict_proba}",
            "\"predict_proba\", which the flavor xgboost of MLflow does not have",
        ),
        (
            "xgboost: {data: m, model_class: own.Classifier}",
            "has the model_class \"own.Classifier\"",
        ),
    ] {
        let problem = python_of(flavors).unwrap_err();
        assert!(problem.contains(part), "{problem}");
    }
}
