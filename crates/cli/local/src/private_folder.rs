//! A directory, readable only by this user, for the files and sockets shared by `albacore run` and
//! its server.

use std::fs::{DirBuilder, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// Prefix of the directory's name, followed by the process id.
const PREFIX: &str = "albacore-run-";

/// Directory entries that are scanned for directories of killed runs.
const NAMES_MAX: usize = 10_000;

/// The directory, which is removed with its content on drop.
pub(crate) struct PrivateFolder {
    path: PathBuf,
    uid: u32,
}

impl PrivateFolder {
    /// Creates it in `XDG_RUNTIME_DIR`, or else in the directory for temporary files, and removes
    /// directories that killed runs of this user left there.
    ///
    /// # Errors
    /// The directory cannot be created.
    pub(crate) fn create() -> io::Result<Self> {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let base = runtime.filter(|path| path.is_absolute() && path.is_dir());
        let base = base.unwrap_or_else(std::env::temp_dir);
        let path = base.join(format!("{PREFIX}{}", std::process::id()));
        remove_stale(&base);
        // Fails if it exists, because another user may have created it.
        DirBuilder::new().mode(0o700).create(&path)?;
        let uid = std::fs::metadata(&path)?.uid();
        Ok(Self { path, uid })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The owner of the directory: this user.
    pub(crate) fn uid(&self) -> u32 {
        self.uid
    }
}

impl Drop for PrivateFolder {
    fn drop(&mut self) {
        // If this fails, the next run removes it.
        drop(std::fs::remove_dir_all(&self.path));
    }
}

/// Removes directories below `base` that killed runs of this user left behind.
fn remove_stale(base: &Path) {
    let own = std::fs::metadata("/proc/self").map(|me| me.uid());
    let (Ok(own), Ok(names)) = (own, std::fs::read_dir(base)) else {
        return;
    };
    for entry in names.take(NAMES_MAX).flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        let pid = pid.and_then(|pid| pid.parse::<u32>().ok());
        let is_dead = pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists());
        // `metadata` of the entry does not follow symbolic links.
        let is_own = |found: Metadata| found.is_dir() && found.uid() == own;
        if is_dead && entry.metadata().is_ok_and(is_own) {
            drop(std::fs::remove_dir_all(entry.path()));
        }
    }
}
