//! Compiles a fetched file. If an `MLmodel` file is present, the model behaves like the Python
//! object that MLflow loads from the folder.

use albacore_engine::{Iterations, LoadedModel};
use albacore_storage::{Estimator, Fetched};

/// Checks and compiles a file.
///
/// # Errors
/// A message: the file cannot be compiled, or lacks the output that MLflow returns.
pub(crate) fn compile(
    name: &str,
    fetched: &Fetched,
    iterations: Iterations,
) -> Result<LoadedModel, String> {
    let Some(python) = fetched.python else {
        return LoadedModel::compile(name, &fetched.bytes, iterations);
    };
    let model = match python.estimator {
        Estimator::Booster => LoadedModel::compile_booster(name, &fetched.bytes, iterations)?,
        Estimator::Regressor => LoadedModel::compile(name, &fetched.bytes, iterations)?,
        Estimator::Classifier | Estimator::Sklearn => {
            let model = LoadedModel::compile(name, &fetched.bytes, iterations)?;
            model.require_classes(python.estimator == Estimator::Classifier)?;
            model
        }
    };
    match python.is_predict_proba {
        true => model.with_probabilities(),
        false => Ok(model),
    }
}
