//! `xtask crds`: writes the custom resource definitions of `crates/kubernetes/api` as the YAML
//! files of `crds/`, and the same files into the chart, which cannot read files outside its
//! directory.

use std::path::{Path, PathBuf};

use crate::yaml;
use anyhow::{Context as _, Result, bail};

const HEAD: &str =
    "# Written by `make crds` from crates/kubernetes/api; a test compares. DO NOT EDIT.\n";

/// Directories of the definitions: for `kubectl apply`, and for the chart.
const FOLDERS: [&str; 2] = ["crds", "charts/albacore/files/crds"];

/// Path below `root` and text of every file with a definition.
pub fn generate() -> Vec<(PathBuf, String)> {
    let crds = [
        albacore_api::inference_deployment_crd(),
        albacore_api::node_placement_crd(),
    ];
    let mut files = Vec::new();
    for mut crd in crds {
        crd.sort_all_objects();
        let name = crd["metadata"]["name"].as_str().unwrap_or_default();
        let text = format!("{HEAD}{}", yaml::document(&crd));
        files.extend(FOLDERS.map(|folder| {
            let path = PathBuf::from(format!("{folder}/{name}.yaml"));
            (path, text.clone())
        }));
    }
    files
}

/// Writes the files below `root`.
pub fn write(root: &Path) -> Result<()> {
    for (path, text) in generate() {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap_or(root))?;
        std::fs::write(&path, text).with_context(|| path.display().to_string())?;
        println!("wrote {}", path.display());
    }
    Ok(())
}

/// Fails if a committed file differs from the generated one.
pub fn check(root: &Path) -> Result<()> {
    for (path, text) in generate() {
        let committed = std::fs::read_to_string(root.join(&path)).unwrap_or_default();
        if committed != text {
            bail!(
                "{} does not match crates/kubernetes/api: run `make crds`",
                path.display()
            );
        }
    }
    Ok(())
}
