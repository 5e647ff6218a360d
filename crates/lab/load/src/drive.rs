//! Sends the requests of a [`Load`] and times them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::StageTimes;
use crate::connection::{Connection, Message};
use crate::open;
use bytes::Bytes;

#[derive(Clone, Debug)]
pub struct Request {
    pub address: SocketAddr,
    /// Path, such as `/v2/models/fraud/infer`.
    pub path: String,
    /// Header names and values beside `host`.
    pub headers: Vec<(String, String)>,
    pub body: Bytes,
}

impl Request {
    /// Whether it is a gRPC call by its content type, and is sent over HTTP/2.
    pub fn is_grpc(&self) -> bool {
        let is_so = |(name, value): &(String, String)| {
            name.eq_ignore_ascii_case("content-type") && value.starts_with("application/grpc")
        };
        self.headers.iter().any(is_so)
    }
}

/// When requests are sent.
#[derive(Clone, Debug)]
pub enum Shape {
    /// Open loop: at these times after the start, ascending, independent of the server.
    Open(Vec<Duration>),
    /// Closed loop: each connection sends after its previous response, for this long.
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
    /// What the server reports of its stages.
    pub stages: StageTimes,
    /// Index in [`Load::requests`].
    pub request: usize,
    /// Delay by the generator itself; it excludes waiting for a connection, which the server
    /// causes.
    pub lag: Duration,
}

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// No request or no connection.
    #[error("a load needs at least one request and one connection")]
    Empty,
    #[error("cannot start the load generator's runtime")]
    Runtime(#[source] std::io::Error),
    #[error("cannot time the load")]
    Timer(#[from] albacore_os::OsError),
    /// A task of the generator panicked, so the samples are incomplete.
    #[error("a task of the load generator panicked: the run is invalid")]
    Incomplete,
}

/// Runs `load` on a runtime of its own and returns its samples, by intended time.
///
/// # Errors
/// [`LoadError`].
pub fn drive(load: Load) -> Result<Vec<Sample>, LoadError> {
    if load.requests.is_empty() || load.connections == 0 {
        return Err(LoadError::Empty);
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .thread_name("load")
        .build()
        .map_err(LoadError::Runtime)?;
    let messages = load.requests.into_iter().map(Message::new);
    let messages: Arc<[Message]> = messages.collect();
    let mut samples = match load.shape {
        Shape::Open(times) => open::run(&runtime, &messages, &times, load.connections)?,
        Shape::Closed(length) => closed_loop(&runtime, &messages, length, load.connections)?,
    };
    samples.sort_by_key(|sample| sample.intended);
    Ok(samples)
}

fn closed_loop(
    runtime: &tokio::runtime::Runtime,
    messages: &Arc<[Message]>,
    length: Duration,
    connections: usize,
) -> Result<Vec<Sample>, LoadError> {
    let start = Instant::now();
    runtime.block_on(async {
        let tasks: Vec<_> = (0..connections)
            .map(|offset| {
                let messages = Arc::clone(messages);
                tokio::spawn(async move {
                    let (mut connection, mut samples) = (Connection::default(), Vec::new());
                    let mut index = offset;
                    while start.elapsed() < length {
                        let intended = start.elapsed();
                        let request = index % messages.len();
                        let (status, stages) = connection.exchange(&messages[request]).await;
                        let latency = start.elapsed().saturating_sub(intended);
                        samples.push(Sample {
                            intended,
                            sent: intended,
                            latency,
                            status,
                            stages,
                            request,
                            lag: Duration::ZERO,
                        });
                        index += connections;
                    }
                    samples
                })
            })
            .collect();
        join(tasks).await
    })
}

async fn join(tasks: Vec<tokio::task::JoinHandle<Vec<Sample>>>) -> Result<Vec<Sample>, LoadError> {
    let mut all = Vec::new();
    for task in tasks {
        all.extend(task.await.map_err(|_| LoadError::Incomplete)?);
    }
    Ok(all)
}
