//! Fetches model files from a path or an http(s) URL and checks their digest. A path may be that of
//! a folder with one model file.
//!
//! Blocking. Files are kept in memory and not written to disk. Every wait, size and redirect is
//! bounded (`limits.rs`). Environment variables are ignored, so no proxy is used. The trusted roots
//! are those of Mozilla, which are built in because scratch images have none, or those of a file.
#![forbid(unsafe_code)]

mod error;
mod file;
mod folder;
mod limits;
mod mlmodel;
mod receive;
mod storage;
mod web;

pub use error::{Problem, StorageError};
pub use folder::{model_file, model_folders};
pub use limits::BYTES_DEFAULT;
pub use receive::sha256;
pub use storage::{Fetched, Storage, redacted};
