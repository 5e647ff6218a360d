//! Requests to a registry, with the credentials of Docker's configuration.

use std::io::{self, Read};
use std::time::{Duration, Instant};

use albacore_settings::{Digest, OciReference};
use serde_json::Value;
use ureq::http::Response;
use ureq::{Agent, Body, BodyReader};

use crate::error::StorageErrorKind;
use crate::limits::{MANIFEST_BYTES_MAX, RETRIES_MAX, TRANSFER_MAX};
use crate::variables::Variables;
use crate::web::{explain, seconds};

/// Accepted media types of manifests; an index is requested so that the error can name it.
const MANIFESTS: &str = "application/vnd.oci.image.manifest.v1+json, \
                         application/vnd.docker.distribution.manifest.v2+json, \
                         application/vnd.oci.image.index.v1+json";

pub(super) struct Registry<'a> {
    agent: &'a Agent,
    variables: &'a Variables,
    host: &'a str,
    repository: &'a str,
    is_https: bool,
    deadline: Instant,
    /// The `Authorization` header, after the registry has requested it. Never logged.
    authorization: Option<String>,
}

impl<'a> Registry<'a> {
    pub(super) fn new(
        agent: &'a Agent,
        variables: &'a Variables,
        reference: &OciReference<'a>,
    ) -> Self {
        let host = reference.registry;
        // As in Docker: only loopback hosts are requested without TLS.
        let name = host.split(':').next().unwrap_or(host);
        let is_loopback = name == "localhost" || name.starts_with("127.");
        Self {
            agent,
            variables,
            host,
            repository: reference.repository,
            is_https: !is_loopback,
            deadline: Instant::now() + TRANSFER_MAX,
            authorization: None,
        }
    }

    /// Returns the bytes of a manifest, without verifying them.
    pub(super) fn manifest(
        &mut self,
        reference: &OciReference<'_>,
    ) -> Result<Vec<u8>, StorageErrorKind> {
        let name = match (reference.digest, reference.tag) {
            (Some(digest), _) => format!("sha256:{digest}"),
            (None, tag) => tag.unwrap_or_default().to_owned(),
        };
        let response = self.get(&format!("manifests/{name}"), 0)?;
        read_bounded(response.into_body())
    }

    /// Requests a path of the repository, starting at the byte `first`.
    fn get(&mut self, path: &str, first: u64) -> Result<Response<Body>, StorageErrorKind> {
        let mut response = self.send(path, first)?;
        // A token may have expired.
        if response.status() == 401 {
            self.authorization = Some(self.authorize(&response)?);
            response = self.send(path, first)?;
        }
        let expected_status = if first == 0 { 200 } else { 206 };
        match response.status().as_u16() {
            status if status == expected_status => Ok(response),
            status => Err(self.status_problem(status, &read_bounded(response.into_body())?)),
        }
    }

    fn send(&self, path: &str, first: u64) -> Result<Response<Body>, StorageErrorKind> {
        let scheme = if self.is_https { "https" } else { "http" };
        let url = format!("{scheme}://{}/v2/{}/{path}", self.host, self.repository);
        let mut request = self
            .agent
            .get(url)
            .config()
            .https_only(self.is_https)
            .timeout_global(Some(self.remaining_time()?))
            .build()
            .header("Accept", MANIFESTS);
        if let Some(authorization) = &self.authorization {
            // Not sent to another host if the registry redirects.
            request = request.header("Authorization", authorization);
        }
        if first > 0 {
            request = request.header("Range", format!("bytes={first}-"));
        }
        request.call().map_err(|error| self.explain(error))
    }

    fn remaining_time(&self) -> Result<Duration, StorageErrorKind> {
        let remaining_time = self.deadline.saturating_duration_since(Instant::now());
        let timed_out = || StorageErrorKind::Slow(seconds("the whole file", TRANSFER_MAX));
        (!remaining_time.is_zero())
            .then_some(remaining_time)
            .ok_or_else(timed_out)
    }

    fn explain(&self, error: ureq::Error) -> StorageErrorKind {
        match explain(error) {
            StorageErrorKind::Network(text) => {
                StorageErrorKind::Network(format!("{}: {text}", self.host))
            }
            problem => problem,
        }
    }

    /// Returns the header that the challenge requests: a password, or a token obtained with it.
    fn authorize(&self, response: &Response<Body>) -> Result<String, StorageErrorKind> {
        let challenge = response.headers().get("WWW-Authenticate");
        let challenge = challenge.and_then(|value| value.to_str().ok());
        let challenge = challenge.unwrap_or_default();
        let scheme = challenge.split(' ').next().unwrap_or_default();
        let password = self.variables.docker_login(self.host)?;
        let password = password.map(|login| format!("Basic {login}"));
        match scheme.to_ascii_lowercase().as_str() {
            "basic" => password.ok_or_else(|| self.access_problem("401", "without credentials")),
            "bearer" => self.token(challenge, password.as_deref()),
            _ => {
                let why = "because the registry offers neither Basic nor Bearer authentication";
                Err(self.access_problem("401", why))
            }
        }
    }

