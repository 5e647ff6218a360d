//! Sends the requests of a [`Load`] and times them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

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
    /// Whether it is a call of gRPC, and goes over HTTP/2: its content type says so.
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
    /// At these times after the start, whatever the server does; rising.
    Open(Vec<Duration>),
    /// As soon as a connection has its answer, until this much time has passed.
    Closed(Duration),
}

/// One run. Requests are taken from `requests` in turn.
#[derive(Clone, Debug)]
pub struct Load {
    /// The requests, sent in turn.
    pub requests: Vec<Request>,
    pub shape: Shape,
    /// Connections; in a closed loop also the concurrency.
    pub connections: usize,
}

/// One request of a run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sample {
    /// When it was to be sent, after the start of the run.
    pub intended: Duration,
    /// From the intended send time to the last byte of the answer.
    pub latency: Duration,
    /// HTTP status, or the one that says the same as that of gRPC; 0 if there was no answer.
    pub status: u16,
    /// What the server says its handler took: metric `run` of the Server-Timing header.
    pub run: Option<Duration>,
    /// Which of the load's requests.
    pub request: usize,
    /// How much later than intended the generator itself was; waiting for a connection does not
    /// count, that is the server's.
    pub lag: Duration,
}

/// Why a run could not be made.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The load names no request or no connection.
    #[error("a load needs at least one request and one connection")]
    Empty,
    /// The runtime of the generator could not start.
    #[error("cannot start the load generator's runtime")]
    Runtime(#[source] std::io::Error),
    /// The kernel gives no timer.
    #[error("cannot time the load")]
    Timer(#[from] albacore_os::OsError),
    /// A part of the generator ended early, so the samples would be incomplete.
    #[error("a part of the load generator panicked: this run says nothing")]
    Incomplete,
}

/// Runs `load` on a runtime of its own and returns its samples, by intended time.
///
/// # Errors
/// A load without requests or connections; no runtime; a part of the generator panicked.
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
                        let (status, run) = connection.exchange(&messages[request]).await;
                        let latency = start.elapsed().saturating_sub(intended);
                        samples.push(Sample {
                            intended,
                            latency,
                            status,
                            run,
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
