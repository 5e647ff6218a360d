//! Loads models: file -> compiled image in sealed memory, and what the front may know of it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use albacore_os::SharedMemory;
use albacore_settings::{Digest, Source};
use albacore_storage::{Fetched, Storage};
use albacore_trees::{Format, Model, Predictor};

use super::model::{Edition, Objective};
use super::{Kind, KindSet, ModelInfo};
use crate::layout::outputs_of;
use crate::orders::EditionId;

/// Percent of the requests that must keep an objective that says nothing of it.
const PERCENTILE: f64 = 99.0;

/// A model to serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelConfig {
    /// The name that requests use.
    pub name: String,
    /// The file.
    pub path: PathBuf,
    /// Replies later than this are counted late.
    pub slo: Option<Duration>,
}

/// A model that is ready to be served: its image can never change again.
#[derive(Debug)]
pub struct LoadedModel {
    pub(super) info: ModelInfo,
    pub(super) objective: Option<Objective>,
    pub(super) sha256: Digest,
    pub(super) image: SharedMemory,
}

/// A model cannot be served.
#[derive(Debug, thiserror::Error)]
#[error("model {name:?}: {reason}")]
pub struct LoadError {
    /// The model's name.
    pub name: String,
    /// Its file.
    pub path: PathBuf,
    /// Which file, why, and what to do.
    pub reason: String,
}

impl LoadedModel {
    /// Reads, checks and compiles a model of the disk.
    ///
    /// # Errors
    /// The file cannot be read, is no model, is damaged, or holds a model that is not supported.
    pub fn load(config: &ModelConfig, storage: &Storage) -> Result<Self, LoadError> {
        let failed = |reason: String| LoadError {
            name: config.name.clone(),
            path: config.path.clone(),
            reason,
        };
        let path = config.path.to_str().ok_or("its name is not UTF-8");
        let source = Source::Path(path.map_err(|reason| failed(reason.to_owned()))?.to_owned());
        let fetched = storage.fetch(&source, None, &|| true);
        let fetched = fetched.map_err(|error| failed(error.to_string()))?;
        let compiled = Self::compile(&config.name, &fetched);
        let of_file = |reason| failed(format!("{}: {reason}", config.path.display()));
        let mut model = compiled.map_err(of_file)?;
        model.objective = config.slo.map(|latency| Objective {
            latency,
            percentile: PERCENTILE,
        });
        Ok(model)
    }

    /// Checks and compiles the bytes of a model file.
    ///
    /// # Errors
    /// A sentence: the bytes are no model, damaged, or of a model that is not supported.
    pub fn compile(name: &str, fetched: &Fetched) -> Result<Self, String> {
        let model = Model::parse(&fetched.bytes).map_err(|error| error.to_string())?;
        let platform = match model.format() {
            Format::XgboostUbjson => "xgboost_ubj",
            Format::XgboostJson => "xgboost_json",
            Format::LightgbmText => "lightgbm_text",
        };
        let image = model.compile();
        drop(model);
        let predictor = Predictor::open(image.bytes()).map_err(|error| error.to_string())?;
        let info = ModelInfo {
            name: name.to_owned(),
            platform: platform.to_owned(),
            features: predictor.features(),
            outputs: outputs_of(&predictor, Kind::ALL.into_iter().collect::<KindSet>()),
        };
        let image = SharedMemory::holding("albacore-model", image.bytes())
            .map_err(|error| describe(&error))?;
        Ok(Self {
            info,
            objective: None,
            sha256: fetched.sha256,
            image,
        })
    }

    /// What the front may know of it.
    #[must_use]
    pub fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// SHA-256 of its file.
    #[must_use]
    pub fn sha256(&self) -> Digest {
        self.sha256
    }

    /// As an edition of the model in this slot.
    pub(super) fn at(self, id: EditionId, slot: usize) -> Arc<Edition> {
        Arc::new(Edition {
            id,
            slot,
            info: self.info,
            image: self.image,
        })
    }
}

/// An error with all of its sources.
pub(super) fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}
