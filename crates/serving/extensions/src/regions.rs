//! System shared memory regions registered by clients: byte ranges of files in `/dev/shm`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::limits::{KEY_BYTES_MAX, NAMES_SHOWN_MAX, REGION_NAME_BYTES_MAX, REGIONS_MAX};

/// Mount point of shared memory objects.
const FOLDER: &str = "/dev/shm";

/// Error of registering, reading or writing a region.
#[derive(Debug, thiserror::Error)]
pub enum RegionError {
    #[error(
        "system shared memory is off: start the server with --shared-memory-bytes-max BYTES \
         (ALBACORE_SHARED_MEMORY_BYTES_MAX)"
    )]
    Disabled,
    #[error("shared memory region {name:?} is not registered; registered are {known}")]
    Unknown {
        name: String,
        /// Some of the registered names, and their total number.
        known: String,
    },
    #[error("shared memory region {0:?} is registered already: unregister it first")]
    Registered(String),
    #[error("the body is not {{\"key\": NAME, \"offset\": BYTES, \"byte_size\": BYTES}}")]
    Body(#[source] serde_json::Error),
    #[error("the name of a shared memory region has 1 to {REGION_NAME_BYTES_MAX} bytes, not {0}")]
    Name(usize),
    #[error(
        "key {0:?} is not the name of a shared memory object: send a name without /, except for an \
         optional leading /"
    )]
    Key(String),
    #[error(
        "{REGIONS_MAX} shared memory regions are registered, which is the maximum: unregister one"
    )]
    TooMany,
    #[error(
        "{requested} bytes more than the {registered} that are registered would exceed \
         --shared-memory-bytes-max, {limit} bytes"
    )]
    TooLarge {
        requested: u64,
        registered: u64,
        limit: u64,
    },
    #[error("shared memory object {key:?} cannot be opened for reading and writing")]
    Open { key: String, source: io::Error },
    #[error("shared memory object {0:?} is not a regular file")]
    NotRegular(String),
    #[error("byte_size of shared memory region {0:?} is 0: a region has at least one byte")]
    Empty(String),
    #[error(
        "shared memory region {name:?} needs {required} bytes of object {key:?}, which has {found}"
    )]
    ObjectTooSmall {
        name: String,
        key: String,
        required: u64,
        found: u64,
    },
    #[error(
        "{bytes} bytes at offset {offset} are outside of shared memory region {name:?}, which has \
         {size} bytes"
    )]
    Outside {
        name: String,
        offset: u64,
        bytes: u64,
        size: u64,
    },
    #[error("shared memory region {name:?} cannot be used")]
    Io { name: String, source: io::Error },
}

/// A registered region, as reported to clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionStatus {
    pub name: String,
    /// Name of the shared memory object, as sent by the client.
    pub key: String,
    /// Offset in the object, bytes.
    pub offset: u64,
    pub bytes: u64,
}

/// A region with its open file.
#[derive(Debug)]
struct Region {
    status: RegionStatus,
    file: File,
}

/// The registered regions of a server.
#[derive(Debug)]
pub struct SharedMemoryRegions {
    folder: PathBuf,
    /// Limit of the total size of all regions, bytes; 0 if the extension is off.
    limit: u64,
    registered: Mutex<BTreeMap<String, Arc<Region>>>,
}

impl SharedMemoryRegions {
    /// Limits the total size of all regions to `limit` bytes; 0 disables the extension.
    #[must_use]
    pub fn new(limit: u64) -> Self {
        Self::in_folder(Path::new(FOLDER), limit)
    }

    fn in_folder(folder: &Path, limit: u64) -> Self {
        Self {
            folder: folder.to_owned(),
            limit,
            registered: Mutex::default(),
        }
    }

    #[must_use]
    pub const fn is_enabled(&self) -> bool {
        self.limit > 0
    }

