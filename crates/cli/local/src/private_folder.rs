//! A folder that only this user can look into, for what `albacore run` and its server say to each
//! other.

use std::fs::{DirBuilder, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// Beginning of the folder's name; the process id follows.
const PREFIX: &str = "albacore-run-";

/// Names that are looked at for folders of runs that were killed.
const NAMES_MAX: usize = 10_000;

/// The folder; removed with everything in it when it is dropped.
pub(crate) struct PrivateFolder {
    path: PathBuf,
    uid: u32,
}

impl PrivateFolder {
    /// Makes it where the user's run-time files belong (`XDG_RUNTIME_DIR`), else among the
    /// temporary ones. Folders that killed runs of this user have left there are removed.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn make() -> io::Result<Self> {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let base = runtime.filter(|path| path.is_absolute() && path.is_dir());
        let base = base.unwrap_or_else(std::env::temp_dir);
        let path = base.join(format!("{PREFIX}{}", std::process::id()));
        sweep(&base);
        // Fails if it is there: whoever made it is somebody else.
        DirBuilder::new().mode(0o700).create(&path)?;
        let uid = std::fs::metadata(&path)?.uid();
        Ok(Self { path, uid })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whose it is: this user's.
    pub(crate) fn uid(&self) -> u32 {
        self.uid
    }
}

impl Drop for PrivateFolder {
    fn drop(&mut self) {
        // What cannot be removed is removed by the next run, or with the temporary files.
        drop(std::fs::remove_dir_all(&self.path));
    }
}

/// Removes what runs of this user that were killed have left below `base`.
fn sweep(base: &Path) {
    let own = std::fs::metadata("/proc/self").map(|me| me.uid());
    let (Ok(own), Ok(names)) = (own, std::fs::read_dir(base)) else {
        return;
    };
    for entry in names.take(NAMES_MAX).flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        let pid = pid.and_then(|pid| pid.parse::<u32>().ok());
        let is_dead = pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists());
        // Of the link itself, if it is one.
        let is_own = |found: Metadata| found.is_dir() && found.uid() == own;
        if is_dead && entry.metadata().is_ok_and(is_own) {
            drop(std::fs::remove_dir_all(entry.path()));
        }
    }
}
