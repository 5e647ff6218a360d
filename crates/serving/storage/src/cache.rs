//! A cache of fetched files in a folder, which the pods of a node may share.
//!
//! A file is stored under its SHA-256 and verified when it is read: a changed or truncated file
//! counts as absent. The version records (version and digest of the last object of a URL) cannot be
//! verified: a process that can write to the folder determines which file is served for an object
//! without `sha256`.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use albacore_settings::Digest;

use crate::error::{StorageError, StorageErrorKind};
use crate::limits::{
    LOCK_FILES, LOCK_POLL_PERIOD, LOCK_WAIT_MAX, PARTIAL_AGE_MAX, VERSION_BYTES_MAX,
    VERSION_RECORD_BYTES_MAX, VERSION_RECORDS_MAX,
};
use crate::receive::{Fetched, Transfer, receive, sha256};

const FILE_PREFIX: &str = "sha256-";
const PARTIAL_PREFIX: &str = "partial-";
const VERSION_RECORD_PREFIX: &str = "origin-";
const LOCK_PREFIX: &str = "lock-";

/// How the cache was used for a fetched file.
#[derive(Debug, PartialEq, Eq)]
pub enum CacheUse {
    /// There is no cache, or files of this source are not cached.
    Unused,
    /// The file was read from the cache.
    Read,
    Written,
    /// Why the file could not be cached.
    Failed(String),
}

/// Version and digest of the last object that a store returned for a URL.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct VersionRecord {
    pub(crate) version: String,
    pub(crate) digest: Digest,
}

#[derive(Debug)]
pub(crate) struct Cache {
    folder: PathBuf,
    bytes_max: u64,
}

impl Cache {
    /// Opens or creates the folder of a cache of at most `bytes_max` bytes.
    pub(crate) fn open(folder: &Path, bytes_max: u64) -> Result<Self, StorageError> {
        let cache = Self {
            folder: folder.to_owned(),
            bytes_max,
        };
        let usable = fs::create_dir_all(folder).and_then(|()| cache.lock_file(0).map(drop));
        usable.map_err(|error| StorageError {
            location: folder.display().to_string(),
            problem: StorageErrorKind::Cache(error),
        })?;
        Ok(cache)
    }

    /// Returns the file with this digest, if it is cached, intact and not larger than allowed.
    pub(crate) fn read(&self, digest: Digest, transfer: Transfer<'_>) -> Option<Fetched> {
        let path = self.path(FILE_PREFIX, digest);
        // Opening a pipe would block until it has a writer.
        if !fs::symlink_metadata(&path).ok()?.is_file() {
            return None;
        }
        let file = File::open(&path).ok()?;
        let bytes = file.metadata().ok()?.len();
        let mut fetched = receive(&file, transfer, Some(bytes), StorageErrorKind::File).ok()?;
        if fetched.sha256 != digest {
            return None;
        }
        // Eviction is by time of last use; if it cannot be set, the file is evicted earlier.
        let _ = file.set_modified(SystemTime::now());
        fetched.cache = CacheUse::Read;
        Some(fetched)
    }

    /// Stores a file; evicts the least recently used ones if necessary.
    pub(crate) fn write(&self, mut fetched: Fetched) -> Fetched {
        if fetched.cache == CacheUse::Unused {
            fetched.cache = match self.try_write(&fetched) {
                Ok(()) => CacheUse::Written,
                Err(error) => CacheUse::Failed(error.to_string()),
            };
        }
        fetched
    }

    fn try_write(&self, fetched: &Fetched) -> io::Result<()> {
        let bytes = fetched.bytes.len() as u64;
        let Some(bytes_left) = self.bytes_max.checked_sub(bytes) else {
            let message = format!(
                "its {bytes} bytes are more than the {} of --model-cache-bytes-max",
                self.bytes_max
            );
            return Err(io::Error::other(message));
        };
        self.evict(bytes_left)?;
        let partial = self.path(PARTIAL_PREFIX, fetched.sha256);
        let mut file = match File::create_new(&partial) {
            // Another server is writing the same bytes.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
            file => file?,
        };
        let written = file
            .write_all(&fetched.bytes)
            .and_then(|()| fs::rename(&partial, self.path(FILE_PREFIX, fetched.sha256)));
        if written.is_err() {
            fs::remove_file(&partial)?;
        }
        written
    }

