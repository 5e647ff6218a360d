//! Load for a server on this machine: precomputed arrivals, open or closed loop, latency from the
//! intended send time.
//!
//! An open-loop generator sends at the times drawn beforehand, whatever the server does; a request
//! that could not be sent in time (no free connection) is charged for the wait. A generator that
//! measured from the actual send time would hide exactly the stalls that it is there to find.
#![forbid(unsafe_code)]

mod arrivals;
mod connection;
mod drive;
mod http1;
mod look;
mod message;
mod open;
mod outcome;
mod summary;

pub use arrivals::{Random, RecordError, gamma, poisson, recorded};
pub use drive::{Load, LoadError, Request, Sample, Shape, drive};
pub use look::{LookError, get};
pub use message::{Call, Wire};
pub use outcome::{Outcome, Report};
pub use summary::{Summary, percentile, summarize};
