//! Fetches files from paths and URLs; reads them from the cache if possible.

use std::path::Path;

use albacore_settings::{Digest, Source};
use ureq::Agent;

use crate::cache::{self, Cache, CacheUse, VersionRecord};
use crate::error::{StorageError, StorageErrorKind};
use crate::receive::{Fetched, StoreResponse, Transfer};
use crate::scheme::is_object;
use crate::variables::Variables;
use crate::{file, oci, store, web};

/// Fetches model files.
#[derive(Debug)]
pub struct Storage {
    agent: Agent,
    bytes_max: u64,
    variables: Variables,
    cache: Option<Cache>,
}

impl Storage {
    /// Fetches files of at most `bytes_max` bytes; certificates of https servers are verified with
    /// `roots` (a PEM file), or with Mozilla's roots.
    ///
    /// # Errors
    /// [`crate::StorageErrorKind::Roots`].
    pub fn new(bytes_max: u64, roots: Option<&Path>) -> Result<Self, StorageError> {
        let roots = roots.map(|path| {
            web::read_roots(path).map_err(|problem| StorageError {
                location: path.display().to_string(),
                problem,
            })
        });
        let agent = web::agent(roots.transpose()?);
        Ok(Self {
            agent,
            bytes_max,
            variables: Variables::from_env(),
            cache: None,
        })
    }

    /// Configures stores by these variables instead of the environment of the process.
    #[must_use]
    pub fn with_variables(mut self, all: impl IntoIterator<Item = (String, String)>) -> Self {
        self.variables = Variables::new(all);
        self
    }

    /// Caches files of stores and registries, and files with a required digest, in `folder`, at
    /// most `bytes_max` bytes.
    ///
    /// # Errors
    /// [`crate::StorageErrorKind::Cache`].
    pub fn with_cache(mut self, folder: &Path, bytes_max: u64) -> Result<Self, StorageError> {
        self.cache = Some(Cache::open(folder, bytes_max)?);
        Ok(self)
    }

