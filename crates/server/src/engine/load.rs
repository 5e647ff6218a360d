//! Loads models: file -> compiled image in sealed memory, and what the front may know of it.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use albacore_os::SharedMemory;
use albacore_trees::{Format, Model, Predictor};

use super::{Kind, KindSet, ModelInfo};
use crate::layout::outputs_of;
use crate::limits::MODEL_FILE_BYTES_MAX;

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
    pub(super) slo: Option<Duration>,
    pub(super) image: SharedMemory,
}

/// A model cannot be served.
#[derive(Debug, thiserror::Error)]
#[error("model {name:?} of {}: {reason}", path.display())]
pub struct LoadError {
    /// The model's name.
    pub name: String,
    /// Its file.
    pub path: PathBuf,
    /// Why, and what to do.
    pub reason: String,
}

impl LoadedModel {
    /// Reads, checks and compiles a model.
    ///
    /// # Errors
    /// The file cannot be read, is no model, is damaged, or holds a model that is not supported.
    pub fn load(config: &ModelConfig) -> Result<Self, LoadError> {
        load(config).map_err(|reason| LoadError {
            name: config.name.clone(),
            path: config.path.clone(),
            reason,
        })
    }

    /// What the front may know of it.
    #[must_use]
    pub fn info(&self) -> &ModelInfo {
        &self.info
    }
}

fn load(config: &ModelConfig) -> Result<LoadedModel, String> {
    let bytes = read_file(&config.path)?;
    let model = Model::parse(&bytes).map_err(|error| error.to_string())?;
    drop(bytes);
    let platform = match model.format() {
        Format::XgboostUbjson => "xgboost_ubj",
        Format::XgboostJson => "xgboost_json",
        Format::LightgbmText => "lightgbm_text",
    };
    let image = model.compile();
    drop(model);
    let predictor = Predictor::open(image.bytes()).map_err(|error| error.to_string())?;
    let info = ModelInfo {
        name: config.name.clone(),
        platform: platform.to_owned(),
        features: predictor.features(),
        outputs: outputs_of(&predictor, Kind::ALL.into_iter().collect::<KindSet>()),
    };
    let image =
        SharedMemory::holding("albacore-model", image.bytes()).map_err(|error| describe(&error))?;
    Ok(LoadedModel {
        info,
        slo: config.slo,
        image,
    })
}

fn read_file(path: &Path) -> Result<Vec<u8>, String> {
    let file = File::open(path).map_err(|error| format!("cannot be opened: {error}"))?;
    let metadata = file
        .metadata()
        .map_err(|error| format!("cannot be read: {error}"))?;
    if !metadata.is_file() {
        return Err("is not a file: name the model file itself".to_owned());
    }
    if metadata.len() > MODEL_FILE_BYTES_MAX {
        let bytes = metadata.len();
        return Err(format!(
            "has {bytes} bytes; the most are {MODEL_FILE_BYTES_MAX}"
        ));
    }
    let mut bytes = Vec::new();
    let read = file.take(MODEL_FILE_BYTES_MAX).read_to_end(&mut bytes);
    read.map_err(|error| format!("cannot be read: {error}"))?;
    Ok(bytes)
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
