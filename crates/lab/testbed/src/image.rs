//! Images of programs from a target folder: an archive with the program, its shared libraries and
//! additional files. Only for tests: released images are static and built by `make images`.

use std::collections::BTreeSet;
use std::io::{Error, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::TestbedError;

/// Specification of an image.
#[derive(Clone, Debug, Default)]
pub struct Image {
    /// Name and tag by which pods reference it.
    pub reference: String,
    /// The program, stored at `/NAME`; it is the entry point.
    pub program: PathBuf,
    /// Arguments of the entry point.
    pub arguments: Vec<String>,
    /// Numeric user id.
    pub user: u32,
    /// Additional files: path in the image, and path on the host.
    pub files: Vec<(String, PathBuf)>,
}

impl Image {
    /// Writes the image as an archive of the OCI layout.
    ///
    /// # Errors
    /// A file cannot be read or written; `ldd` cannot be run.
    pub fn write(&self, archive: &Path) -> std::result::Result<(), TestbedError> {
        self.archive()
            .and_then(|bytes| std::fs::write(archive, bytes))
            .map_err(TestbedError::file(archive))
    }

    fn archive(&self) -> Result<Vec<u8>> {
        let name = self.program.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| Error::other("the program has no name"))?;
        let mut files = vec![(format!("/{name}"), self.program.clone())];
        files.extend(self.files.iter().cloned());
        // Includes shared libraries and their dependencies.
        let loaded = self.files.iter().map(|(_, source)| source);
        let loaded = loaded.filter(|source| source.to_string_lossy().contains(".so"));
        let mut sources: Vec<&Path> = loaded.map(PathBuf::as_path).collect();
        sources.push(&self.program);
        for library in libraries(&sources)? {
            files.push((library.to_string_lossy().into_owned(), library));
        }
        files.sort();
        files.dedup();
        let mut contents = Vec::new();
        for (path, source) in &files {
            contents.push((path.trim_start_matches('/'), 0o555, std::fs::read(source)?));
        }
        let layer = tar(&contents)?;
        let mut entrypoint = vec![format!("/{name}")];
        entrypoint.extend(self.arguments.iter().cloned());
        let config = text(&json!({
            "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
            "os": "linux",
            "config": {"Entrypoint": entrypoint, "User": self.user.to_string(), "WorkingDir": "/", "Env": ["PATH=/"]},
            "rootfs": {"type": "layers", "diff_ids": [digest(&layer)]},
        }));
        let of = |kind: &str, bytes: &[u8]| {
            let kind = format!("application/vnd.oci.image.{kind}");
            json!({"mediaType": kind, "digest": digest(bytes), "size": bytes.len()})
        };
        let manifest = text(&json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": of("config.v1+json", &config),
            "layers": [of("layer.v1.tar", &layer)],
        }));
        let mut named = of("manifest.v1+json", &manifest);
        named["annotations"] = json!({"io.containerd.image.name": self.reference});
        let index = text(&json!({"schemaVersion": 2, "manifests": [named]}));
        let blob = |bytes: Vec<u8>| (format!("blobs/{}", digest(&bytes).replace(':', "/")), bytes);
        let blobs = [layer, config, manifest].map(blob);
        let layout = br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec();
        let mut entries = vec![("oci-layout", 0o444, layout), ("index.json", 0o444, index)];
        entries.extend(
            blobs
                .iter()
                .map(|(path, bytes)| (path.as_str(), 0o444, bytes.clone())),
        );
        tar(&entries)
    }
}

/// Shared libraries that these programs and libraries load, and the dynamic loader; empty for a
/// static program.
pub(crate) fn libraries(programs: &[&Path]) -> Result<BTreeSet<PathBuf>> {
    let output = Command::new("ldd").args(programs).output()?;
    // ldd fails for static programs, with a message on standard error.
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // A missing library may be among `programs`: then it is loaded by the time it is needed.
    let is_here = |name: &str| programs.iter().any(|program| program.ends_with(name));
    let missing = text
        .lines()
        .filter_map(|line| line.trim().strip_suffix(" => not found"));
    if let Some(name) = missing.into_iter().find(|name| !is_here(name)) {
        return Err(Error::other(format!("library {name} not found")));
    }
    // For several programs, ldd prints a header line for each, which is not indented.
    let libraries = text
        .lines()
        .filter(|line| line.starts_with(char::is_whitespace));
    let path = |line: &str| {
        let mut words = line.split_whitespace();
        words.find(|word| word.starts_with('/')).map(PathBuf::from)
    };
    // A library with a relative path (`/a/../b`) is among the files that were passed with it.
    let is_found_by_name = |path: &PathBuf| !path.components().any(|part| part.as_os_str() == "..");
    Ok(libraries
        .filter_map(path)
        .filter(is_found_by_name)
        .collect())
}

fn tar(files: &[(&str, u32, Vec<u8>)]) -> Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    for (path, mode, bytes) in files {
        let mut header = tar::Header::new_ustar();
        header.set_mode(*mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_size(bytes.len() as u64);
        archive.append_data(&mut header, path, bytes.as_slice())?;
    }
    archive.into_inner()
}

fn digest(bytes: &[u8]) -> String {
    let sum = Sha256::digest(bytes);
    let digits: String = sum.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{digits}")
}

fn text(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}