    /// Fetches a file. Blocks, bounded by `limits.rs`; `is_wanted` is called between two reads and
    /// cancels the transfer by returning false. A digest other than `expected` is an error.
    ///
    /// # Errors
    /// [`StorageError`].
    pub fn fetch(
        &self,
        source: &Source,
        expected: Option<Digest>,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<Fetched, StorageError> {
        // Without a known version, the result always contains a file.
        let fetched = self.fetch_if_changed(source, None, expected, is_wanted)?;
        fetched.ok_or_else(|| StorageError {
            location: redacted(source),
            problem: StorageErrorKind::Replaced,
        })
    }

    /// Like [`Self::fetch`]; returns `None` if the file still has the version `known`, which was
    /// returned by an earlier fetch ([`Fetched::version`]).
    ///
    /// # Errors
    /// [`StorageError`].
    pub fn fetch_if_changed(
        &self,
        source: &Source,
        known: Option<&str>,
        expected: Option<Digest>,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<Option<Fetched>, StorageError> {
        let transfer = Transfer {
            bytes_max: self.bytes_max,
            is_wanted,
        };
        let received = match source {
            Source::Path(path) => file::read(path, transfer)
                .and_then(|file| file.check_digest(expected))
                .map(Some),
            Source::Url(url) => {
                let request = FetchRequest {
                    url,
                    known,
                    expected,
                };
                match &self.cache {
                    None => self
                        .download(request, transfer)
                        .map(|response| response.object),
                    Some(cache) => self.fetch_cached(cache, request, transfer),
                }
            }
        };
        received.map_err(|problem| StorageError {
            location: redacted(source),
            problem,
        })
    }

    /// Returns a file from the cache if its digest is known; otherwise downloads and caches it.
    fn fetch_cached(
        &self,
        cache: &Cache,
        request: FetchRequest<'_>,
        transfer: Transfer<'_>,
    ) -> Result<Option<Fetched>, StorageErrorKind> {
        let FetchRequest {
            url,
            known,
            expected,
        } = request;
        let is_versioned = is_object(url);
        if !is_versioned && !oci::is_artifact(url) && expected.is_none() {
            // Files of web servers have no version.
            return Ok(self.download(request, transfer)?.object);
        }
        let key = cache::key(url, self.variables.endpoints());
        let _lock = cache.lock(key, transfer)?;
        // A folder is always requested, because its MLmodel file is not part of the cached file.
        let pinned = expected.filter(|_| !store::is_folder(url));
        if let Some(cached) = pinned.and_then(|digest| cache.read(digest, transfer)) {
            return Ok(Some(cached));
        }
        let is_wanted =
            |record: &VersionRecord| expected.is_none_or(|digest| digest == record.digest);
        let record = cache
            .version_record(key)
            .filter(|_| is_versioned)
            .filter(is_wanted);
        let version = record.as_ref().map(|record| record.version.as_str());
        let conditional = FetchRequest {
            known: known.or(version),
            ..request
        };
        let mut response = self.download(conditional, transfer)?;
        if let (None, None, Some(record)) = (&response.object, known, record) {
            if let Some(mut cached) = cache.read(record.digest, transfer) {
                cached.version = Some(record.version);
                cached.python = response.python;
                return Ok(Some(cached));
            }
            // The cached file was evicted or is corrupt.
            response = self.download(request, transfer)?;
        }
        let Some(fetched) = response.object else {
            return Ok(None);
        };
        let mut fetched = cache.write(fetched);
        if is_versioned && fetched.cache == CacheUse::Written {
            cache.write_version_record(key, &mut fetched);
        }
        Ok(Some(fetched))
    }

    fn download(
        &self,
        request: FetchRequest<'_>,
        transfer: Transfer<'_>,
    ) -> Result<StoreResponse, StorageErrorKind> {
        let FetchRequest {
            url,
            known,
            expected,
        } = request;
        let (agent, variables) = (&self.agent, &self.variables);
        let response = if is_object(url) {
            store::fetch(agent, variables, url, known, transfer)?
        } else if oci::is_artifact(url) {
            let cache = self.cache.as_ref();
            StoreResponse::from_file(oci::fetch(agent, variables, url, cache, transfer)?)
        } else {
            StoreResponse::from_file(web::fetch(agent, url, transfer)?)
        };
        let object = response
            .object
            .map(|file| file.check_digest(expected))
            .transpose()?;
        Ok(StoreResponse { object, ..response })
    }
}

/// A file to fetch.
#[derive(Clone, Copy)]
struct FetchRequest<'a> {
    url: &'a str,
    /// Version that need not be downloaded again.
    known: Option<&'a str>,
    expected: Option<Digest>,
}

/// Returns whether files of a source have versions, so that polling for a new one is cheap.
#[must_use]
pub fn is_versioned(source: &Source) -> bool {
    match source {
        Source::Path(_) => false,
        Source::Url(url) => is_object(url),
    }
}

/// Returns the source as shown in messages: a URL without credentials and query, because they may
/// contain secrets.
#[must_use]
pub fn redacted(source: &Source) -> String {
    let url = match source {
        Source::Path(path) => return path.clone(),
        Source::Url(url) => url,
    };
    let (url, has_query) = match url.split_once('?') {
        Some((url, _)) => (url, true),
        None => (url.as_str(), false),
    };
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = host.rsplit('@').next().unwrap_or(host);
    let query = if has_query { "?..." } else { "" };
    format!("{scheme}://{host}{path}{query}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_a_url_are_redacted() {
        for (url, text) in [
            ("https://a.example/m.ubj", "https://a.example/m.ubj"),
            ("https://a.example", "https://a.example"),
            (
                "https://me:word@a.example/m@1.ubj",
                "https://a.example/m@1.ubj",
            ),
            (
                "https://a.example/m.ubj?sig=x/@y",
                "https://a.example/m.ubj?...",
            ),
        ] {
            assert_eq!(redacted(&Source::Url(url.to_owned())), text);
        }
    }
}
