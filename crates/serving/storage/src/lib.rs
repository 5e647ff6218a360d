//! The bytes of a model, from a path or an http(s) URL, checked before anybody parses them.
//!
//! Blocking: call it from a thread that may wait. Bytes go to memory alone, nothing is written to a
//! disk. Every wait, size and redirect is bounded (`limits.rs`). No variable of the environment
//! is read: a proxy is used nowhere. Trusted are the roots of Mozilla, built in because images from
//! scratch have none, or those of a file in their place.
#![forbid(unsafe_code)]

mod error;
mod file;
mod limits;
mod receive;
mod storage;
mod web;

pub use error::StorageError;
pub use limits::BYTES_DEFAULT;
pub use receive::sha256;
pub use storage::{Fetched, Storage, shown};
