//! Fetches artifacts of registries (OCI distribution, ORAS): a manifest, one layer of which is the
//! model file.
//!
//! Manifests and layers are addressed by their SHA-256 and verified with it. A tag is resolved once
//! to the digest of its manifest, which is the reported version. Cached content is not requested:
//! if the URL contains a digest and its manifest and file are cached, no request is sent.

mod manifest;
mod registry;

use std::io;

use albacore_settings::OciReference;
use ureq::Agent;

use crate::cache::{Cache, CacheUse};
use crate::error::StorageErrorKind;
use crate::receive::{Fetched, Transfer, receive, sha256};
use crate::variables::Variables;
use crate::web::explain;
use manifest::Layer;
use registry::{Blob, Registry};

/// Returns whether a URL is that of an artifact.
pub(crate) fn is_artifact(url: &str) -> bool {
    url.starts_with("oci://")
}

pub(crate) fn fetch(
    agent: &Agent,
    variables: &Variables,
    url: &str,
    cache: Option<&Cache>,
    transfer: Transfer<'_>,
) -> Result<Fetched, StorageErrorKind> {
    let reference = OciReference::parse(url).ok_or(StorageErrorKind::Artifact)?;
    let mut registry = Registry::new(agent, variables, &reference);
    let cached = |digest| cache?.read(digest, transfer);
    let manifest = match reference.digest.and_then(cached) {
        Some(cached) => cached,
        None => fetch_manifest(&mut registry, &reference)?,
    };
    let layer = manifest::model_layer(&manifest.bytes)?;
    let mut fetched = match cached(layer.digest) {
        Some(cached) => cached,
        None => fetch_layer(&mut registry, &layer, transfer)?,
    };
    fetched.version = Some(format!("sha256:{}", manifest.sha256));
    if let Some(cache) = cache {
        cache.write(manifest);
    }
    Ok(fetched)
}

fn fetch_manifest(
    registry: &mut Registry<'_>,
    reference: &OciReference<'_>,
) -> Result<Fetched, StorageErrorKind> {
    let bytes = registry.manifest(reference)?;
    let found = sha256(&bytes);
    match reference.digest {
        Some(expected) if expected != found => Err(StorageErrorKind::Digest { expected, found }),
        _ => Ok(Fetched {
            bytes,
            sha256: found,
            version: None,
            python: None,
            cache: CacheUse::Unused,
        }),
    }
}

fn fetch_layer(
    registry: &mut Registry<'_>,
    layer: &Layer,
    transfer: Transfer<'_>,
) -> Result<Fetched, StorageErrorKind> {
    let blob = Blob::open(registry, layer.digest, layer.bytes)?;
    let failed = |error: io::Error| match error.downcast::<StorageErrorKind>() {
        Ok(problem) => problem,
        Err(error) => explain(error.into()),
    };
    let fetched = receive(blob, transfer, Some(layer.bytes), failed)?;
    let (expected, found) = (layer.digest, fetched.sha256);
    if expected != found {
        return Err(StorageErrorKind::Digest { expected, found });
    }
    Ok(fetched)
}
