//! The text of `settings.yaml`, with the mount paths of model files.

use std::collections::BTreeMap;

use albacore_api::{InferenceDeploymentSpec, ModelPlace, ModelSpec, Violation, settings_of};

/// A volume that contains models.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum ModelVolume {
    /// A PersistentVolumeClaim, by name.
    Claim(String),
    /// A ConfigMap, by name.
    ConfigMap(String),
}

/// The distinct volumes of the models, with their mount paths.
pub(crate) fn model_volumes(models: &[ModelSpec]) -> BTreeMap<ModelVolume, String> {
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
/// The server's own validation would reject the settings.
pub(crate) fn settings_text(spec: &InferenceDeploymentSpec) -> Result<String, Vec<Violation>> {
    settings_of(spec, |place| Ok(place.source_in_pod())).map(|settings| settings.to_yaml())
}
