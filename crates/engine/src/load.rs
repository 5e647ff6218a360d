//! Makes models: bytes of a file -> compiled image in sealed memory, and what the front may know.

use std::sync::Arc;
use std::time::Instant;

use albacore_os::SharedMemory;
use albacore_trees::{Format, Image, Model, Predictor};

use super::model::{Edition, Objective};
use super::{Kind, KindSet, ModelInfo};
use crate::layout::outputs_of;
use crate::orders::EditionId;

/// A model that is ready to be served: its image can never change again.
#[derive(Debug)]
pub struct LoadedModel {
    pub(super) info: ModelInfo,
    pub(super) objective: Option<Objective>,
    pub(super) image: SharedMemory,
}

impl LoadedModel {
    /// Checks and compiles the bytes of a model file.
    ///
    /// # Errors
    /// A sentence: the bytes are no model, damaged, or of a model that is not supported.
    pub fn compile(name: &str, bytes: &[u8]) -> Result<Self, String> {
        let model = Model::parse(bytes).map_err(|error| error.to_string())?;
        let platform = match model.format() {
            Format::XgboostUbjson => "xgboost_ubj",
            Format::XgboostJson => "xgboost_json",
            Format::LightgbmText => "lightgbm_text",
            Format::SklearnJson => "sklearn_json",
        };
        let start = Instant::now();
        let mut clock = || u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        // Measured here, once: the workers find the choices in the image.
        let image = Image::compile(&model).tuned(&mut clock);
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
            image,
        })
    }

    /// The same model with an objective, for an engine that starts with it.
    #[must_use]
    pub fn with_objective(self, objective: Option<Objective>) -> Self {
        Self { objective, ..self }
    }

    /// What the front may know of it.
    #[must_use]
    pub fn info(&self) -> &ModelInfo {
        &self.info
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
