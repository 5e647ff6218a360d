//! The settings file as values of the engine.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use albacore_settings as settings;
use albacore_settings::{Digest, FILE_BYTES_MAX};

use crate::told::policy_of;
use albacore_engine::{BatchingParams, Kind, KindSet, Objective};

/// What a file says.
#[derive(Clone, Debug)]
pub(crate) struct InForce {
    /// SHA-256 of its bytes.
    pub(crate) sha256: Digest,
    pub(crate) rules: BatchingParams,
    pub(crate) settings: settings::Settings,
}

/// The bytes of the file, and their SHA-256.
///
/// # Errors
/// A sentence without the file's name.
pub(super) fn bytes(file: &Path) -> Result<(Vec<u8>, Digest), String> {
    let mut bytes = Vec::new();
    // One byte more than may be: what is larger is refused by its reader.
    let limit = FILE_BYTES_MAX as u64 + 1;
    let opened = File::open(file).map_err(|error| format!("cannot be opened: {error}"))?;
    let read = opened.take(limit).read_to_end(&mut bytes);
    read.map_err(|error| format!("cannot be read: {error}"))?;
    let sha256 = albacore_storage::sha256(&bytes);
    Ok((bytes, sha256))
}

/// Reads a file.
///
/// # Errors
/// A sentence that names the field and the way out, without the file's name.
pub(crate) fn read(file: &Path) -> Result<InForce, String> {
    let (bytes, sha256) = bytes(file)?;
    parse(&bytes, sha256)
}

pub(super) fn parse(bytes: &[u8], sha256: Digest) -> Result<InForce, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "is not UTF-8".to_owned())?;
    let settings = settings::Settings::read(text).map_err(|error| error.to_string())?;
    let policy = policy_of(settings.batching.policy);
    Ok(InForce {
        sha256,
        rules: BatchingParams {
            policy,
            batch_rows_max: settings.batching.max_rows as usize,
            queue_rows_max: settings.queue.max_rows as usize,
        },
        settings,
    })
}

/// The objective of a model.
pub(super) fn objective(model: &settings::Model) -> Option<Objective> {
    model.slo.as_ref().map(objective_of)
}

/// The outputs that a model advertises: the value, unless the settings list others.
pub(super) fn outputs(model: &settings::Model) -> KindSet {
    if model.outputs.is_empty() {
        return KindSet::only(Kind::Value);
    }
    let kinds = model.outputs.iter().map(|output| match output {
        settings::Output::Output => Kind::Value,
        settings::Output::Margin => Kind::Margin,
        settings::Output::Contribs => Kind::Contribs,
        settings::Output::Interactions => Kind::Interactions,
        settings::Output::Leaf => Kind::Leaf,
    });
    kinds.fold(KindSet::EMPTY, KindSet::with)
}

/// What the engine is told of an objective.
pub(crate) fn objective_of(slo: &settings::Slo) -> Objective {
    Objective {
        latency: slo.latency,
        percentile: slo.percentile,
        contribs: slo.contribs,
        interactions: slo.interactions,
    }
}
