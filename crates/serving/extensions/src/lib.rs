//! Metadata of the server and its models, and Triton's extensions of the Open Inference Protocol:
//! outputs as classes ([`Classification`]), the configuration of a model ([`model_config`]),
//! regions of system shared memory for tensors ([`Regions`]), calls that load and unload models
//! ([`RepositoryCall`]), and their messages and JSON.
//!
//! Regions are read and written by system calls and never mapped: a client that truncates its file
//! gets an error, where a mapping would end the process.
#![forbid(unsafe_code)]

mod classification;
pub mod json;
pub mod limits;
pub mod messages;
pub mod metadata;
pub mod metadata_messages;
mod model_config;
mod regions;
pub mod repository;
pub mod tensors;
mod unsupported_call;

pub use classification::Classification;
pub use model_config::model_config;
pub use regions::{RegionError, RegionSlice, RegionStatus, Regions};
pub use repository::{RepositoryCall, RepositoryError};
pub use unsupported_call::UnsupportedCall;
