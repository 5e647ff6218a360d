//! Reads a model file from a path.

use std::fs::File;
use std::path::Path;

use crate::error::StorageErrorKind;
use crate::folder::resolve_file;
use crate::receive::{Fetched, Transfer, receive};

pub(crate) fn read(path: &str, transfer: Transfer<'_>) -> Result<Fetched, StorageErrorKind> {
    let (path, python) = resolve_file(Path::new(path))?;
    // Opening a pipe would block until it has a writer, so the type is checked before opening, and
    // again afterwards, because the file may have been replaced in between.
    let found = std::fs::metadata(&path).map_err(StorageErrorKind::File)?;
    if !found.is_file() {
        return Err(StorageErrorKind::NotFile);
    }
    let file = File::open(&path).map_err(StorageErrorKind::File)?;
    let opened = file.metadata().map_err(StorageErrorKind::File)?;
    if !opened.is_file() {
        return Err(StorageErrorKind::NotFile);
    }
    let announced = Some(opened.len());
    let fetched = receive(file, transfer, announced, StorageErrorKind::File)?;
    Ok(Fetched { python, ..fetched })
}
