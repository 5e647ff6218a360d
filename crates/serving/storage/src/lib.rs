//! Fetches model files from a path, an http(s) URL, an object store or a registry, and checks their
//! digest. A path may be a folder with one model file.
//!
//! Blocking. Files are kept in memory, and in a cache if one is configured. Every wait, size, retry
//! and redirect is bounded (`limits.rs`). Environment variables, including those of proxies, are
//! ignored, except the ones that configure an object store. The trusted roots are those of Mozilla,
//! which are built in because scratch images have none, or those of a file.
#![forbid(unsafe_code)]

mod cache;
mod error;
mod file;
mod folder;
mod limits;
mod mlmodel;
#[cfg(any(test, not(feature = "object-storage")))]
mod no_store;
mod oci;
mod receive;
mod scheme;
mod storage;
#[cfg(feature = "object-storage")]
mod store;
mod variables;
mod web;

#[cfg(not(feature = "object-storage"))]
use no_store as store;

pub use cache::CacheUse;
pub use error::{StorageError, StorageErrorKind};
pub use folder::{model_file, model_folders, watched_files};
pub use limits::BYTES_DEFAULT;
pub use mlmodel::{Estimator, PythonModel};
pub use receive::{Fetched, sha256};
pub use storage::{Storage, is_versioned, redacted};
