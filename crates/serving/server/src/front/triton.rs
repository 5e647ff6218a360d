//! Triton's extensions of the protocol: statistics, repository index, loading and unloading. Builds
//! the gRPC messages; the JSON over HTTP has the same fields.

use albacore_call_counts::CallCounts;
use albacore_engine::{Engine, LoopIndex, ModelLookupError};
use albacore_extensions::{RepositoryCall, UnsupportedCall};
use albacore_live_settings::model_control::{ModelAction, ModelControl};
use albacore_live_settings::model_status::{ConfigStatus, LoadState};
use albacore_proto::inference::ModelStatistics;
use albacore_proto::inference::repository_index_response::ModelIndex;

use super::FrontContext;
use super::request_error::{ErrorKind, RequestError};
use super::validate::{self, VERSION};

/// Statistics of a model, or of all models if the name is empty.
///
/// # Errors
/// The model or version is unknown.
pub(super) fn statistics(
    engine: &Engine,
    calls: &CallCounts,
    (name, version): (&str, &str),
) -> Result<Vec<ModelStatistics>, RequestError> {
    if !name.is_empty() {
        validate::find_model(engine, LoopIndex::default(), name, version)?;
    } else if !version.is_empty() {
        return Err(RequestError::invalid(
            "the request has a version but no model: name the model, too",
        ));
    }
    let models = engine.stats().models;
    let selected = models
        .iter()
        .filter(|model| name.is_empty() || model.name == name);
    let statistics = selected.map(|model| calls.statistics(model, VERSION));
    Ok(statistics.collect())
}

/// Lists all models of the settings, or only those that are ready.
pub(super) fn index(engine: &Engine, status: &ConfigStatus, only_ready: bool) -> Vec<ModelIndex> {
    let models = status.models.iter().map(|model| {
        let is_served = model.serving.is_some() && engine.model(&model.name).is_ok();
        let state = match (is_served, model.load_state) {
            (true, _) => "READY",
            (false, LoadState::Failed | LoadState::Unloaded) => "UNAVAILABLE",
            (false, LoadState::Loading | LoadState::Loaded) => "LOADING",
        };
        let without_error = match model.load_state {
            LoadState::Unloaded => "unloaded",
            _ => "",
        };
        ModelIndex {
            name: model.name.clone(),
            version: VERSION.to_owned(),
            state: state.to_owned(),
            reason: model
                .error
                .clone()
                .unwrap_or_else(|| without_error.to_owned()),
        }
    });
    models
        .filter(|model| !only_ready || model.state == "READY")
        .collect()
}

/// Returns the error for a call that is not supported.
pub(super) fn unsupported(call: UnsupportedCall) -> RequestError {
    RequestError::new(ErrorKind::Unimplemented, call.refusal())
}

impl FrontContext {
    /// Loads or unloads a model of the settings.
    pub(super) async fn control_model(
        &self,
        name: &str,
        call: RepositoryCall,
    ) -> Result<(), RequestError> {
        let control = self.model_control()?;
        if self.engine.model(name).err() == Some(ModelLookupError::Unknown) {
            let (name, names) = (validate::excerpt(name), self.engine.names());
            let message = format!(
                "model {name:?} is not in the settings of this server, which have {names:?}: edit \
                 the settings to add a model"
            );
            return Err(RequestError::new(ErrorKind::NotFound, message));
        }
        let action = match call {
            RepositoryCall::Load => ModelAction::Load,
            RepositoryCall::Unload => ModelAction::Unload,
        };
        Ok(control.run(name, action).await?)
    }

    /// Returns the handle for loading and unloading models.
    ///
    /// # Errors
    /// Models are not loaded and unloaded by calls on this server.
    pub(super) fn model_control(&self) -> Result<&ModelControl, RequestError> {
        self.model_control.as_ref().ok_or_else(|| {
            RequestError::new(
                ErrorKind::Unimplemented,
                "models are not loaded or unloaded by calls: edit spec.models of the deployment, \
                 or the settings file, which is reloaded when it changes; or start the server with \
                 --model-control explicit (ALBACORE_MODEL_CONTROL)",
            )
        })
    }
}
