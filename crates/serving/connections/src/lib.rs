//! Connections of the server: accepted, bounded and closed; their requests go to a [`Handler`].
//!
//! `acceptor` is the accept loop of a port, `connection` drives one connection over `io`,
//! `coalescing` and `socket`, `state` is its phase and deadline, `head` checks what hyper leaves
//! unchecked, `shutdown` has the stages of a server's end. The limits and their reasons are in
//! [`limits`]; [`LimitMetrics`] counts how often clients reach them.
#![forbid(unsafe_code)]

mod acceptor;
mod coalescing;
mod connection;
mod connection_count;
mod head;
mod io;
mod limit_metrics;
pub mod limits;
mod shutdown;
mod socket;
mod state;

pub use acceptor::{PortShare, divide_port, serve};
pub use connection::{Handler, serve_stream};
pub use connection_count::ConnectionCount;
pub use head::{HeadError, check_head};
pub use limit_metrics::{Limit, LimitMetrics};
pub use shutdown::{ShutdownStage, next_stage};
pub use state::{ActiveRequest, ConnState};
