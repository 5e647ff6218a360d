//! Why the bytes of a model could not be had.

use albacore_settings::Digest;

/// What failed, where, and the way out. URLs are shown without credentials and query.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// A file of the disk cannot be read.
    #[error("{path} cannot be read: {problem}")]
    File { path: String, problem: String },
    /// A folder, a device, a pipe.
    #[error("{path} is not a file: name the model file itself")]
    NotFile { path: String },
    /// More bytes than allowed.
    #[error(
        "{place} has more than {bytes_max} bytes: serve a smaller model or raise \
         --model-bytes-max"
    )]
    TooLarge { place: String, bytes_max: u64 },
    /// The bytes are not those that were asked for.
    #[error(
        "{place} has the SHA-256 {found}, not {wanted}: it was replaced or damaged; correct the \
         file or sha256"
    )]
    Digest {
        place: String,
        /// What was asked for.
        wanted: Digest,
        found: Digest,
    },
    /// The server answered something else than the file.
    #[error("{place} answered {status}: {way_out}")]
    Status {
        place: String,
        status: u16,
        way_out: &'static str,
    },
    /// The server sends on and on.
    #[error("{place} redirects more than {redirects_max} times: name the last URL itself")]
    Redirects { place: String, redirects_max: u32 },
    /// An https URL led to an http one.
    #[error("{place} redirects from https to http, which is not followed: name an https URL")]
    Downgrade { place: String },
    /// The server takes too long.
    #[error("{place} took too long ({what}): see whether the server is well, then try again")]
    Slow {
        place: String,
        /// What was waited for, and how long.
        what: String,
    },
    /// The network, the name or the certificate.
    #[error("{place} cannot be fetched: {problem}")]
    Network { place: String, problem: String },
    /// The memory of this process does not hold it.
    #[error("{place} does not fit the memory: {bytes} bytes were read so far")]
    Memory {
        place: String,
        /// Bytes that did fit.
        bytes: usize,
    },
    /// The caller does not want it any more.
    #[error("{place} is not wanted any more")]
    Cancelled { place: String },
    /// The file of trusted roots.
    #[error("{path} holds no roots to trust: {problem}; give a PEM file of CA certificates")]
    Roots { path: String, problem: String },
}
