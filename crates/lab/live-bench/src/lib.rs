//! Measurements of a running `albacore run`: the demo. [`service`] controls the process; it is also
//! used by experiments and by tests of other crates.
#![forbid(unsafe_code)]

pub mod demo;
pub mod service;
