//! Paths of model files in the pods of a deployment.

use albacore_settings::Source;

use crate::uri::ModelPlace;

/// Parent directory of the mounts of all claims and ConfigMaps that contain models.
pub const MODELS_FOLDER: &str = "/models";

impl ModelPlace {
    /// Mount path of the volume with the file; `None` for a place without a volume.
    #[must_use]
    pub fn mount_folder(&self) -> Option<String> {
        match self {
            Self::Pvc { claim, .. } => Some(format!("{MODELS_FOLDER}/pvc/{claim}")),
            Self::ConfigMap { name, .. } => Some(format!("{MODELS_FOLDER}/configmap/{name}")),
            Self::File { .. } | Self::Url { .. } => None,
        }
    }

    /// Location of the file for a server in a pod.
    #[must_use]
    pub fn source_in_pod(&self) -> Source {
        let folder = self.mount_folder().unwrap_or_default();
        match self {
            Self::File { path } => Source::Path(path.clone()),
            Self::Pvc { path, .. } => Source::Path(format!("{folder}/{path}")),
            Self::ConfigMap { key, .. } => Source::Path(format!("{folder}/{key}")),
            Self::Url { url } => Source::Url(url.clone()),
        }
    }

    /// The place of the same file from within a pod, without its volume.
    #[must_use]
    pub fn in_pod(&self) -> Self {
        match self.source_in_pod() {
            Source::Path(path) => Self::File { path },
            Source::Url(url) => Self::Url { url },
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::uri::ModelUri;

    #[test]
    fn a_pod_reads_files_of_volumes_below_their_mounts() {
        for (uri, in_pod, folder) in [
            (
                "pvc://models/v1/a.ubj",
                "file:///models/pvc/models/v1/a.ubj",
                Some("/models/pvc/models"),
            ),
            (
                "configmap://fraud-model/a.ubj",
                "file:///models/configmap/fraud-model/a.ubj",
                Some("/models/configmap/fraud-model"),
            ),
            ("file:///a.ubj", "file:///a.ubj", None),
            ("http://models/a.ubj", "http://models/a.ubj", None),
        ] {
            let uri: ModelUri = uri.parse().unwrap();
            assert_eq!(uri.place.in_pod().to_string(), in_pod);
            assert_eq!(uri.place.mount_folder().as_deref(), folder);
        }
    }
}
