//! Models of the command line: loaded once, at startup.

use std::time::Duration;

use albacore_engine::{Iterations, LoadedModel, Slo};
use albacore_settings::agent_stream::ModelParameters;
use albacore_settings::{Digest, ModelSettings, SchemaNames, Source, WEIGHT_DEFAULT};
use albacore_storage::Storage;

use crate::config_watcher::{log_fetched, log_iterations_notice};
use crate::effective_config::ModelConfig;
use crate::mlflow;

/// Percentile of latency objectives set on the command line.
const PERCENTILE: f64 = 99.0;

/// A model given by `--model`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CliModel {
    /// Name in requests.
    pub name: String,
    /// URL or path of the model; a relative path is resolved against the working directory.
    pub source: Source,
    /// Latency objective: replies that take longer count as late.
    pub slo: Option<Duration>,
}

/// Error of loading a model of the command line.
#[derive(Debug, thiserror::Error)]
#[error("model {name:?}: {reason}")]
pub struct LoadError {
    name: String,
    reason: String,
}

impl CliModel {
    /// Returns the configuration of the model, with default parameters.
    #[must_use]
    pub fn config(&self) -> ModelConfig {
        ModelConfig {
            slo: self.slo.map(|latency| Slo::uniform(latency, PERCENTILE)),
            parameters: ModelParameters::defaults(self.name.clone()),
        }
    }

    /// Returns the equivalent entry of a settings file.
    pub(crate) fn settings(&self) -> ModelSettings {
        ModelSettings {
            name: self.name.clone(),
            source: self.source.clone(),
            sha256: None,
            iterations: None,
            slo: self.config().slo,
            outputs: Vec::new(),
            threads: None,
            weight: WEIGHT_DEFAULT,
            batching: None,
            schema_names: SchemaNames::default(),
        }
    }

    /// Reads, checks and compiles the model; also returns the SHA-256 of its file.
    ///
    /// # Errors
    /// The file cannot be read, is not a model, is corrupt, or contains an unsupported model.
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