    /// Evicts the least recently used files until the others have at most `bytes` bytes in total,
    /// and removes the version records of files that no longer exist.
    fn evict(&self, bytes: u64) -> io::Result<()> {
        let (mut files, mut records) = (Vec::new(), Vec::new());
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            // Another server may have removed it meanwhile.
            let Ok(found) = entry.metadata() else {
                continue;
            };
            let modified = found.modified()?;
            if name.starts_with(FILE_PREFIX) {
                files.push((modified, found.len(), entry.path()));
            } else if name.starts_with(VERSION_RECORD_PREFIX) && found.is_file() {
                records.push(entry.path());
            } else if name.starts_with(PARTIAL_PREFIX) && is_abandoned(modified) {
                remove(&entry.path())?;
            }
        }
        files.sort();
        let mut total: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
        for (_, size, path) in files {
            if total <= bytes {
                break;
            }
            remove(&path)?;
            total -= size;
        }
        self.remove_stale_records(&records)
    }

    /// Removes the version records of files that are no longer cached, and those beyond
    /// [`VERSION_RECORDS_MAX`].
    fn remove_stale_records(&self, paths: &[PathBuf]) -> io::Result<()> {
        for (index, path) in paths.iter().enumerate() {
            let record = read_version_record(path).filter(|_| index < VERSION_RECORDS_MAX);
            let has_file = |record: VersionRecord| self.path(FILE_PREFIX, record.digest).exists();
            if !record.is_some_and(has_file) {
                remove(path)?;
            }
        }
        Ok(())
    }

    /// Returns the version record of `key`; `None` if it is missing or invalid.
    pub(crate) fn version_record(&self, key: Digest) -> Option<VersionRecord> {
        read_version_record(&self.path(VERSION_RECORD_PREFIX, key))
    }

    /// Writes the version record of `key`, if the version can be sent as an ETag.
    pub(crate) fn write_version_record(&self, key: Digest, fetched: &mut Fetched) {
        let Some(version) = fetched.version.as_deref().filter(|text| is_version(text)) else {
            return;
        };
        let text = format!("{} {version}\n", fetched.sha256);
        // Renamed into place, because a reader could see a partial write.
        let partial = self.path(PARTIAL_PREFIX, key);
        let path = self.path(VERSION_RECORD_PREFIX, key);
        let written = fs::write(&partial, text).and_then(|()| fs::rename(&partial, path));
        if let Err(error) = written {
            fetched.cache = CacheUse::Failed(error.to_string());
        }
    }

    /// Waits until no other server fetches `key`, so that a node fetches it once, for at most
    /// [`LOCK_WAIT_MAX`]; returns `None` if it could not be locked. Dropping the file releases the
    /// lock.
    pub(crate) fn lock(
        &self,
        key: Digest,
        transfer: Transfer<'_>,
    ) -> Result<Option<File>, StorageErrorKind> {
        let Ok(file) = self.lock_file(key.0[0]) else {
            return Ok(None);
        };
        let start = Instant::now();
        // bound: LOCK_WAIT_MAX
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Some(file)),
                Err(TryLockError::WouldBlock) if start.elapsed() < LOCK_WAIT_MAX => {}
                Err(_) => return Ok(None),
            }
            if !(transfer.is_wanted)() {
                return Err(StorageErrorKind::Cancelled);
            }
            std::thread::sleep(LOCK_POLL_PERIOD);
        }
    }

    /// Opens a lock file. Lock files are never removed, because two servers could then lock two
    /// files of the same name; therefore their number is small.
    fn lock_file(&self, number: u8) -> io::Result<File> {
        let path = self
            .folder
            .join(format!("{LOCK_PREFIX}{}", number % LOCK_FILES));
        File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path)
    }

    fn path(&self, kind: &str, digest: Digest) -> PathBuf {
        self.folder.join(format!("{kind}{digest}"))
    }
}

/// Returns the cache key of an object: a digest of its URL and of the variables that set the
/// endpoints of stores.
pub(crate) fn key<'a>(url: &'a str, endpoints: impl Iterator<Item = &'a str>) -> Digest {
    let words: Vec<&str> = std::iter::once(url).chain(endpoints).collect();
    sha256(words.join("\n").as_bytes())
}

/// Returns whether a text can be sent in a header as an ETag.
fn is_version(text: &str) -> bool {
    let is_printed = |byte: u8| byte.is_ascii_graphic();
    (1..=VERSION_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_printed)
}

fn read_version_record(path: &Path) -> Option<VersionRecord> {
    let found = fs::symlink_metadata(path).ok()?;
    if !found.is_file() || found.len() > VERSION_RECORD_BYTES_MAX {
        return None;
    }
    let text = fs::read_to_string(path).ok()?;
    let (digest, version) = text.trim_end().split_once(' ')?;
    is_version(version).then_some(VersionRecord {
        version: version.to_owned(),
        digest: digest.parse().ok()?,
    })
}

fn is_abandoned(time: SystemTime) -> bool {
    time.elapsed().is_ok_and(|age| age > PARTIAL_AGE_MAX)
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
mod tests;