    fn lock(&self) -> Result<MutexGuard<'_, BTreeMap<String, Arc<Region>>>, RegionError> {
        if !self.is_enabled() {
            return Err(RegionError::Disabled);
        }
        // The map is consistent even if a thread panicked while holding the lock.
        let guard = self.registered.lock();
        Ok(guard.unwrap_or_else(PoisonError::into_inner))
    }

    /// Registers a byte range of a shared memory object.
    ///
    /// # Errors
    /// An invalid name, key, offset or size; an exceeded limit; the file is not a shared memory
    /// object of sufficient size, or the server may not read and write it.
    pub fn register(&self, status: RegionStatus) -> Result<(), RegionError> {
        let mut registered = self.lock()?;
        let name = status.name.len();
        if !(1..=REGION_NAME_BYTES_MAX).contains(&name) {
            return Err(RegionError::Name(name));
        }
        if registered.contains_key(&status.name) {
            return Err(RegionError::Registered(status.name));
        }
        if registered.len() >= REGIONS_MAX {
            return Err(RegionError::TooMany);
        }
        let object = object_name(&status.key)?;
        if status.bytes == 0 {
            return Err(RegionError::Empty(status.name));
        }
        let bytes: u64 = registered.values().map(|region| region.status.bytes).sum();
        if bytes.saturating_add(status.bytes) > self.limit {
            return Err(RegionError::TooLarge {
                requested: status.bytes,
                registered: bytes,
                limit: self.limit,
            });
        }
        let key = || status.key.clone();
        let opened = albacore_os::open_existing(&self.folder.join(object));
        let file = opened.map_err(|source| RegionError::Open { key: key(), source })?;
        let metadata = file.metadata();
        let metadata = metadata.map_err(|source| RegionError::Open { key: key(), source })?;
        if !metadata.is_file() {
            return Err(RegionError::NotRegular(key()));
        }
        let region = Region { status, file };
        region.check_size(region.status.bytes, metadata.len())?;
        registered.insert(region.status.name.clone(), Arc::new(region));
        Ok(())
    }

    /// Unregisters a region, or all regions if the name is empty; unknown names are ignored.
    /// Requests that were already parsed still use the region.
    ///
    /// # Errors
    /// The extension is off.
    pub fn unregister(&self, name: &str) -> Result<(), RegionError> {
        let mut registered = self.lock()?;
        match name {
            "" => registered.clear(),
            name => drop(registered.remove(name)),
        }
        Ok(())
    }

    /// Returns one region, or all regions if the name is empty.
    ///
    /// # Errors
    /// The region is not registered, or the extension is off.
    pub fn status(&self, name: &str) -> Result<Vec<RegionStatus>, RegionError> {
        if !name.is_empty() {
            return Ok(vec![self.find(name)?.status.clone()]);
        }
        let registered = self.lock()?;
        let all = registered.values().map(|region| region.status.clone());
        Ok(all.collect())
    }

    fn find(&self, name: &str) -> Result<Arc<Region>, RegionError> {
        let registered = self.lock()?;
        let found = registered.get(name).map(Arc::clone);
        found.ok_or_else(|| RegionError::Unknown {
            name: name.chars().take(REGION_NAME_BYTES_MAX).collect(),
            known: region_names(&registered),
        })
    }

    /// Returns the slice of `bytes` bytes at `offset` in region `name`, for a tensor.
    ///
    /// # Errors
    /// The region is not registered or too small, or the extension is off.
    pub fn slice(&self, name: &str, offset: u64, bytes: u64) -> Result<RegionSlice, RegionError> {
        let region = self.find(name)?;
        let size = region.status.bytes;
        let is_inside = offset.checked_add(bytes).is_some_and(|end| end <= size);
        match (is_inside, usize::try_from(bytes)) {
            (true, Ok(length)) => Ok(RegionSlice {
                region,
                offset,
                length,
            }),
            _ => Err(RegionError::Outside {
                name: name.to_owned(),
                offset,
                bytes,
                size,
            }),
        }
    }
}

