//! Reads a file into memory, with a size bound, a digest and cancellation.

use std::io::{self, Read};

use albacore_settings::Digest;
use sha2::{Digest as _, Sha256};

use crate::cache::CacheUse;
use crate::error::StorageErrorKind;
use crate::limits::CHUNK_BYTES;
use crate::mlmodel::PythonModel;

/// Bound and cancellation of a transfer.
#[derive(Clone, Copy)]
pub(crate) struct Transfer<'a> {
    pub(crate) bytes_max: u64,
    /// Returns false to cancel.
    pub(crate) is_wanted: &'a dyn Fn() -> bool,
}

/// A fetched file.
#[derive(Debug)]
pub struct Fetched {
    pub bytes: Vec<u8>,
    pub sha256: Digest,
    /// Version reported by the store, if any: an ETag, followed by the Python model of `MLmodel`,
    /// if present.
    pub version: Option<String>,
    /// The Python model that the `MLmodel` file of its folder describes, if present.
    pub python: Option<PythonModel>,
    pub cache: CacheUse,
}

impl Fetched {
    /// Returns the file, or an error if its digest is not the expected one.
    pub(crate) fn check_digest(self, expected: Option<Digest>) -> Result<Self, StorageErrorKind> {
        match expected {
            Some(expected) if expected != self.sha256 => Err(StorageErrorKind::Digest {
                expected,
                found: self.sha256,
            }),
            _ => Ok(self),
        }
    }
}

/// Response of a store.
pub(crate) struct StoreResponse {
    /// The object; `None` if it still has the known version.
    pub(crate) object: Option<Fetched>,
    /// The Python model that the `MLmodel` file of its folder describes, if present.
    pub(crate) python: Option<PythonModel>,
}

impl StoreResponse {
    /// Creates the response for a file without versions.
    pub(crate) fn from_file(file: Fetched) -> Self {
        Self {
            object: Some(file),
            python: None,
        }
    }
}

#[must_use]
pub fn sha256(bytes: &[u8]) -> Digest {
    Digest(Sha256::digest(bytes).into())
}

/// Reads all of `source`; `announced` is its size, if known.
pub(crate) fn receive(
    mut source: impl Read,
    transfer: Transfer<'_>,
    announced: Option<u64>,
    map_error: impl Fn(io::Error) -> StorageErrorKind,
) -> Result<Fetched, StorageErrorKind> {
    let bytes_max = transfer.bytes_max;
    if announced.is_some_and(|bytes| bytes > bytes_max) {
        return Err(StorageErrorKind::TooLarge { bytes_max });
    }
    let mut bytes = Vec::new();
    let mut hash = Sha256::new();
    let mut chunk = vec![0; CHUNK_BYTES];
    // bound: bytes_max
    loop {
        if !(transfer.is_wanted)() {
            return Err(StorageErrorKind::Cancelled);
        }
        let read = match source.read(&mut chunk) {
            Ok(0) => {
                return Ok(Fetched {
                    bytes,
                    sha256: Digest(hash.finalize().into()),
                    version: None,
                    python: None,
                    cache: CacheUse::Unused,
                });
            }
            Ok(read) => &chunk[..read],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(map_error(error)),
        };
        if (bytes.len() + read.len()) as u64 > bytes_max {
            return Err(StorageErrorKind::TooLarge { bytes_max });
        }
        if bytes.try_reserve(read.len()).is_err() {
            let bytes_read = bytes.len();
            return Err(StorageErrorKind::Memory { bytes_read });
        }
        bytes.extend_from_slice(read);
        hash.update(read);
    }
}