    fn token(&self, challenge: &str, password: Option<&str>) -> Result<String, StorageErrorKind> {
        let realm = parameter(challenge, "realm").unwrap_or_default();
        let mut request = self
            .agent
            .get(realm)
            .config()
            .https_only(self.is_https)
            .timeout_global(Some(self.remaining_time()?))
            .build();
        for name in ["service", "scope"] {
            if let Some(value) = parameter(challenge, name) {
                request = request.query(name, value);
            }
        }
        if let Some(password) = password {
            request = request.header("Authorization", password);
        }
        let response = request.call().map_err(|error| self.explain(error))?;
        let status = response.status();
        let body = read_bounded(response.into_body())?;
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let token = body["token"].as_str().or(body["access_token"].as_str());
        match token {
            Some(token) if status == 200 => Ok(format!("Bearer {token}")),
            _ => Err(self.access_problem(status.as_str(), "because no token was issued")),
        }
    }

    fn access_problem(&self, status: &str, how: &str) -> StorageErrorKind {
        StorageErrorKind::Store {
            found: format!("cannot be accessed {how}: the registry answered {status}"),
            remedy: format!(
                "add {} to config.json in the folder of DOCKER_CONFIG, or correct it there",
                self.host
            ),
        }
    }

    fn status_problem(&self, status: u16, body: &[u8]) -> StorageErrorKind {
        let code = code(body);
        let status_text = format!("{status} {code}").trim_end().to_owned();
        let (what, remedy) = match status {
            401 | 403 => return self.access_problem(&status_text, "with these credentials"),
            404 => ("does not exist", "correct repository, tag or digest"),
            408 | 429 | 500..=599 => (
                "cannot be fetched now, as the registry has a problem",
                "it is retried",
            ),
            _ => ("was refused", "correct the URL"),
        };
        StorageErrorKind::Store {
            found: format!("{what}: the registry answered {status_text}"),
            remedy: remedy.to_owned(),
        }
    }
}

/// Returns a parameter of a challenge.
fn parameter<'a>(challenge: &'a str, name: &str) -> Option<&'a str> {
    let (_, remainder) = challenge.split_once(&format!("{name}=\""))?;
    Some(remainder.split_once('"')?.0)
}

/// Returns the error code in a response body; nothing else of the body is shown.
fn code(body: &[u8]) -> String {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let code = body["errors"][0]["code"].as_str().unwrap_or_default();
    let is_code = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let is_valid = code.len() <= 64 && code.chars().all(is_code);
    if is_valid { code } else { "" }.to_owned()
}

/// Reads a manifest or another short response body.
fn read_bounded(body: Body) -> Result<Vec<u8>, StorageErrorKind> {
    let mut bytes = Vec::new();
    let mut body = body.into_reader().take(MANIFEST_BYTES_MAX + 1);
    body.read_to_end(&mut bytes)
        .map_err(|error| explain(error.into()))?;
    match bytes.len() as u64 {
        0..=MANIFEST_BYTES_MAX => Ok(bytes),
        _ => Err(StorageErrorKind::Store {
            found: format!("has a manifest of more than {MANIFEST_BYTES_MAX} bytes"),
            remedy: "push the model file alone".to_owned(),
        }),
    }
}

/// The body of a layer; an interrupted download is resumed.
pub(super) struct Blob<'r, 'a> {
    registry: &'r mut Registry<'a>,
    path: String,
    body: BodyReader<'static>,
    read: u64,
    bytes: u64,
    retries: usize,
}

impl<'r, 'a> Blob<'r, 'a> {
    pub(super) fn open(
        registry: &'r mut Registry<'a>,
        digest: Digest,
        bytes: u64,
    ) -> Result<Self, StorageErrorKind> {
        let path = format!("blobs/sha256:{digest}");
        let body = registry.get(&path, 0)?.into_body().into_reader();
        Ok(Self {
            registry,
            path,
            body,
            read: 0,
            bytes,
            retries: 0,
        })
    }
}

impl Read for Blob<'_, '_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        // bound: RETRIES_MAX
        loop {
            let read = self.body.read(out);
            let is_cut = self.read > 0 && self.read < self.bytes;
            match read {
                Ok(count) if count > 0 || !is_cut => {
                    self.read += count as u64;
                    return Ok(count);
                }
                Err(error) if !is_cut || self.retries == RETRIES_MAX => return Err(error),
                Ok(_) if self.retries == RETRIES_MAX => return Ok(0),
                Ok(_) | Err(_) => self.retries += 1,
            }
            let remainder = self.registry.get(&self.path, self.read);
            self.body = remainder
                .map_err(io::Error::other)?
                .into_body()
                .into_reader();
        }
    }
}
