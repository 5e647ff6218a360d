//! The bounds of requests to stores, each with its reason.

use std::time::Duration;

/// Pause before a request is tried again the first time; doubles with each ...
pub(super) const PAUSE_MIN: Duration = Duration::from_millis(200);

/// ... up to this: a longer outage is left to the caller, who tries again later.
pub(super) const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Longest wait for a connection to what gives credentials: it is in the machine or beside it.
pub(super) const CREDENTIALS_CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Longest wait for credentials, from first to last byte.
pub(super) const CREDENTIALS_TIMEOUT: Duration = Duration::from_secs(30);

/// Most bytes that are read of an answer that is not a file: errors, tokens.
pub(super) const RESPONSE_BYTES_MAX: u64 = 1 << 20;

/// Most bytes of a listing: [`FOLDER_ENTRIES_MAX`] keys of the greatest length, 1,024 bytes, in
/// XML.
pub(super) const LISTING_BYTES_MAX: u64 = 4 << 20;