/// Formats the first names, and the total number if there are more.
fn region_names(registered: &BTreeMap<String, Arc<Region>>) -> String {
    let first: Vec<_> = registered.keys().take(NAMES_SHOWN_MAX).collect();
    match registered.len() {
        all if all > first.len() => format!("{first:?} of {all}"),
        _ => format!("{first:?}"),
    }
}

/// Returns the file name of the shared memory object with this key.
fn object_name(key: &str) -> Result<&str, RegionError> {
    let name = key.strip_prefix('/').unwrap_or(key);
    let is_name = (1..=KEY_BYTES_MAX).contains(&name.len()) && !name.contains(['/', '\0']);
    match is_name && name != "." && name != ".." {
        true => Ok(name),
        false => Err(RegionError::Key(key.chars().take(KEY_BYTES_MAX).collect())),
    }
}

impl Region {
    /// Checks that the first `bytes` bytes of the region are inside of an object of size `found`.
    fn check_size(&self, bytes: u64, found: u64) -> Result<(), RegionError> {
        let required = self.status.offset.saturating_add(bytes);
        if required <= found {
            return Ok(());
        }
        Err(RegionError::ObjectTooSmall {
            name: self.status.name.clone(),
            key: self.status.key.clone(),
            required,
            found,
        })
    }

    fn unusable(&self, source: io::Error) -> RegionError {
        let name = self.status.name.clone();
        RegionError::Io { name, source }
    }
}

/// A slice of a region, from which a tensor is read or to which it is written.
#[derive(Clone, Debug)]
pub struct RegionSlice {
    region: Arc<Region>,
    /// Offset in the region.
    offset: u64,
    length: usize,
}

impl RegionSlice {
    /// Name of the region.
    #[must_use]
    pub fn region(&self) -> &str {
        &self.region.status.name
    }

    /// Offset in the region, bytes.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// Size in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.length
    }

    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Reads the slice.
    ///
    /// # Errors
    /// The object was truncated, or cannot be read.
    pub fn read(&self) -> Result<Vec<u8>, RegionError> {
        let region = &*self.region;
        // Checked before memory is allocated, and again if the object is truncated during the read.
        self.check()?;
        let mut bytes = vec![0; self.length];
        let begin = region.status.offset + self.offset;
        match region.file.read_exact_at(&mut bytes, begin) {
            Ok(()) => Ok(bytes),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                self.check()?;
                Err(region.unusable(error))
            }
            Err(error) => Err(region.unusable(error)),
        }
    }

    /// Writes `bytes` to the beginning of the slice.
    ///
    /// The object does not grow, unless the client truncates it between the check and the write;
    /// then it grows at most to the end of `bytes`, which is inside of the region.
    ///
    /// # Errors
    /// `bytes` are larger than the slice; the object was truncated, or cannot be written.
    pub fn write(&self, bytes: &[u8]) -> Result<(), RegionError> {
        let region = &*self.region;
        if bytes.len() > self.length {
            return Err(RegionError::Outside {
                name: region.status.name.clone(),
                offset: self.offset,
                bytes: bytes.len() as u64,
                size: region.status.bytes,
            });
        }
        self.check()?;
        let written = region
            .file
            .write_all_at(bytes, region.status.offset + self.offset);
        written.map_err(|error| region.unusable(error))
    }

    /// Checks that the slice is inside of the object.
    fn check(&self) -> Result<(), RegionError> {
        let metadata = self.region.file.metadata();
        let found = metadata.map_err(|error| self.region.unusable(error))?.len();
        self.region
            .check_size(self.offset + self.length as u64, found)
    }
}

impl PartialEq for RegionSlice {
    fn eq(&self, other: &Self) -> bool {
        let is_same = Arc::ptr_eq(&self.region, &other.region);
        is_same && (self.offset, self.length) == (other.offset, other.length)
    }
}

impl Eq for RegionSlice {}

#[cfg(test)]
mod tests;
