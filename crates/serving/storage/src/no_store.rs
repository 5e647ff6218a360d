//! Replaces `store` in builds without the feature `object-storage`: rejects objects.

use ureq::Agent;

use crate::error::StorageErrorKind;
use crate::receive::{StoreResponse, Transfer};
use crate::variables::Variables;

/// Returns whether the URL of an object is that of a folder.
pub(crate) fn is_folder(url: &str) -> bool {
    url.ends_with('/')
}

/// Rejects the URL of an object.
pub(crate) fn fetch(
    _: &Agent,
    _: &Variables,
    _: &str,
    _: Option<&str>,
    _: Transfer<'_>,
) -> Result<StoreResponse, StorageErrorKind> {
    Err(StorageErrorKind::Store {
        found: "is in an object store, but this program was built without object stores".to_owned(),
        remedy: "build it with the feature object-storage, or name a path or an http(s) URL"
            .to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_for_an_object_names_the_feature() {
        let agent = Agent::new_with_defaults();
        let variables = Variables::default();
        for url in ["s3://bucket/model.ubj", "gs://bucket/models/"] {
            let transfer = Transfer {
                bytes_max: 1,
                is_wanted: &|| true,
            };
            let fetched = fetch(&agent, &variables, url, None, transfer);
            let error = fetched.map(|_| ()).unwrap_err().to_string();
            assert!(error.contains("feature object-storage"), "{error}");
            assert_eq!(is_folder(url), url.ends_with('/'));
        }
    }
}
