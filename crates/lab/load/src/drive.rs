//! Input and output of a load run.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;

use crate::{Generator, StageTimes};

#[derive(Clone, Debug)]
pub struct Request {
    pub address: SocketAddr,
    /// Path, such as `/v2/models/fraud/infer`.
    pub path: String,
    /// Header names and values; without `host`, that is `localhost` or, for gRPC, the address.
    pub headers: Vec<(String, String)>,
    pub body: Bytes,
}

impl Request {
    /// Whether this is a gRPC call according to its content type, sent over HTTP/2.
    pub fn is_grpc(&self) -> bool {
        let is_so = |(name, value): &(String, String)| {
            name.eq_ignore_ascii_case("content-type") && value.starts_with("application/grpc")
        };
        self.headers.iter().any(is_so)
    }

    /// The host if it is among the headers: proxies of a mesh route by it, not by the address.
    pub(crate) fn host(&self) -> Option<&str> {
        let host = self.headers.iter().find(|(name, _)| is_host(name));
        host.map(|(_, value)| value.as_str())
    }

    /// The headers other than the host.
    pub(crate) fn other_headers(&self) -> impl Iterator<Item = &(String, String)> {
        self.headers.iter().filter(|(name, _)| !is_host(name))
    }
}

fn is_host(name: &str) -> bool {
    name.eq_ignore_ascii_case("host")
}

/// When requests are sent.
#[derive(Clone, Debug)]
pub enum Shape {
    /// Open loop: at these times after the start, ascending, independent of the server.
    Open(Vec<Duration>),
    /// Closed loop: for this long, each connection sends its next request after the previous
    /// response.
    Closed(Duration),
}

/// A run of the load generator.
#[derive(Clone, Debug)]
pub struct Load {
    /// Sent round-robin.
    pub requests: Vec<Request>,
    pub shape: Shape,
    /// Connections; in a closed loop also the concurrency.
    pub connections: usize,
}

/// One request of a run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sample {
    /// Intended send time after the start of the run.
    pub intended: Duration,
    /// When its connection began to send it.
    pub sent: Duration,
    /// From the intended send time to the last byte of the response.
    pub latency: Duration,
    /// HTTP status, or the one that corresponds to the gRPC status; 0 without a response.
    pub status: u16,
    /// Stage times that the server reports.
    pub stages: StageTimes,
    /// Index in [`Load::requests`].
    pub request: usize,
    /// Delay by the generator itself; it excludes waiting for a connection, which the server
    /// causes.
    pub lag: Duration,
}

/// Errors of a run.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// No request or no connection.
    #[error("a load needs at least one request and one connection")]
    Empty,
    #[error(
        "{connections} connections need more open files than the limit of this process, {limit}: \
         raise it (`ulimit -Hn`), or ask for fewer connections"
    )]
    DescriptorLimit { connections: usize, limit: u64 },
    #[error("cannot start the load generator's runtime")]
    Runtime(#[source] std::io::Error),
    /// The clock or the limit of open files.
    #[error("a system call of the load generator failed")]
    System(#[from] albacore_os::OsError),
    /// A task of the generator panicked, so the samples are incomplete.
    #[error("a task of the load generator panicked: the run is invalid")]
    Incomplete,
}

/// Runs `load` on a new generator and returns its samples, by intended time.
///
/// # Errors
/// [`LoadError`].
pub fn drive(load: Load) -> Result<Vec<Sample>, LoadError> {
    Generator::new()?.run(load)
}
