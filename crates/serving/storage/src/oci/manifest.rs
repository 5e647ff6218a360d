//! Selects the layer of a manifest that contains the model file.

use albacore_settings::Digest;
use serde_json::Value;

use crate::error::StorageErrorKind;
use crate::folder::is_model;

/// Annotation with the file name of a layer, as written by ORAS.
const TITLE: &str = "org.opencontainers.image.title";

/// The layer that contains the model file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Layer {
    pub(super) digest: Digest,
    pub(super) bytes: u64,
}

/// Returns the only layer, or the only one whose title has an extension of models.
pub(super) fn model_layer(manifest: &[u8]) -> Result<Layer, StorageErrorKind> {
    let manifest: Value = serde_json::from_slice(manifest)
        .map_err(|error| problem(&format!("has a manifest that is not JSON ({error})")))?;
    if manifest.get("manifests").is_some() {
        return Err(problem("is an index of several artifacts"));
    }
    let layers = manifest["layers"].as_array().map_or(&[][..], Vec::as_slice);
    let models: Vec<&Value> = layers
        .iter()
        .filter(|&layer| has_model_title(layer))
        .collect();
    let layer = match (models.as_slice(), layers) {
        (&[layer], _) | ([], [layer]) => layer,
        ([], []) => return Err(problem("has no layers")),
        ([], _) => {
            return Err(problem(
                "has several layers, none with the title of a model file",
            ));
        }
        _ => return Err(problem("has several model files")),
    };
    let media_type = layer["mediaType"].as_str().unwrap_or_default();
    if media_type.contains("tar") {
        return Err(problem("has an archive as its layer, not the file itself"));
    }
    let digest = layer["digest"].as_str().unwrap_or_default();
    let digest = digest.strip_prefix("sha256:").map(str::parse);
    match (digest, layer["size"].as_u64()) {
        (Some(Ok(digest)), Some(bytes)) => Ok(Layer { digest, bytes }),
        _ => Err(problem("has a layer without a sha256 digest and a size")),
    }
}

fn has_model_title(layer: &Value) -> bool {
    let title = layer["annotations"][TITLE].as_str();
    title.is_some_and(is_model)
}

fn problem(found: &str) -> StorageErrorKind {
    StorageErrorKind::Store {
        found: found.to_owned(),
        remedy: "push the model file alone, as `oras push registry/repository:tag model.ubj` does"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn layer(title: &str, byte: u8) -> Value {
        json!({
            "mediaType": "application/octet-stream", "size": 7,
            "digest": format!("sha256:{}", Digest([byte; 32])), "annotations": {TITLE: title},
        })
    }

    fn found(layers: Vec<Value>) -> Result<u8, String> {
        let manifest = json!({ "layers": layers }).to_string();
        let layer = model_layer(manifest.as_bytes()).map_err(|problem| problem.to_string())?;
        assert_eq!(layer.bytes, 7);
        Ok(layer.digest.0[0])
    }

    #[test]
    fn the_only_layer_and_the_only_model_are_found() {
        assert_eq!(found(vec![layer("any", 1)]), Ok(1));
        let beside = vec![layer("README.md", 1), layer("model.ubj", 2)];
        assert_eq!(found(beside), Ok(2));
    }

    #[test]
    fn other_artifacts_are_rejected_with_the_reason() {
        let mut archive = layer("models", 1);
        archive["mediaType"] = "application/vnd.oci.image.layer.v1.tar+gzip".into();
        let mut sizeless = layer("model.ubj", 1);
        sizeless["size"] = Value::Null;
        for (layers, words) in [
            (vec![], "has no layers"),
            (
                vec![layer("a.md", 1), layer("b.md", 2)],
                "none with the title",
            ),
            (
                vec![layer("a.ubj", 1), layer("b.ubj", 2)],
                "has several model files",
            ),
            (vec![archive], "has an archive as its layer"),
            (vec![sizeless], "without a sha256 digest and a size"),
        ] {
            let error = found(layers).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
        for (text, words) in [
            (&b"<html>"[..], "has a manifest that is not JSON"),
            (br#"{"manifests": []}"#, "is an index of several artifacts"),
        ] {
            let error = model_layer(text).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
