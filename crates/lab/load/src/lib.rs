//! Load generator: precomputed arrivals, open or closed loop, latency from the intended send time.
//!
//! An open-loop generator sends at times drawn beforehand, independent of the server; if a request
//! cannot be sent in time (no free connection), its latency includes the wait. Latency from the
//! actual send time would hide the stalls that the measurement is meant to find (coordinated
//! omission).
#![forbid(unsafe_code)]

mod arrivals;
mod connection;
mod drive;
mod generator;
mod get;
mod http1;
mod message;
mod open;
mod outcome;
mod stage_times;
mod summary;

pub use arrivals::{TraceError, gamma, poisson, recorded};
pub use drive::{Load, LoadError, Request, Sample, Shape, drive};
pub use generator::Generator;
pub use get::{GetError, get};
pub use message::{InferRequest, WireFormat};
pub use outcome::{Outcome, Report};
pub use stage_times::StageTimes;
pub use summary::{Summary, percentile, summarize};
