//! `xtask release`: builds the files that are published with a version.
//!
//! In `target/dist`: images for two architectures with their bills of materials, archives of the
//! programs, the chart, the manifests, the krew manifest, the OLM bundle, a provenance statement
//! and checksums of all files. Nothing is published; `scripts/publish.sh` pushes images and chart.

mod krew;
pub mod olm;
mod programs;
mod provenance;
pub mod version;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use crate::images::{self, Architecture, Source, hex};
use crate::manifests::{self, helm};

/// Manifests that are published unchanged, and their names in a release.
const MANIFESTS: [(&str, &str); 5] = [
    ("manifests/agent.yaml", "agent.yaml"),
    ("manifests/crds.yaml", "crds.yaml"),
    ("manifests/install.yaml", "install.yaml"),
    ("manifests/observe.yaml", "observe.yaml"),
    ("manifests/kserve/runtime.yaml", "kserve-runtime.yaml"),
];

/// SHA-256 of files by name, in hexadecimal.
type Sums = BTreeMap<String, String>;

/// Base URL of the published files of a version.
fn downloads(version: &str) -> String {
    format!(
        "{}/releases/download/v{version}",
        env!("CARGO_PKG_REPOSITORY")
    )
}

/// Writes all files of the version of the checkout at `root` to `folder`, which is emptied first.
///
/// # Errors
/// The checkout has uncommitted changes, its versions differ, the changelog lacks the version; or
/// same as [`images::run`] and `xtask charts`.
pub fn run(root: &Path, folder: &Path) -> Result<()> {
    version::check(root)?;
    version::check_changelog(root)?;
    manifests::check(root)?;
    let source = Source::read(root)?;
    let revision = source.revision.clone().unwrap_or_default();
    ensure!(
        !revision.is_empty() && !revision.ends_with("-changed"),
        "a release is made of a commit, and {} has changes: commit them",
        root.display()
    );
    if folder.exists() {
        std::fs::remove_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    let mut built = images::run(root, folder, &Architecture::ALL)?;
    let license = std::fs::read(root.join("LICENSE")).context("LICENSE")?;
    for (&architecture, compiled) in &built.programs {
        let archive = programs::archive(compiled, &license, source.epoch)?;
        write(
            folder,
            &programs::name(&source.version, architecture),
            &archive,
        )?;
    }
    let chart = root.join(helm::CHART);
    let (chart, to) = (chart.to_string_lossy(), folder.to_string_lossy());
    helm::run(&["package", &chart, "--destination", &to])?;
    for (from, to) in MANIFESTS {
        let path = root.join(from);
        write(folder, to, &std::fs::read(path).context(from)?)?;
    }
    let pins = olm::pins(&built.digests);
    let bundle = olm::write(root, folder, &source, images::REGISTRY, &pins)?;
    built.digests.push(bundle);
    let sums = sums(folder)?;
    let krew = krew::manifest(&source.version, &sums)?;
    write(folder, krew::NAME, krew.as_bytes())?;
    let sums = self::sums(folder)?;
    let statement = provenance::statement(root, &source, &sums, &built.digests)?;
    write(
        folder,
        &provenance::name(&source.version),
        statement.as_bytes(),
    )?;
    write(
        folder,
        "SHA256SUMS",
        checksums(&self::sums(folder)?).as_bytes(),
    )?;
    println!("the release {} is in {}", source.version, folder.display());
    Ok(())
}

/// Writes only the OLM bundle to `folder`. It refers to images in `registry` by tag.
///
/// # Errors
/// Same as [`olm::files`], or a file cannot be written.
pub fn bundle(root: &Path, folder: &Path, registry: &str) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    olm::write(root, folder, &Source::read(root)?, registry, &[]).map(drop)
}

fn write(folder: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    let path = folder.join(name);
    std::fs::write(&path, bytes).with_context(|| path.display().to_string())
}

/// Checksums of the files in `folder`, without subdirectories.
fn sums(folder: &Path) -> Result<Sums> {
    let mut sums = Sums::new();
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let bytes = std::fs::read(entry.path())?;
            sums.insert(name, hex(&bytes));
        }
    }
    Ok(sums)
}

/// Formats checksums for `sha256sum --check`.
fn checksums(sums: &Sums) -> String {
    let line = |(name, sum): (&String, &String)| format!("{sum}  {name}\n");
    sums.iter().map(line).collect()
}
