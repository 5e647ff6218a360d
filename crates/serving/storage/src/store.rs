//! Fetches objects of S3, Google Cloud Storage, Azure and compatible stores.
//!
//! `object_store` implements addresses, signatures, credentials, retries and resumed downloads; its
//! requests are sent by the client of this crate (`client`), so that the same bounds and trusted
//! roots apply. Settings and credentials are read from the environment variables of each store.
//! Messages contain only statuses and error codes (`explain`), because response bodies of stores
//! repeat signed headers, which may contain tokens.

mod address;
mod client;
mod explain;
mod folder;
mod limits;
mod settings;

use std::io::{self, Read};
use std::sync::Arc;
use std::time::Instant;

use bytes::{Buf as _, Bytes};
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use object_store::{GetOptions, ObjectStore as _};
use tokio::runtime::Runtime;
use ureq::Agent;

use crate::error::StorageErrorKind;
use crate::limits::TRANSFER_MAX;
use crate::mlmodel::PythonModel;
use crate::receive::{StoreResponse, Transfer, receive};
use crate::variables::Variables;
use address::Address;
use client::{Connector, RequestKind};
use explain::RequestRecorder;

/// Returns whether the URL of an object is that of a folder.
pub(crate) fn is_folder(url: &str) -> bool {
    Address::parse(url).is_ok_and(|address| address.is_folder)
}

/// Fetches an object, unless it still has the version `known`.
pub(crate) fn fetch(
    agent: &Agent,
    variables: &Variables,
    url: &str,
    known: Option<&str>,
    transfer: Transfer<'_>,
) -> Result<StoreResponse, StorageErrorKind> {
    let address = Address::parse(url)?;
    let recorder = Arc::new(RequestRecorder::new(address.store, variables.clone()));
    // The timers are used for the backoff of retries; requests block this thread.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .map_err(StorageErrorKind::File)?;
    let client = address.open(
        variables,
        Connector {
            agent: agent.clone(),
            recorder: Arc::clone(&recorder),
            deadline: Instant::now() + TRANSFER_MAX,
        },
    )?;
    let (key, python) = match address.is_folder {
        true => runtime.block_on(folder::model_key(&*client, &address.key, &recorder))?,
        false => (address.key, None),
    };
    let known = known.and_then(|version| etag_of(version, python));
    let mut options = GetOptions::new().with_if_none_match(known);
    options.extensions.insert(RequestKind::Object);
    let object = match runtime.block_on(client.get_opts(&key, options)) {
        Ok(object) => object,
        Err(object_store::Error::NotModified { .. }) if known.is_some() => {
            return Ok(StoreResponse {
                object: None,
                python,
            });
        }
        Err(error) => return Err(recorder.explain(&error)),
    };
    let (announced, version) = (object.meta.size, object.meta.e_tag.clone());
    let body = ObjectBody {
        runtime,
        stream: object.into_stream(),
        chunk: Bytes::new(),
    };
    let failed = |error: io::Error| recorder.explain(&error);
    let mut received = receive(body, transfer, Some(announced), failed)?;
    received.version = version.map(|etag| version_of(etag, python));
    received.python = python;
    Ok(StoreResponse {
        object: Some(received),
        python,
    })
}

/// Separates the ETag from the Python model in a version.
const MLMODEL_SEPARATOR: &str = ";MLmodel=";

/// Returns the version of an object: its ETag, combined with the Python model of its `MLmodel`
/// file, so that a change of either is a new version.
fn version_of(etag: String, python: Option<PythonModel>) -> String {
    match python {
        None => etag,
        Some(python) => format!("{etag}{MLMODEL_SEPARATOR}{python}"),
    }
}

/// Returns the ETag of a version; `None` if the version has a different Python model, so that the
/// object is downloaded again.
fn etag_of(version: &str, python: Option<PythonModel>) -> Option<&str> {
    match python {
        None if version.contains(MLMODEL_SEPARATOR) => None,
        None => Some(version),
        Some(python) => version
            .strip_suffix(&python.to_string())?
            .strip_suffix(MLMODEL_SEPARATOR),
    }
}

/// The body of an object as a blocking reader.
struct ObjectBody {
    runtime: Runtime,
    stream: BoxStream<'static, object_store::Result<Bytes>>,
    /// The unread part of the last chunk.
    chunk: Bytes,
}

impl Read for ObjectBody {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        // bound: one chunk, because chunks are not empty
        while self.chunk.is_empty() {
            match self.runtime.block_on(self.stream.next()) {
                None => return Ok(0),
                Some(chunk) => self.chunk = chunk.map_err(io::Error::other)?,
            }
        }
        let count = out.len().min(self.chunk.len());
        self.chunk.copy_to_slice(&mut out[..count]);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::mlmodel::Estimator;

    #[test]
    fn an_etag_is_reused_only_with_the_same_mlmodel() {
        let python = |is_predict_proba| {
            Some(PythonModel {
                estimator: Estimator::Sklearn,
                is_predict_proba,
            })
        };
        let all = [None, python(false), python(true)];
        for saved in all {
            let version = version_of("\"etag\"".to_owned(), saved);
            for now in all {
                let expected = (saved == now).then_some("\"etag\"");
                assert_eq!(etag_of(&version, now), expected, "{version}");
            }
        }
    }

    #[test]
    fn a_timeout_is_not_retried() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", silent.local_addr().unwrap());
        let variables = [
            ("AWS_ENDPOINT_URL", endpoint.as_str()),
            ("AWS_ACCESS_KEY_ID", "AKIDSILENT"),
            ("AWS_SECRET_ACCESS_KEY", "word"),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let impatient = Agent::config_builder()
            .timeout_recv_response(Some(Duration::from_millis(100)))
            .build();
        let transfer = Transfer {
            bytes_max: 1000,
            is_wanted: &|| true,
        };
        let agent = Agent::new_with_config(impatient);
        let variables = Variables::new(variables);
        let fetched = fetch(&agent, &variables, "s3://bucket/key", None, transfer);
        let error = fetched.map(|_| ()).unwrap_err();
        assert!(matches!(error, StorageErrorKind::Slow(_)), "{error}");
        silent.set_nonblocking(true).unwrap();
        let connections = silent.incoming().map_while(Result::ok).count();
        assert_eq!(connections, 1);
    }
}
