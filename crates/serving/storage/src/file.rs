//! From a path.

use std::fs::File;

use albacore_settings::Digest;

use crate::error::StorageError;
use crate::receive::{Terms, receive};

pub(crate) fn read(path: &str, terms: Terms<'_>) -> Result<(Vec<u8>, Digest), StorageError> {
    let failed = |error: std::io::Error| StorageError::File {
        path: path.to_owned(),
        problem: error.to_string(),
    };
    // A pipe would make `open` wait for a writer: what it is is asked first, and again of what was
    // opened, should it have been replaced in between.
    let found = std::fs::metadata(path).map_err(failed)?;
    let not_file = || StorageError::NotFile {
        path: path.to_owned(),
    };
    if !found.is_file() {
        return Err(not_file());
    }
    let file = File::open(path).map_err(failed)?;
    let opened = file.metadata().map_err(failed)?;
    if !opened.is_file() {
        return Err(not_file());
    }
    let announced = Some(opened.len());
    receive(file, &Terms { announced, ..terms }, failed)
}
