//! Provenance of the files of a release, that is, the commit and the tools they were built from: an
//! in-toto statement with the SLSA 1.0 predicate.
//!
//! It is not signed, because a signature requires an identity of the builder. The release workflow
//! signs its own statement for the same files.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::Sums;
use crate::images::{Source, hex};

/// Files that determine, along with the commit, which code is compiled and by which compilers.
const INPUTS: [&str; 2] = ["Cargo.lock", "scripts/zig/requirements.txt"];

pub(super) fn name(version: &str) -> String {
    format!("albacore-{version}.provenance.json")
}

/// The statement about files with checksums `sums` and images with digests `digests`.
///
/// # Errors
/// rustc cannot be run, or a file cannot be read.
pub(super) fn statement(
    root: &Path,
    source: &Source,
    sums: &Sums,
    digests: &[(String, String)],
) -> Result<String> {
    let of_file =
        |(name, sum): (&String, &String)| json!({"name": name, "digest": {"sha256": sum}});
    let mut subjects: Vec<Value> = sums.iter().map(of_file).collect();
    for (reference, digest) in digests {
        let sum = digest.trim_start_matches("sha256:");
        subjects.push(json!({"name": reference, "digest": {"sha256": sum}}));
    }
    let repository = env!("CARGO_PKG_REPOSITORY");
    let mut inputs = vec![json!({
        "uri": format!("git+{repository}"),
        "digest": {"gitCommit": source.revision},
    })];
    for input in INPUTS {
        let bytes = std::fs::read(root.join(input)).context(input)?;
        inputs.push(json!({
            "uri": format!("git+{repository}#{input}"),
            "digest": {"sha256": hex(&bytes)},
        }));
    }
    let rustc = Command::new("rustc").arg("--version").output();
    let rustc = rustc.context("cannot run rustc")?;
    ensure!(rustc.status.success(), "rustc --version fails");
    let builder = std::env::var("ALBACORE_BUILDER");
    let mut statement = json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": subjects,
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": format!("{repository}/make-release/v1"),
                "externalParameters": {"version": source.version, "command": "make release"},
                "internalParameters": {"rustc": String::from_utf8_lossy(&rustc.stdout).trim()},
                "resolvedDependencies": inputs,
            },
            "runDetails": {
                "builder": {"id": builder.unwrap_or_else(|_| format!("{repository}/local"))},
            },
        },
    });
    statement.sort_all_objects();
    Ok(format!("{statement:#}\n"))
}
