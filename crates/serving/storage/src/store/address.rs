//! URLs of objects: store, bucket and key.

use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::list::PaginatedListStore;
use object_store::path::Path;
use object_store::{BackoffConfig, ObjectStore, RetryConfig};

use super::client::Connector;
use super::limits::{PAUSE_MAX, PAUSE_MIN};
use super::settings::{hide_secrets, settings};
use crate::error::StorageErrorKind;
use crate::limits::{RETRIES_MAX, TRANSFER_MAX};
use crate::scheme::StoreKind;
use crate::variables::Variables;

impl StoreKind {
    /// Returns the variables that set the credentials, for messages.
    pub(super) fn credential_variables(self) -> &'static str {
        match self {
            Self::S3 => "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
            Self::Google => "GOOGLE_APPLICATION_CREDENTIALS",
            Self::Azure => "AZURE_STORAGE_ACCOUNT_KEY",
        }
    }

    /// Returns the variables that set the endpoint, for messages.
    pub(super) fn endpoint_variables(self) -> &'static str {
        match self {
            Self::S3 => "AWS_REGION and AWS_ENDPOINT_URL",
            Self::Google => "GOOGLE_BASE_URL",
            Self::Azure => "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ENDPOINT",
        }
    }
}

#[derive(Debug)]
pub(super) struct Address {
    pub(super) store: StoreKind,
    bucket: String,
    pub(super) key: Path,
    /// Whether the URL ends with a slash: the key is then a prefix of keys.
    pub(super) is_folder: bool,
}

/// Operations of a store's client that a fetch uses.
pub(super) trait Client: ObjectStore + PaginatedListStore {}

impl<T: ObjectStore + PaginatedListStore> Client for T {}

impl Address {
    /// Parses a URL without percent-decoding: the key is used as written.
    pub(super) fn parse(url: &str) -> Result<Self, StorageErrorKind> {
        let parts = url.split_once("://").and_then(|(scheme, rest)| {
            let (bucket, key) = rest.split_once('/')?;
            Some((StoreKind::from_scheme(scheme)?, bucket, key))
        });
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        match parts {
            Some((store, bucket, key))
                if !bucket.is_empty() && bucket.chars().all(is_name) && !key.is_empty() =>
            {
                let is_folder = key.ends_with('/');
                let key = Path::parse(key)
                    .map_err(|error| StorageErrorKind::Address(error.to_string()))?;
                Ok(Self {
                    store,
                    bucket: bucket.to_owned(),
                    key,
                    is_folder,
                })
            }
            _ => Err(StorageErrorKind::Address(
                "invalid scheme, bucket or key".to_owned(),
            )),
        }
    }

    /// Creates a client of the store with the settings and credentials of the environment.
    pub(super) fn open(
        &self,
        variables: &Variables,
        connector: Connector,
    ) -> Result<Box<dyn Client>, StorageErrorKind> {
        let retry = RetryConfig {
            backoff: BackoffConfig {
                init_backoff: PAUSE_MIN,
                max_backoff: PAUSE_MAX,
                base: 2.0,
            },
            max_retries: RETRIES_MAX,
            retry_timeout: TRANSFER_MAX,
        };
        let opened: object_store::Result<Box<dyn Client>> = match self.store {
            StoreKind::S3 => {
                let own = settings(variables, "AWS_");
                own.fold(AmazonS3Builder::new(), |to, (key, value)| {
                    to.with_config(key, value)
                })
                .with_bucket_name(&self.bucket)
                .with_retry(retry)
                .with_http_connector(connector)
                .build()
                .map(|client| Box::new(client) as _)
            }
            StoreKind::Google => {
                let own = settings(variables, "GOOGLE_");
                own.fold(GoogleCloudStorageBuilder::new(), |to, (key, value)| {
                    to.with_config(key, value)
                })
                .with_bucket_name(&self.bucket)
                .with_retry(retry)
                .with_http_connector(connector)
                .build()
                .map(|client| Box::new(client) as _)
            }
            StoreKind::Azure => {
                let own = settings(variables, "AZURE_");
                own.fold(MicrosoftAzureBuilder::new(), |to, (key, value)| {
                    to.with_config(key, value)
                })
                .with_container_name(&self.bucket)
                .with_retry(retry)
                .with_http_connector(connector)
                .build()
                .map(|client| Box::new(client) as _)
            }
        };
        opened.map_err(|error| StorageErrorKind::Store {
            found: format!(
                "cannot be fetched with this environment: {}",
                hide_secrets(variables, &error.to_string())
            ),
            remedy: format!(
                "correct {} and {}",
                self.store.endpoint_variables(),
                self.store.credential_variables()
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_split_into_store_bucket_and_key_without_decoding() {
        for (url, store, bucket, key) in [
            (
                "s3://models/v1/fraud.ubj",
                StoreKind::S3,
                "models",
                "v1/fraud.ubj",
            ),
            (
                "gs://models.example.org/a",
                StoreKind::Google,
                "models.example.org",
                "a",
            ),
            (
                "az://models/a b%20c=d.ubj",
                StoreKind::Azure,
                "models",
                "a b%20c=d.ubj",
            ),
        ] {
            let address = Address::parse(url).unwrap();
            let found = (address.store, address.bucket.as_str(), address.key.as_ref());
            assert_eq!(found, (store, bucket, key));
        }
    }

    #[test]
    fn a_url_without_bucket_or_key_is_rejected() {
        for url in [
            "s3://models",
            "s3://models/",
            "s3:///key",
            "s3://me:word@models/key",
            "gs://models/a//b",
            "az://models/../key",
        ] {
            let error = Address::parse(url).unwrap_err().to_string();
            assert!(error.contains("s3://bucket/key"), "{url}: {error}");
        }
    }
}
