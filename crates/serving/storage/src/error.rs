//! Why a model file could not be fetched.

use albacore_settings::Digest;

/// What failed, where, and the remedy. URLs are shown without credentials and query.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
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
    /// The file does not have the expected digest.
    #[error(
        "{place} has the SHA-256 {found}, not {wanted}: it was replaced or damaged; correct the \
         file or sha256"
    )]
    Digest {
        place: String,
        wanted: Digest,
        found: Digest,
    },
    /// The status is not 200.
    #[error("{place} answered {status}: {remedy}")]
    Status {
        place: String,
        status: u16,
        remedy: &'static str,
    },
    /// Too many redirects.
    #[error("{place} redirects more than {redirects_max} times: name the last URL itself")]
    Redirects { place: String, redirects_max: u32 },
    /// An https URL redirects to an http URL.
    #[error("{place} redirects from https to http, which is not followed: name an https URL")]
    Downgrade { place: String },
    /// A timeout.
    #[error("{place} took too long ({what}): check the server, then try again")]
    Slow {
        place: String,
        /// What did not arrive, and in which time.
        what: String,
    },
    /// An error of the network, the name or the certificate.
    #[error("{place} cannot be fetched: {problem}")]
    Network { place: String, problem: String },
    /// Out of memory.
    #[error("{place} does not fit in memory: {bytes} bytes were read so far")]
    Memory {
        place: String,
        /// Bytes that were read before.
        bytes: usize,
    },
    #[error("fetching {place} was cancelled")]
    Cancelled { place: String },
    /// The file of CA certificates is invalid.
    #[error("{path} has no usable CA certificates: {problem}; name a PEM file of CA certificates")]
    Roots { path: String, problem: String },
}
