//! Errors of fetching a model file.

use albacore_settings::{Digest, OciReference};

use crate::folder::MODEL_EXTENSIONS;
use crate::limits::{FOLDER_ENTRIES_MAX, REDIRECTS_MAX};

/// A file could not be fetched: its location, the cause and the remedy.
#[derive(Debug, thiserror::Error)]
#[error("{location} {problem}")]
pub struct StorageError {
    /// Path or URL; a URL is shown without credentials and query.
    pub location: String,
    pub problem: StorageErrorKind,
}

/// Cause of a failed fetch; the message continues a sentence that begins with the path or URL.
#[derive(Debug, thiserror::Error)]
pub enum StorageErrorKind {
    #[error("cannot be read: {0}")]
    File(std::io::Error),
    /// A device or a pipe.
    #[error("is not a file: name the model file itself")]
    NotFile,
    /// A folder without a file with an extension of models.
    #[error("has no model file, one that ends in .{}: name a folder with one, or the file itself", MODEL_EXTENSIONS.join(", ."))]
    NoModelFile,
    /// A folder of several models that contains no folders.
    #[error(
        "has no folders, one for each model: add them, or name the only model with --model_name"
    )]
    NoFolders,
    /// A folder with more than one file with an extension of models; two of them.
    #[error("has several model files, {first} and {second} among them: name the file itself")]
    SeveralModelFiles { first: String, second: String },
    #[error("has more than {FOLDER_ENTRIES_MAX} entries: name the model file itself")]
    FolderTooLarge,
    /// MLflow's `MLmodel` file of the folder is invalid or describes an unsupported model.
    #[error("has a file MLmodel that {0}")]
    Mlmodel(String),
    /// The file has more bytes than allowed.
    #[error("has more than {bytes_max} bytes: serve a smaller model or raise --model-bytes-max")]
    TooLarge { bytes_max: u64 },
    /// The digest of the file is not the expected one.
    #[error(
        "has the SHA-256 {found}, not {expected}: it was replaced or damaged; correct the file or \
         sha256"
    )]
    Digest { expected: Digest, found: Digest },
    /// The status is not 200.
    #[error("answered {status}: {remedy}")]
    Status { status: u16, remedy: &'static str },
    /// Too many redirects.
    #[error("redirects more than {REDIRECTS_MAX} times: name the last URL itself")]
    Redirects,
    /// An https URL redirects to an http URL.
    #[error("redirects from https to http, which is not followed: name an https URL")]
    Downgrade,
    /// A timeout: what was not received, and within which time.
    #[error("timed out (expected {0}): check the server, then try again")]
    Slow(String),
    /// An error of the network, of name resolution or of the certificate.
    #[error("cannot be fetched: {0}")]
    Network(String),
    /// The URL of an object is invalid.
    #[error("is not s3://bucket/key, gs://bucket/key or az://container/key: {0}")]
    Address(String),
    /// The URL of an artifact is invalid.
    #[error("is not {}", OciReference::FORM)]
    Artifact,
    /// Error response of a store or registry, or missing configuration.
    #[error("{found}: {remedy}")]
    Store { found: String, remedy: String },
    /// The object was replaced during the download, so that it cannot be resumed.
    #[error("was replaced while it was read: it is retried")]
    Replaced,
    /// Out of memory.
    #[error("does not fit in memory: {bytes_read} bytes were read so far")]
    Memory { bytes_read: usize },
    #[error("is no longer needed: fetching it was canceled")]
    Cancelled,
    #[error(
        "cannot be used for a cache: {0}; --model-cache needs a folder that the user of the \
         server may write to"
    )]
    Cache(std::io::Error),
    /// The file of CA certificates is invalid.
    #[error("has no usable CA certificates: {0}; name a PEM file of CA certificates")]
    Roots(String),
}
