//! An image as an archive in the OCI image layout, the format of `ctr images import` and of
//! registries.
//!
//! Blobs are named by their SHA-256; configuration, manifest and index are JSON with sorted keys.
//! The crate `oci-spec` stores labels in hash maps, so its output would differ between runs;
//! therefore these few objects are written here.

use std::io::{Error, Result};

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::layer::{Layer, layer, tar};
use super::{Architecture, Image, Source};

const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// An archive and the digest of its content.
pub struct Written {
    pub bytes: Vec<u8>,
    /// `sha256:...` of the manifest or of the index: the digest by which charts and pods can refer
    /// to the image.
    pub digest: String,
}

/// The programs of an image for one architecture.
#[derive(Clone, Copy)]
pub struct Variant<'a> {
    pub architecture: Architecture,
    /// Contents of the programs, in the order of [`Image::programs`].
    pub programs: &'a [&'a [u8]],
}

/// Path and content of each blob.
struct Blobs(Vec<(String, Vec<u8>)>);

impl Blobs {
    /// Adds `blob` and returns its descriptor.
    fn add(&mut self, kind: &str, blob: Vec<u8>) -> Value {
        let described = descriptor(kind, &blob);
        self.0.push((format!("blobs/sha256/{}", hex(&blob)), blob));
        described
    }
}

/// Input of an archive, independent of the content of its layers.
pub(crate) struct Contents<'a> {
    pub(crate) reference: &'a str,
    /// Labels of the image, which are also annotations of its manifest.
    pub(crate) labels: Value,
    /// Fields of the image configuration for starting a container.
    pub(crate) run: Value,
    pub(crate) layers: Vec<(Architecture, Layer)>,
}

/// Writes the image's archive: for one architecture a plain image, for several an index of images,
/// from which runtimes select the image for their machine.
///
/// # Errors
/// There is no variant, or a name cannot be stored in a tar.
pub fn write(image: &Image, source: &Source, variants: &[Variant<'_>]) -> Result<Written> {
    let mut layers = Vec::new();
    for variant in variants {
        let names = image.programs.iter().map(|program| program.name);
        let files: Vec<(&str, &[u8])> = names.zip(variant.programs.iter().copied()).collect();
        layers.push((variant.architecture, layer(&files, source.epoch)?));
    }
    let contents = Contents {
        reference: &image.reference(source),
        labels: labels(image.name, image.description, source),
        run: run(image)?,
        layers,
    };
    pack(&contents, source)
}

/// Writes the archive of an image or of an index, like [`write()`].
///
/// # Errors
/// There is no layer.
pub(crate) fn pack(contents: &Contents<'_>, source: &Source) -> Result<Written> {
    let mut blobs = Blobs(Vec::new());
    let layers = contents.layers.iter();
    let manifests: Vec<Value> = layers
        .map(|(architecture, layer)| add_image(&mut blobs, contents, source, *architecture, layer))
        .collect();
    let mut named = match <[Value; 1]>::try_from(manifests) {
        Ok([only]) => only,
        Err(several) if several.is_empty() => return Err(Error::other("no program was compiled")),
        Err(several) => blobs.add(INDEX, index(&several)),
    };
    let digest = named["digest"].as_str().unwrap_or_default().to_owned();
    named["annotations"] = json!({
        "io.containerd.image.name": contents.reference,
        "org.opencontainers.image.ref.name": source.version,
    });
    let index = index(&[named]);

    blobs.0.sort();
    // The images of two architectures may contain equal blobs.
    blobs.0.dedup();
    let files = blobs.0.iter();
    let files = files.map(|(path, blob)| (path.as_str(), 0o444, blob.as_slice()));
    let mut files: Vec<(&str, u32, &[u8])> = files.collect();
    files.push(("index.json", 0o444, &index));
    files.push(("oci-layout", 0o444, br#"{"imageLayoutVersion":"1.0.0"}"#));
    Ok(Written {
        bytes: tar(&files, source.epoch)?,
        digest,
    })
}

/// Adds the blobs of one architecture's image; returns the descriptor of its manifest.
fn add_image(
    blobs: &mut Blobs,
    contents: &Contents<'_>,
    source: &Source,
    architecture: Architecture,
    layer: &Layer,
) -> Value {
    let architecture = architecture.oci();
    let mut config = contents.run.clone();
    config["Labels"] = contents.labels.clone();
    let config = json!({
        "created": source.created(),
        "architecture": architecture,
        "os": "linux",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [digest(&layer.tar)]},
        "history": [{"created": source.created(), "created_by": "make images"}],
    });
    let manifest = text(json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": blobs.add(CONFIG, text(config)),
        "layers": [blobs.add(LAYER, layer.gzip.clone())],
        "annotations": contents.labels,
    }));
    let mut described = blobs.add(MANIFEST, manifest);
    described["platform"] = json!({"architecture": architecture, "os": "linux"});
    described
}

fn index(manifests: &[Value]) -> Vec<u8> {
    text(json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}))
}

/// The fields of the configuration for starting a container of `image`.
fn run(image: &Image) -> Result<Value> {
    let ports: Map<String, Value> = image
        .ports
        .iter()
        .map(|port| (format!("{port}/tcp"), json!({})))
        .collect();
    let entrypoint = image.programs.first();
    let entrypoint = entrypoint.ok_or_else(|| Error::other("the image has no program"))?;
    Ok(json!({
        "User": image.user,
        "Entrypoint": [format!("/{}", entrypoint.name)],
        "Env": ["PATH=/"],
        "WorkingDir": "/",
        "ExposedPorts": ports,
    }))
}

/// The labels of every image.
pub(crate) fn labels(name: &str, description: &str, source: &Source) -> Value {
    let mut labels = json!({
        "org.opencontainers.image.title": name,
        "org.opencontainers.image.description": description,
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

fn descriptor(kind: &str, blob: &[u8]) -> Value {
    json!({"mediaType": kind, "digest": digest(blob), "size": blob.len()})
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex(bytes))
}

/// SHA-256 as a hexadecimal string.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let sum = Sha256::digest(bytes);
    sum.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// JSON with sorted keys, on one line.
fn text(mut value: Value) -> Vec<u8> {
    value.sort_all_objects();
    value.to_string().into_bytes()
}
