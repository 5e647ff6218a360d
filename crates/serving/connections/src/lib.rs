//! Connections of the server: accepts, limits and closes them, and passes requests to a
//! [`Handler`].
//!
//! `acceptor` is the accept loop of a port; `connection` drives one connection over `io`,
//! `coalescing` and `socket`; `state` is its phase and deadline; `head` makes the checks that hyper
//! does not make; `shutdown` defines the stages of a shutdown. The limits and their reasons are in
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

pub use acceptor::{LoopAcceptor, create_acceptors, serve};
pub use connection::{Handler, serve_stream};
pub use connection_count::ConnectionCount;
pub use head::{HeadError, check_head};
pub use limit_metrics::{Limit, LimitMetrics};
pub use shutdown::{ShutdownStage, next_stage};
pub use state::{ActiveRequest, ConnState};
