//! The models of the command line: loaded once, before anything is served.

use std::path::PathBuf;
use std::time::Duration;

use albacore_engine::{Iterations, LoadedModel, ModelInfo, Objective};
use albacore_settings::{Digest, Source};
use albacore_storage::Storage;

/// Percent of the requests that must keep an objective of the command line.
const PERCENTILE: f64 = 99.0;

/// A model to serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelConfig {
    /// The name that requests use.
    pub name: String,
    pub path: PathBuf,
    /// Replies later than this are counted late.
    pub slo: Option<Duration>,
}

/// A model cannot be served.
#[derive(Debug, thiserror::Error)]
#[error("model {name:?}: {reason}")]
pub(crate) struct LoadError {
    name: String,
    /// Which file, why, and what to do.
    reason: String,
}

/// Logs the iterations that predict if the file's best iteration leaves a choice that nobody made.
pub(crate) fn report(model: &ModelInfo) {
    if let Some(notice) = &model.iterations_notice {
        tracing::warn!(model = model.name, "{notice}");
    }
}

impl ModelConfig {
    pub(crate) fn objective(&self) -> Option<Objective> {
        self.slo
            .map(|latency| Objective::of_all(latency, PERCENTILE))
    }

    /// Reads, checks and compiles the model; also the SHA-256 of its file.
    ///
    /// # Errors
    /// The file cannot be read, is no model, is damaged, or holds a model that is not supported.
    pub(crate) fn load(&self, storage: &Storage) -> Result<(LoadedModel, Digest), LoadError> {
        let path = self.path.display();
        let load = || -> Result<_, String> {
            let utf8 = self.path.to_str().map(str::to_owned);
            let source = Source::Path(utf8.ok_or_else(|| format!("{path} is not UTF-8"))?);
            let fetched = storage.fetch(&source, None, &|| true);
            let fetched = fetched.map_err(|error| error.to_string())?;
            let model = LoadedModel::compile(&self.name, &fetched.bytes, Iterations::AsSaved);
            let model = model.map_err(|reason| format!("{path}: {reason}"))?;
            report(model.info());
            Ok((model.with_objective(self.objective()), fetched.sha256))
        };
        let name = self.name.clone();
        load().map_err(|reason| LoadError { name, reason })
    }
}
