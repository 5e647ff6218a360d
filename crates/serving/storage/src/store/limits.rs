//! Bounds of requests to stores, with their reasons.

use std::time::Duration;

/// Initial backoff before a request is retried; doubled on each retry ...
pub(super) const PAUSE_MIN: Duration = Duration::from_millis(200);

/// ... up to this maximum: after a longer outage the caller retries.
pub(super) const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Timeout of connecting to a provider of credentials, which is on the machine or near it.
pub(super) const CREDENTIALS_CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Timeout of a whole request for credentials.
pub(super) const CREDENTIALS_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum bytes that are read of a response that is not a file: errors, tokens.
pub(super) const RESPONSE_BYTES_MAX: u64 = 1 << 20;

/// Maximum bytes of a listing: [`FOLDER_ENTRIES_MAX`] keys of the maximum length, 1,024 bytes, in
/// XML.
pub(super) const LISTING_BYTES_MAX: u64 = 4 << 20;
