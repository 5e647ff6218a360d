//! Selects the model object below a key prefix, by the same rules as for folders on disk.

use bytes::{BufMut as _, BytesMut};
use futures_util::StreamExt as _;
use object_store::GetOptions;
use object_store::list::PaginatedListOptions;
use object_store::path::Path;

use super::address::Client;
use super::client::RequestKind;
use super::explain::RequestRecorder;
use crate::error::StorageErrorKind;
use crate::limits::{FOLDER_ENTRIES_MAX, MLMODEL_BYTES_MAX};
use crate::mlmodel::{Mlmodel, PythonModel};
use crate::{folder, mlmodel};

/// Returns the key of the model below `prefix`, and the Python model that `MLmodel` describes.
///
/// # Errors
/// The store does not list the keys, or there is no model, or there are several.
pub(super) async fn model_key(
    client: &dyn Client,
    prefix: &Path,
    recorder: &RequestRecorder,
) -> Result<(Path, Option<PythonModel>), StorageErrorKind> {
    let mut options = PaginatedListOptions {
        delimiter: Some("/".into()),
        max_keys: Some(FOLDER_ENTRIES_MAX),
        ..PaginatedListOptions::default()
    };
    options.extensions.insert(RequestKind::Listing);
    let folder = format!("{prefix}/");
    let listed = client.list_paginated(Some(&folder), options).await;
    let listed = listed.map_err(|error| recorder.explain(&error))?;
    if listed.page_token.is_some() {
        return Err(StorageErrorKind::FolderTooLarge);
    }
    let objects = listed.result.objects.iter();
    let names = objects.filter_map(|object| object.location.filename());
    let is_visible = |name: &&str| !name.starts_with('.');
    let mut files: Vec<String> = names.filter(is_visible).map(str::to_owned).collect();
    files.sort();
    let described = match files.iter().any(|name| name == mlmodel::FILE) {
        true => read_mlmodel(client, prefix, recorder).await?,
        false => None,
    };
    let (described, python) = match described {
        Some(Mlmodel { file, python }) => (Some(file), Some(python)),
        None => (None, None),
    };
    let file = folder::choose_model(&files, described)?;
    let key = Path::parse(format!("{prefix}/{file}"));
    let key = key.map_err(|error| StorageErrorKind::Address(error.to_string()))?;
    Ok((key, python))
}

/// Reads the `MLmodel` object of the folder.
async fn read_mlmodel(
    client: &dyn Client,
    prefix: &Path,
    recorder: &RequestRecorder,
) -> Result<Option<Mlmodel>, StorageErrorKind> {
    let mut options = GetOptions::new();
    options.extensions.insert(RequestKind::Object);
    let key = prefix.clone().join(mlmodel::FILE);
    let object = client.get_opts(&key, options).await;
    let object = object.map_err(|error| recorder.explain(&error))?;
    let mut text = BytesMut::new();
    let mut chunks = object.into_stream();
    // bound: MLMODEL_BYTES_MAX; a larger file is rejected
    while let Some(chunk) = chunks.next().await {
        text.put(chunk.map_err(|error| recorder.explain(&error))?);
        if text.len() as u64 >= MLMODEL_BYTES_MAX {
            break;
        }
    }
    recorder.reset_version();
    mlmodel::read(&text[..])
}
