//! Bounds of this crate, with their reasons.

use std::time::Duration;

/// Default maximum size of a model file: larger than any forest that predicts in milliseconds.
pub const BYTES_DEFAULT: u64 = 2 << 30;

/// Bytes per read; a transfer checks for cancellation before each read.
pub(crate) const CHUNK_BYTES: usize = 256 << 10;

/// Maximum entries of a folder that is searched for a model file: a folder with more is not that of
/// one model. Object stores return as many per listing.
pub(crate) const FOLDER_ENTRIES_MAX: usize = 1000;

/// Maximum bytes of an `MLmodel` file: usually a few thousand, more with signatures of wide models.
pub(crate) const MLMODEL_BYTES_MAX: u64 = 4 << 20;

/// Timeout of connecting, including the TLS handshake.
pub(crate) const CONNECT_MAX: Duration = Duration::from_secs(10);

/// Timeout of the head of a response: object stores may have to mount a volume.
pub(crate) const RESPONSE_MAX: Duration = Duration::from_secs(30);

/// Timeout of each read of a body.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Timeout of a whole transfer: 2 GiB at 4 MB/s.
pub(crate) const TRANSFER_MAX: Duration = Duration::from_secs(600);

/// Maximum redirects: a URL shortener, a store and its region need three.
pub(crate) const REDIRECTS_MAX: u32 = 5;

/// Maximum retries of a request to a store, or of an interrupted download.
pub(crate) const RETRIES_MAX: usize = 3;

/// Maximum bytes of a manifest; registries accept no larger ones.
pub(crate) const MANIFEST_BYTES_MAX: u64 = 4 << 20;

/// Number of lock files of a cache: enough that loads of different models rarely block each other.
pub(crate) const LOCK_FILES: u8 = 16;

/// Maximum wait for another server that fetches the same file: bounds the delay of a start by a
/// stopped server.
pub(crate) const LOCK_WAIT_MAX: Duration = Duration::from_secs(60);

/// Interval at which a lock is polled.
pub(crate) const LOCK_POLL_PERIOD: Duration = Duration::from_millis(100);

/// Age above which a partially written file is removed: no write takes that long.
pub(crate) const PARTIAL_AGE_MAX: Duration = Duration::from_secs(900);

/// Maximum bytes of a version: ETags of stores have up to a hundred characters.
pub(crate) const VERSION_BYTES_MAX: usize = 1024;

/// Maximum bytes of a version record: a digest, a version and two separators.
pub(crate) const VERSION_RECORD_BYTES_MAX: u64 = 64 + 2 + VERSION_BYTES_MAX as u64;

/// Maximum version records of a cache: more than a node has models. Removing a record costs one
/// download.
pub(crate) const VERSION_RECORDS_MAX: usize = 4096;

/// Maximum bytes of a file of trusted roots: Mozilla's complete list has 220 KiB.
pub(crate) const ROOTS_BYTES_MAX: u64 = 4 << 20;
