//! The bounds of the crate, each with its reason.

use std::time::Duration;

/// Default of the largest model file: larger than any forest that answers in milliseconds.
pub const BYTES_DEFAULT: u64 = 2 << 30;

/// Bytes of one read; a transfer checks for cancellation after each.
pub(crate) const CHUNK_BYTES: usize = 256 << 10;

/// Entries of a folder in which a model file is looked for: more is not a folder of
/// one model. Object stores list as many at once.
pub(crate) const FOLDER_ENTRIES_MAX: usize = 1000;

/// Bytes of a file `MLmodel`: those of MLflow have a few thousand, signatures of wide models more.
pub(crate) const MLMODEL_BYTES_MAX: u64 = 4 << 20;

/// Longest wait for a connection, its TLS handshake included.
pub(crate) const CONNECT_MAX: Duration = Duration::from_secs(10);

/// Longest wait for the head of a response: object stores may have to mount a volume.
pub(crate) const RESPONSE_MAX: Duration = Duration::from_secs(30);

/// Longest pause inside a body.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Longest transfer, from first to last: 2 GiB at 4 MB/s.
pub(crate) const TRANSFER_MAX: Duration = Duration::from_secs(600);

/// Redirects followed: a shortener, a store and its region are three.
pub(crate) const REDIRECTS_MAX: u32 = 5;

/// Times that a request to a store, or a download from it that broke, is tried again.
pub(crate) const RETRIES_MAX: usize = 3;

/// Most bytes of a manifest of a registry; registries themselves take no larger ones.
pub(crate) const MANIFEST_BYTES_MAX: u64 = 4 << 20;

/// Lock files of a cache: loads of different models seldom wait for each other.
pub(crate) const LOCK_FILES: u8 = 16;

/// Longest wait for another server that fetches the same file: a stopped one delays no start
/// longer.
pub(crate) const LOCK_WAIT_MAX: Duration = Duration::from_secs(60);

/// Pause between two looks at a lock.
pub(crate) const LOCK_POLL_PERIOD: Duration = Duration::from_millis(100);

/// Age from which a file that was not written to its end is removed: no write takes so long.
pub(crate) const PARTIAL_AGE_MAX: Duration = Duration::from_secs(900);

/// Longest version that is kept: the ETags of stores have up to a hundred characters.
pub(crate) const VERSION_BYTES_MAX: usize = 1024;

/// Largest file of an origin: a digest, a version and two separators.
pub(crate) const VERSION_RECORD_BYTES_MAX: u64 = 64 + 2 + VERSION_BYTES_MAX as u64;

/// Notes of origins that a cache keeps: more than a node has models. One that is removed costs
/// one download.
pub(crate) const VERSION_RECORDS_MAX: usize = 4096;

/// Largest file of trusted roots: the whole list of Mozilla is 220 KiB.
pub(crate) const ROOTS_BYTES_MAX: u64 = 4 << 20;
