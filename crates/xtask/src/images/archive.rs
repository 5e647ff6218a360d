//! An image as an archive of the OCI image layout: what `ctr images import` and registries take.
//!
//! Blobs are named by their SHA-256; configuration, manifest and index are JSON with sorted names.
//! The crate `oci-spec` keeps labels in hash maps, so its bytes would differ from run to run; the
//! few objects are written here.

use std::io::{Error, ErrorKind, Result};

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::layer::{layer, tar};
use super::{Image, Source};

const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// An archive and the name of what is in it.
pub struct Written {
    pub bytes: Vec<u8>,
    /// `sha256:...` of the manifest: the digest by which a chart or a pod can name the image.
    pub digest: String,
}

/// The image's archive with its programs, whose bytes are in the order of [`Image::programs`].
///
/// # Errors
/// A machine whose kind the OCI has no name for; a name that a tar cannot hold.
pub fn write(image: &Image, source: &Source, programs: &[&[u8]]) -> Result<Written> {
    let names = image.programs.iter().map(|program| program.name);
    let files: Vec<(&str, &[u8])> = names.zip(programs.iter().copied()).collect();
    let layer = layer(&files, source.epoch)?;
    let config = text(configuration(image, source, &digest(&layer.tar))?);
    let manifest = text(json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": descriptor(CONFIG, &config),
        "layers": [descriptor(LAYER, &layer.gzip)],
        "annotations": labels(image, source),
    }));
    let mut named = descriptor(MANIFEST, &manifest);
    named["platform"] = json!({"architecture": architecture()?, "os": "linux"});
    named["annotations"] = json!({
        "io.containerd.image.name": image.reference(source),
        "org.opencontainers.image.ref.name": source.version,
    });
    let index = text(json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [named]}));

    let blobs = [&layer.gzip, &config, &manifest];
    let mut blobs = blobs.map(|blob| (format!("blobs/sha256/{}", hex(blob)), blob.as_slice()));
    blobs.sort();
    let mut files: Vec<(&str, u32, &[u8])> = blobs
        .iter()
        .map(|(path, blob)| (path.as_str(), 0o444, *blob))
        .collect();
    files.push(("index.json", 0o444, &index));
    files.push(("oci-layout", 0o444, br#"{"imageLayoutVersion":"1.0.0"}"#));
    Ok(Written {
        bytes: tar(&files, source.epoch)?,
        digest: digest(&manifest),
    })
}

fn configuration(image: &Image, source: &Source, layer: &str) -> Result<Value> {
    let ports: Map<String, Value> = image
        .ports
        .iter()
        .map(|port| (format!("{port}/tcp"), json!({})))
        .collect();
    let entrypoint = image.programs.first();
    let entrypoint = entrypoint.ok_or_else(|| Error::other("the image has no program"))?;
    Ok(json!({
        "created": source.created(),
        "architecture": architecture()?,
        "os": "linux",
        "config": {
            "User": image.user,
            "Entrypoint": [format!("/{}", entrypoint.name)],
            "Env": ["PATH=/"],
            "WorkingDir": "/",
            "ExposedPorts": ports,
            "Labels": labels(image, source),
        },
        "rootfs": {"type": "layers", "diff_ids": [layer]},
        "history": [{"created": source.created(), "created_by": "make images"}],
    }))
}

fn labels(image: &Image, source: &Source) -> Value {
    let mut labels = json!({
        "org.opencontainers.image.title": image.name,
        "org.opencontainers.image.description": image.description,
        "org.opencontainers.image.version": source.version,
        "org.opencontainers.image.created": source.created(),
        "org.opencontainers.image.licenses": env!("CARGO_PKG_LICENSE"),
        "org.opencontainers.image.url": env!("CARGO_PKG_REPOSITORY"),
    });
    if let Some(revision) = &source.revision {
        labels["org.opencontainers.image.revision"] = json!(revision);
    }
    labels
}

/// The OCI name of the architecture of this machine, which is also the one compiled for.
fn architecture() -> Result<&'static str> {
    match std::env::consts::ARCH {
        "x86_64" => Ok("amd64"),
        "aarch64" => Ok("arm64"),
        other => Err(Error::new(
            ErrorKind::Unsupported,
            format!("images are made on x86_64 and aarch64; this machine is {other}"),
        )),
    }
}

fn descriptor(kind: &str, blob: &[u8]) -> Value {
    json!({"mediaType": kind, "digest": digest(blob), "size": blob.len()})
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex(bytes))
}

/// SHA-256 in hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    let sum = Sha256::digest(bytes);
    sum.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// JSON with sorted names, on one line.
fn text(mut value: Value) -> Vec<u8> {
    value.sort_all_objects();
    value.to_string().into_bytes()
}
