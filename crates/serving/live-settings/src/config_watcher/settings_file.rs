//! Reads and parses the settings file.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use albacore_settings::{Digest, FILE_BYTES_MAX, Settings};

/// A valid settings file.
#[derive(Clone, Debug)]
pub struct LoadedSettings {
    /// SHA-256 of the file.
    pub sha256: Digest,
    pub settings: Settings,
    /// Content of the file.
    pub(super) text: Vec<u8>,
}

/// Reads the file; returns its bytes and their SHA-256.
///
/// # Errors
/// A message without the file's name.
pub(super) fn read_bytes(file: &Path) -> Result<(Vec<u8>, Digest), String> {
    let mut bytes = Vec::new();
    // One byte more than allowed, so that the parser rejects a larger file.
    let limit = FILE_BYTES_MAX as u64 + 1;
    let opened = File::open(file).map_err(|error| format!("cannot be opened: {error}"))?;
    let read = opened.take(limit).read_to_end(&mut bytes);
    read.map_err(|error| format!("cannot be read: {error}"))?;
    let sha256 = albacore_storage::sha256(&bytes);
    Ok((bytes, sha256))
}

/// Reads and parses a settings file.
///
/// # Errors
/// A message with the field and what to write instead, without the file's name.
pub fn read(file: &Path) -> Result<LoadedSettings, String> {
    let (bytes, sha256) = read_bytes(file)?;
    parse(&bytes, sha256)
}

/// Parses the bytes of a settings file.
///
/// # Errors
/// See [`read`].
pub fn parse(bytes: &[u8], sha256: Digest) -> Result<LoadedSettings, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "is not UTF-8".to_owned())?;
    let settings = Settings::read(text).map_err(|error| error.to_string())?;
    Ok(LoadedSettings {
        sha256,
        settings,
        text: bytes.to_vec(),
    })
}
