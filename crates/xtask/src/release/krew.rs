//! The krew manifest for installing `kubectl albacore`.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::{Sums, downloads, programs};
use crate::images::Architecture;
use crate::yaml;

pub(super) const NAME: &str = "krew.yaml";

const DESCRIPTION: &str = "\
Shows on which cpus the threads of serving pods run, and why: `kubectl albacore status NAME`,
`explain`, `plan`, `tune`, `upgrade --dry-run`. Needs the operator of Albacore in the cluster, except
for `plan`, which computes a placement for any topology.
";

/// The manifest of `version`, whose archives have the checksums `sums`.
///
/// # Errors
/// An archive is missing.
pub(super) fn manifest(version: &str, sums: &Sums) -> Result<String> {
    let mut platforms = Vec::new();
    for architecture in Architecture::ALL {
        let archive = programs::name(version, architecture);
        let sum = sums.get(&archive).with_context(|| archive.clone())?;
        platforms.push(json!({
            "selector": {"matchLabels": {"os": "linux", "arch": architecture.oci()}},
            "uri": format!("{}/{archive}", downloads(version)),
            "sha256": sum,
            "files": [{"from": "albacore", "to": "."}, {"from": "LICENSE", "to": "."}],
            "bin": "albacore",
        }));
    }
    let manifest: Value = json!({
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "albacore"},
        "spec": {
            "version": format!("v{version}"),
            "homepage": env!("CARGO_PKG_REPOSITORY"),
            "shortDescription": "Inspect the cpu placement of inference servers",
            "description": DESCRIPTION,
            "platforms": platforms,
        },
    });
    Ok(yaml::document(&manifest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_architecture_has_its_archive_and_sum() {
        let archive = |architecture| programs::name("1.2.3", architecture);
        let [amd64, arm64] = Architecture::ALL.map(archive);
        let sums = [(amd64, "aa".to_owned()), (arm64, "bb".to_owned())];
        let mut sums = Sums::from(sums);
        let manifest: Value = serde_saphyr::from_str(&manifest("1.2.3", &sums).unwrap()).unwrap();
        let platforms = manifest["spec"]["platforms"].as_array().unwrap();
        let found: Vec<(&str, &str, &str)> = platforms
            .iter()
            .map(|platform| {
                let uri = platform["uri"].as_str().unwrap();
                (
                    platform["selector"]["matchLabels"]["arch"]
                        .as_str()
                        .unwrap(),
                    uri.rsplit('/').next().unwrap(),
                    platform["sha256"].as_str().unwrap(),
                )
            })
            .collect();
        assert_eq!(
            found,
            [
                ("amd64", "albacore-1.2.3-linux-amd64.tar.gz", "aa"),
                ("arm64", "albacore-1.2.3-linux-arm64.tar.gz", "bb"),
            ]
        );
        assert!(manifest["spec"]["shortDescription"].as_str().unwrap().len() <= 50);
        sums.pop_first();
        assert!(
            super::manifest("1.2.3", &sums).is_err(),
            "an archive is missing"
        );
    }
}
