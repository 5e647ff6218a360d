//! Artifacts of registries (OCI distribution, ORAS): a manifest with a layer that is the file.
//!
//! Everything is addressed by its SHA-256 and checked against it: a tag is resolved once, to the
//! digest of its manifest, which is the version that is reported.

mod manifest;
mod registry;

use std::io;

use albacore_settings::OciReference;
use ureq::Agent;

use crate::error::Problem;
use crate::receive::{Fetched, Transfer, receive, sha256};
use crate::variables::Variables;
use crate::web::explain;
use registry::{Blob, Registry};

/// Whether a URL names an artifact.
pub(crate) fn is_artifact(url: &str) -> bool {
    url.starts_with("oci://")
}

pub(crate) fn fetch(
    agent: &Agent,
    variables: &Variables,
    url: &str,
    transfer: Transfer<'_>,
) -> Result<Fetched, Problem> {
    let reference = OciReference::parse(url).ok_or(Problem::Artifact)?;
    let mut registry = Registry::new(agent, variables, &reference);
    let manifest = registry.manifest(&reference)?;
    let found = sha256(&manifest);
    match reference.digest {
        Some(wanted) if wanted != found => return Err(Problem::Digest { wanted, found }),
        _ => {}
    }
    let layer = manifest::model_layer(&manifest)?;
    let blob = Blob::open(&mut registry, layer.digest, layer.bytes)?;
    let failed = |error: io::Error| match error.downcast::<Problem>() {
        Ok(problem) => problem,
        Err(error) => explain(error.into()),
    };
    let mut fetched = receive(blob, transfer, Some(layer.bytes), failed)?;
    let (wanted, found) = (layer.digest, fetched.sha256);
    if wanted != found {
        return Err(Problem::Digest { wanted, found });
    }
    fetched.version = Some(format!("sha256:{}", sha256(&manifest)));
    Ok(fetched)
}
