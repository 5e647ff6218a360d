//! Sends the requests of a [`Load`] and times them.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use crate::connection::{Connection, NO_ANSWER};

/// How long an answer may take before it counts as none: a server that hangs must not hang the run.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(60);

/// What is posted.
#[derive(Clone, Debug)]
pub struct Request {
    /// The server.
    pub address: SocketAddr,
    /// Path, such as `/v2/models/fraud/infer`.
    pub path: String,
    /// Header names and values beside `host`.
    pub headers: Vec<(String, String)>,
    /// The body.
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
    /// When.
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
    let requests: Arc<[Request]> = load.requests.into();
    let mut samples = match load.shape {
        Shape::Open(times) => open_loop(&runtime, requests, times, load.connections)?,
        Shape::Closed(length) => closed_loop(&runtime, requests, length, load.connections)?,
    };
    samples.sort_by_key(|sample| sample.intended);
    Ok(samples)
}

/// What the requests of an open loop share.
struct Open {
    requests: Arc<[Request]>,
    start: Instant,
    /// Connections that are idle, the last used first: its memory is warm.
    idle: Mutex<Vec<Connection>>,
    /// In the order of the intended times, to idle connections and to those that may be opened.
    free: Semaphore,
}

impl Open {
    async fn send(&self, index: usize, intended: Duration) -> Sample {
        let lag = self.start.elapsed().saturating_sub(intended);
        // It is never closed; an error would let one more request through.
        let _permit = self.free.acquire().await;
        let idle = self.idle().pop();
        let mut connection = idle.unwrap_or_default();
        let request = index % self.requests.len();
        let exchange = connection.exchange(&self.requests[request]);
        let answer = tokio::time::timeout(ANSWER_TIME_MAX, exchange).await;
        let (status, run) = answer.unwrap_or((NO_ANSWER, None));
        let latency = self.start.elapsed().saturating_sub(intended);
        self.idle().push(connection);
        Sample {
            intended,
            latency,
            status,
            run,
            request,
            lag,
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The pacer is a thread that sleeps to each intended time: tokio's timers are no finer than a millisecond.
fn open_loop(
    runtime: &tokio::runtime::Runtime,
    requests: Arc<[Request]>,
    times: Vec<Duration>,
    connections: usize,
) -> Result<Vec<Sample>, LoadError> {
    // bound: all arrivals of the run are known, so the channel can hold them all
    let (due, mut jobs) = mpsc::channel(times.len().max(1));
    let open = Arc::new(Open {
        requests,
        start: Instant::now(),
        idle: Mutex::default(),
        free: Semaphore::new(connections),
    });
    let (start, count) = (open.start, times.len());
    let pacer = std::thread::spawn(move || {
        for (index, intended) in times.into_iter().enumerate() {
            std::thread::sleep(intended.saturating_sub(start.elapsed()));
            if due.blocking_send((index, intended)).is_err() {
                return;
            }
        }
    });
    let samples = runtime.block_on(async {
        let mut sent = JoinSet::new();
        let mut samples = Vec::with_capacity(count);
        // bound: one turn per arrival
        while let Some((index, intended)) = jobs.recv().await {
            let open = Arc::clone(&open);
            sent.spawn(async move { open.send(index, intended).await });
            while let Some(done) = sent.try_join_next() {
                samples.push(done.map_err(|_| LoadError::Incomplete)?);
            }
        }
        while let Some(done) = sent.join_next().await {
            samples.push(done.map_err(|_| LoadError::Incomplete)?);
        }
        Ok(samples)
    });
    pacer.join().map_err(|_| LoadError::Incomplete)?;
    samples
}

fn closed_loop(
    runtime: &tokio::runtime::Runtime,
    requests: Arc<[Request]>,
    length: Duration,
    connections: usize,
) -> Result<Vec<Sample>, LoadError> {
    let start = Instant::now();
    runtime.block_on(async {
        let tasks: Vec<_> = (0..connections)
            .map(|offset| {
                let requests = Arc::clone(&requests);
                tokio::spawn(async move {
                    let (mut connection, mut samples) = (Connection::default(), Vec::new());
                    let mut index = offset;
                    while start.elapsed() < length {
                        let intended = start.elapsed();
                        let request = index % requests.len();
                        let (status, run) = connection.exchange(&requests[request]).await;
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
