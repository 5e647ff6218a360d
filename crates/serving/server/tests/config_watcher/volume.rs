//! A directory as filled by the kubelet from a ConfigMap: the files are symlinks into `..data`,
//! which is a symlink to a timestamped directory; an update is one rename of that symlink.

#![allow(dead_code)] // each test binary uses a part

use std::cell::Cell;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use albacore_settings::{
    BatchingParams, Digest, ModelSettings, Policy, Settings, Source, WEIGHT_DEFAULT,
};

use crate::running::zoo;

pub(crate) struct Volume {
    folder: tempfile::TempDir,
    updates: Cell<u32>,
}

impl Volume {
    /// Creates a volume with these settings.
    pub(crate) fn new(settings: &str) -> Self {
        let volume = Self {
            folder: tempfile::tempdir().unwrap(),
            updates: Cell::new(0),
        };
        volume.update(settings);
        symlink("..data/settings.yaml", volume.settings()).unwrap();
        volume
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn settings(&self) -> PathBuf {
        self.path().join("settings.yaml")
    }

    /// Replaces the settings atomically.
    pub(crate) fn update(&self, settings: &str) {
        let number = self.updates.replace(self.updates.get() + 1);
        let folder = self.path().join(format!("..{number}"));
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("settings.yaml"), settings).unwrap();
        let (new, data) = (self.path().join("..data_tmp"), self.path().join("..data"));
        symlink(folder.file_name().unwrap(), &new).unwrap();
        let old = std::fs::read_link(&data);
        std::fs::rename(&new, &data).unwrap();
        if let Ok(old) = old {
            std::fs::remove_dir_all(self.path().join(old)).unwrap();
        }
    }

    /// SHA-256 of the settings in hexadecimal.
    pub(crate) fn sha256(&self) -> String {
        let bytes = std::fs::read(self.settings()).unwrap();
        albacore_storage::sha256(&bytes).to_string()
    }
}

/// Model `m` with a file of the model zoo.
pub(crate) fn model(file: &str) -> ModelSettings {
    ModelSettings {
        name: "m".to_owned(),
        source: Source::Path(zoo(file).display().to_string()),
        sha256: None,
        iterations: None,
        slo: None,
        outputs: Vec::new(),
        threads: None,
        weight: WEIGHT_DEFAULT,
        batching: None,
        schema_names: albacore_settings::SchemaNames::default(),
    }
}

/// The text of settings with these models.
pub(crate) fn settings(models: Vec<ModelSettings>, policy: Policy, max_rows: u32) -> String {
    let settings = Settings {
        models,
        batching: BatchingParams {
            policy,
            batch_rows_max: max_rows as usize,
            ..BatchingParams::default()
        },
    };
    settings.check().unwrap();
    settings.to_yaml()
}

/// SHA-256 of a file of the model zoo.
pub(crate) fn digest(file: &str) -> Digest {
    albacore_storage::sha256(&std::fs::read(zoo(file)).unwrap())
}
