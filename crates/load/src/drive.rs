//! Sends the requests of a [`Load`] and times them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::{Mutex, mpsc};

use crate::connection::Connection;

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
    /// HTTP status; 0 if there was no answer.
    pub status: u16,
    /// What the server says its handler took: metric `run` of the Server-Timing header.
    pub run: Option<Duration>,
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

/// The pacer is a thread that sleeps to each intended time: tokio's timers are no finer than a millisecond.
fn open_loop(
    runtime: &tokio::runtime::Runtime,
    requests: Arc<[Request]>,
    times: Vec<Duration>,
    connections: usize,
) -> Result<Vec<Sample>, LoadError> {
    // bound: all arrivals of the run are known, so the channel can hold them all
    let (due, jobs) = mpsc::channel(times.len().max(1));
    let jobs = Arc::new(Mutex::new(jobs));
    let start = Instant::now();
    let pacer = std::thread::spawn(move || {
        for (index, intended) in times.into_iter().enumerate() {
            std::thread::sleep(intended.saturating_sub(start.elapsed()));
            if due.blocking_send((index, intended)).is_err() {
                return;
            }
        }
    });
    let samples = runtime.block_on(async {
        let tasks: Vec<_> = (0..connections)
            .map(|_| {
                let (jobs, requests) = (Arc::clone(&jobs), Arc::clone(&requests));
                tokio::spawn(async move {
                    let (mut connection, mut samples) = (Connection::default(), Vec::new());
                    // bound: one turn per arrival
                    loop {
                        let job = jobs.lock().await.recv().await;
                        let Some((index, intended)) = job else {
                            return samples;
                        };
                        let (status, run) =
                            connection.exchange(&requests[index % requests.len()]).await;
                        let latency = start.elapsed().saturating_sub(intended);
                        samples.push(Sample {
                            intended,
                            latency,
                            status,
                            run,
                        });
                    }
                })
            })
            .collect();
        join(tasks).await
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
                        let (status, run) =
                            connection.exchange(&requests[index % requests.len()]).await;
                        let latency = start.elapsed().saturating_sub(intended);
                        samples.push(Sample {
                            intended,
                            latency,
                            status,
                            run,
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
