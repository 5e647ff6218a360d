//! Reads a file.

use std::fs::File;

use albacore_settings::Digest;

use crate::error::StorageError;
use crate::receive::{Transfer, receive};

pub(crate) fn read(path: &str, transfer: Transfer<'_>) -> Result<(Vec<u8>, Digest), StorageError> {
    let failed = |error: std::io::Error| StorageError::File {
        path: path.to_owned(),
        problem: error.to_string(),
    };
    // Opening a pipe would wait for a writer, so the type is checked before, and again after the
    // open, since the file may have been replaced in between.
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
    receive(
        file,
        &Transfer {
            announced,
            ..transfer
        },
        failed,
    )
}
