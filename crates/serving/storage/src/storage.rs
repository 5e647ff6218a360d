//! Fetches from paths and URLs.

use std::path::Path;

use albacore_settings::{Digest, Source};
use ureq::Agent;

use crate::error::{Problem, StorageError};
use crate::receive::{Fetched, Transfer};
use crate::variables::Variables;
use crate::{file, oci, store, web};

/// Fetches model files.
#[derive(Debug)]
pub struct Storage {
    agent: Agent,
    bytes_max: u64,
    variables: Variables,
}

impl Storage {
    /// Fetches files of at most `bytes_max` bytes; https servers are trusted by `roots` (a PEM
    /// file), or by Mozilla's roots.
    ///
    /// # Errors
    /// [`crate::Problem::Roots`].
    pub fn new(bytes_max: u64, roots: Option<&Path>) -> Result<Self, StorageError> {
        let roots = roots.map(|path| {
            web::read_roots(path).map_err(|problem| StorageError {
                place: path.display().to_string(),
                problem,
            })
        });
        let agent = web::agent(roots.transpose()?);
        Ok(Self {
            agent,
            bytes_max,
            variables: Variables::of_process(),
        })
    }

    /// Stores are set up by these variables in place of those of the process.
    #[must_use]
    pub fn with_variables(mut self, all: impl IntoIterator<Item = (String, String)>) -> Self {
        self.variables = Variables::new(all);
        self
    }

    /// Fetches a file. Blocks, bounded by `limits.rs`; `is_wanted` is called between two reads and
    /// cancels by returning false. A digest other than `wanted` is an error.
    ///
    /// # Errors
    /// [`StorageError`].
    pub fn fetch(
        &self,
        source: &Source,
        wanted: Option<Digest>,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<Fetched, StorageError> {
        // Without a known version there is always a file.
        let fetched = self.fetch_unless(source, None, wanted, is_wanted)?;
        fetched.ok_or_else(|| StorageError {
            place: redacted(source),
            problem: Problem::Replaced,
        })
    }

    /// As [`Self::fetch`]; `None` if the file still has the version `known`, which an earlier
    /// [`Fetched`] named.
    ///
    /// # Errors
    /// [`StorageError`].
    pub fn fetch_unless(
        &self,
        source: &Source,
        known: Option<&str>,
        wanted: Option<Digest>,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<Option<Fetched>, StorageError> {
        let transfer = Transfer {
            bytes_max: self.bytes_max,
            is_wanted,
        };
        let received = match source {
            Source::Path(path) => file::read(path, transfer).map(Some),
            Source::Url(url) if store::is_object(url) => {
                store::fetch(&self.agent, &self.variables, url, known, transfer)
            }
            Source::Url(url) if oci::is_artifact(url) => {
                oci::fetch(&self.agent, &self.variables, url, transfer).map(Some)
            }
            Source::Url(url) => web::fetch(&self.agent, url, transfer).map(Some),
        };
        let checked = received.and_then(|received| match (received, wanted) {
            (Some(Fetched { sha256: found, .. }), Some(wanted)) if wanted != found => {
                Err(Problem::Digest { wanted, found })
            }
            (received, _) => Ok(received),
        });
        checked.map_err(|problem| StorageError {
            place: redacted(source),
            problem,
        })
    }
}

/// Whether a source names versions of its files, so that asking for a new one is cheap.
#[must_use]
pub fn has_versions(source: &Source) -> bool {
    match source {
        Source::Path(_) => false,
        Source::Url(url) => store::is_object(url),
    }
}

/// A source for messages: a URL without credentials and query, which may contain secrets.
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
    fn secrets_of_a_url_are_not_shown() {
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
