//! Reads small kernel files completely, up to a size limit.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use albacore_topology::CpuSet;

use crate::OsError;
use crate::limits::FILE_BYTES_MAX;

/// Reads a small kernel file, at most [`FILE_BYTES_MAX`] bytes. Reads in page-sized steps, because
/// topology lists of sysfs are binary attributes that return end of file for a one-byte read.
pub(crate) fn read_bytes(path: &Path) -> Result<Vec<u8>, OsError> {
    let error = |source| OsError::read(path, source);
    let mut file = File::open(path).map_err(error)?;
    let mut bytes = Vec::new();
    let mut page = [0u8; 4096];
    // bound: FILE_BYTES_MAX
    while bytes.len() < FILE_BYTES_MAX {
        match file.read(&mut page) {
            Ok(0) => break,
            Ok(n) => bytes.extend_from_slice(&page[..n]),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(error(e)),
        }
    }
    Ok(bytes)
}

/// Reads a small kernel file as text; invalid UTF-8 is replaced by U+FFFD.
pub(crate) fn read_text(path: &Path) -> Result<String, OsError> {
    Ok(String::from_utf8_lossy(&read_bytes(path)?).into_owned())
}

/// As [`read_text`], or `None` if the file does not exist.
pub(crate) fn read_optional_text(path: &Path) -> Result<Option<String>, OsError> {
    match read_text(path) {
        Ok(text) => Ok(Some(text)),
        Err(OsError::Read { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// Parses the cpu list in a file.
pub(crate) fn parse_cpus(path: &Path, text: &str) -> Result<CpuSet, OsError> {
    text.parse()
        .map_err(|_| OsError::content(path, text, "a cpu list such as 0-3,8"))
}
