//! Measurements of a running `albacore run`: the demo. [`service`] drives the process; experiments
//! and tests of other crates use it too.
#![forbid(unsafe_code)]

pub mod demo;
pub mod service;
