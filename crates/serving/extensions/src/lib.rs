//! Metadata of the server and its models, and Triton's extensions of the Open Inference Protocol:
//! classification outputs ([`Classification`]), model configuration ([`model_config`]), system
//! shared memory regions for tensors ([`SharedMemoryRegions`]), model repository calls
//! ([`RepositoryCall`]), and their gRPC and JSON messages.
//!
//! Regions are accessed by `pread` and `pwrite` and never mapped: if a client truncates its file,
//! the call returns an error, whereas access to a mapping would raise SIGBUS.
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
pub use regions::{RegionError, RegionSlice, RegionStatus, SharedMemoryRegions};
pub use repository::{RepositoryCall, RepositoryError};
pub use unsupported_call::UnsupportedCall;
