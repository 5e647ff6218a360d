//! The models of the command line: loaded once, at start.

use std::time::Duration;

use albacore_engine::{Iterations, LoadedModel, Slo};
use albacore_settings::agent_stream::ModelParameters;
use albacore_settings::{Digest, Model, Naming, Source, WEIGHT_DEFAULT};
use albacore_storage::Storage;

use crate::config_watcher::{log_fetched, log_iterations_notice};
use crate::effective_config::ModelConfig;
use crate::mlflow;

/// Percent of the requests that must keep an objective of the command line.
const PERCENTILE: f64 = 99.0;

/// A model of `--model`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CliModel {
    /// The name that requests use.
    pub name: String,
    /// Its path, absolute or relative to the folder of the process, or its URL.
    pub source: Source,
    /// Replies later than this are counted late.
    pub slo: Option<Duration>,
}

/// A model cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[error("model {name:?}: {reason}")]
pub struct LoadError {
    name: String,
    reason: String,
}

impl CliModel {
    /// Its configuration with default parameters.
    #[must_use]
    pub fn config(&self) -> ModelConfig {
        ModelConfig {
            slo: self.slo.map(|latency| Slo::uniform(latency, PERCENTILE)),
            parameters: ModelParameters::defaults(self.name.clone()),
        }
    }

    /// What a settings file would say of it.
    pub(crate) fn settings(&self) -> Model {
        Model {
            name: self.name.clone(),
            source: self.source.clone(),
            sha256: None,
            iterations: None,
            slo: self.config().slo,
            outputs: Vec::new(),
            threads: None,
            weight: WEIGHT_DEFAULT,
            batching: None,
            naming: Naming::default(),
        }
    }

    /// Reads, checks and compiles the model; also returns the SHA-256 of its file.
    ///
    /// # Errors
    /// The file cannot be read, is not a model, is damaged, or holds an unsupported model.
    pub fn load(&self, storage: &Storage) -> Result<(LoadedModel, Digest), LoadError> {
        let load = || -> Result<_, String> {
            let fetched = storage.fetch(&self.source, None, &|| true);
            let fetched = fetched.map_err(|error| error.to_string())?;
            log_fetched(&self.name, &self.source, &fetched);
            let model = mlflow::compile(&self.name, &fetched, Iterations::AsSaved);
            let source = albacore_storage::redacted(&self.source);
            let model = model.map_err(|reason| format!("{source}: {reason}"))?;
            log_iterations_notice(model.info());
            Ok((model, fetched.sha256))
        };
        let name = self.name.clone();
        load().map_err(|reason| LoadError { name, reason })
    }
}
