//! Archives of the programs, for machines without a cluster and for krew.

use anyhow::Result;

use crate::images::{Architecture, Programs, gzip, tar};

/// `albacore run`, `experiment` and `bench` start the other programs in the same directory.
const NAMES: [&str; 4] = [
    "albacore",
    "albacore-lab",
    "albacore-server",
    "albacore-params",
];

/// Name of the archive.
pub(super) fn name(version: &str, architecture: Architecture) -> String {
    format!("albacore-{version}-linux-{}.tar.gz", architecture.oci())
}

/// Packs programs and license with the timestamp `epoch`.
///
/// # Errors
/// A program was not compiled.
pub(super) fn archive(programs: &Programs, license: &[u8], epoch: u64) -> Result<Vec<u8>> {
    let mut files = vec![("LICENSE", 0o644, license)];
    for name in NAMES {
        let Some(bytes) = programs.get(name) else {
            anyhow::bail!("{name} was not compiled");
        };
        files.push((name, 0o755, bytes));
    }
    Ok(gzip(&tar(&files, epoch)?))
}
