//! Measurements of a running `albacore run`: the demo, and the comparison of placement policies
//! under a gunicorn server. [`service`] drives the process; tests of other crates use it too.
#![forbid(unsafe_code)]

pub mod demo;
pub mod placement;
pub mod service;
