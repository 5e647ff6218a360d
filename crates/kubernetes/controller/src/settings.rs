//! The text of `settings.yaml`, with the paths where the files of models are mounted.

use std::collections::BTreeMap;

use albacore_api::{InferenceDeploymentSpec, Model, ModelPlace, Violation, settings_of};

/// A volume that holds models.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum ModelVolume {
    /// A PersistentVolumeClaim, by name.
    Claim(String),
    /// A ConfigMap, by name.
    ConfigMap(String),
}

/// The volumes of the models, each once, with their mount paths.
pub(crate) fn model_volumes(models: &[Model]) -> BTreeMap<ModelVolume, String> {
    let volumes = models.iter().filter_map(|model| {
        let place = &model.uri.place;
        let volume = match place {
            ModelPlace::Pvc { claim, .. } => ModelVolume::Claim(claim.clone()),
            ModelPlace::ConfigMap { name, .. } => ModelVolume::ConfigMap(name.clone()),
            ModelPlace::File { .. } | ModelPlace::Url { .. } => return None,
        };
        Some((volume, place.mount_folder()?))
    });
    volumes.collect()
}

/// The text of `settings.yaml` for a valid spec.
///
/// # Errors
/// The settings would be refused by the server's own check.
pub(crate) fn settings_text(spec: &InferenceDeploymentSpec) -> Result<String, Vec<Violation>> {
    settings_of(spec, |place| Ok(place.source_in_pod())).map(|settings| settings.to_yaml())
}
