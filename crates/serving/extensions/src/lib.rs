//! Triton's extensions of the Open Inference Protocol, without their wire formats: outputs as classes
//! ([`Classification`]), and regions of system shared memory for tensors ([`Regions`]).
//!
//! Regions are read and written by system calls and never mapped: a client that truncates its file
//! gets an error, where a mapping would end the process.
#![forbid(unsafe_code)]

mod classification;
pub mod limits;
mod regions;

pub use classification::Classification;
pub use regions::{RegionError, RegionSlice, RegionStatus, Regions};
