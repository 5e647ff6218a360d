//! Reads bytes into memory: bounded, hashed, and cancelled when they are no longer wanted.

use std::io::{self, Read};

use albacore_settings::Digest;
use sha2::{Digest as _, Sha256};

use crate::error::StorageError;
use crate::limits::PIECE_BYTES;

/// Bounds of a transfer, and its cancellation.
pub(crate) struct Transfer<'a> {
    /// Path or URL for messages.
    pub(crate) place: &'a str,
    pub(crate) bytes_max: u64,
    /// The size that the source announces.
    pub(crate) announced: Option<u64>,
    /// Returns false to cancel.
    pub(crate) is_wanted: &'a dyn Fn() -> bool,
}

#[must_use]
pub fn sha256(bytes: &[u8]) -> Digest {
    Digest(Sha256::digest(bytes).into())
}

/// Reads all of `source`.
pub(crate) fn receive(
    mut source: impl Read,
    transfer: &Transfer<'_>,
    failed: impl Fn(io::Error) -> StorageError,
) -> Result<(Vec<u8>, Digest), StorageError> {
    let place = || transfer.place.to_owned();
    let bytes_max = transfer.bytes_max;
    let too_large = || StorageError::TooLarge {
        place: place(),
        bytes_max,
    };
    if transfer.announced.is_some_and(|bytes| bytes > bytes_max) {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    let mut hash = Sha256::new();
    let mut piece = vec![0; PIECE_BYTES];
    // bound: bytes_max
    loop {
        if !(transfer.is_wanted)() {
            return Err(StorageError::Cancelled { place: place() });
        }
        let read = match source.read(&mut piece) {
            Ok(0) => return Ok((bytes, Digest(hash.finalize().into()))),
            Ok(read) => &piece[..read],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(failed(error)),
        };
        if (bytes.len() + read.len()) as u64 > bytes_max {
            return Err(too_large());
        }
        if bytes.try_reserve(read.len()).is_err() {
            return Err(StorageError::Memory {
                place: place(),
                bytes: bytes.len(),
            });
        }
        bytes.extend_from_slice(read);
        hash.update(read);
    }
}
