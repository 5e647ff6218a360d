//! The text of `settings.yaml`, with the paths where the files of models are mounted.

use std::collections::BTreeMap;

use albacore_api::{InferenceDeploymentSpec, Model, ModelPlace, Violation, settings_of};
use albacore_settings::Source;

use crate::names::MODELS_FOLDER;

/// A volume that holds models.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum ModelVolume {
    /// A PersistentVolumeClaim, by name.
    Claim(String),
    /// A ConfigMap, by name.
    ConfigMap(String),
}

impl ModelVolume {
    /// Where it is mounted.
    pub(crate) fn folder(&self) -> String {
        match self {
            Self::Claim(name) => format!("{MODELS_FOLDER}/pvc/{name}"),
            Self::ConfigMap(name) => format!("{MODELS_FOLDER}/configmap/{name}"),
        }
    }
}

/// The volumes of the models, each once, with their mount paths.
pub(crate) fn model_volumes(models: &[Model]) -> BTreeMap<ModelVolume, String> {
    let volumes = models.iter().filter_map(|model| match &model.uri.place {
        ModelPlace::Pvc { claim, .. } => Some(ModelVolume::Claim(claim.clone())),
        ModelPlace::ConfigMap { name, .. } => Some(ModelVolume::ConfigMap(name.clone())),
        ModelPlace::File { .. } | ModelPlace::Http { .. } => None,
    });
    volumes
        .map(|volume| (volume.clone(), volume.folder()))
        .collect()
}

/// The text of `settings.yaml` for a valid spec.
///
/// # Errors
/// The settings would be refused by the server's own check.
pub(crate) fn settings_text(spec: &InferenceDeploymentSpec) -> Result<String, Vec<Violation>> {
    settings_of(spec, |place| Ok(source_of(place))).map(|settings| settings.to_yaml())
}

/// Where the server finds a model's file.
pub(crate) fn source_of(place: &ModelPlace) -> Source {
    match place {
        ModelPlace::File { path } => Source::Path(path.clone()),
        ModelPlace::Pvc { claim, path } => {
            let folder = ModelVolume::Claim(claim.clone()).folder();
            Source::Path(format!("{folder}/{path}"))
        }
        ModelPlace::ConfigMap { name, key } => {
            let folder = ModelVolume::ConfigMap(name.clone()).folder();
            Source::Path(format!("{folder}/{key}"))
        }
        ModelPlace::Http { url } => Source::Url(url.clone()),
    }
}
