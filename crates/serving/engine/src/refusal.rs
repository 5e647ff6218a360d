//! Reasons why the engine rejected a request, and why an accepted request failed.

use std::time::Duration;

use albacore_batching::Nanos;

use super::Kind;
use crate::limits::{RETRY_AFTER_MAX, RETRY_AFTER_MIN};

/// The engine rejects the request; no state of it is kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The queue is full: HTTP 429, gRPC `RESOURCE_EXHAUSTED`.
    #[error("the queue is full ({queued_rows} of {rows_max} rows): send the request again later")]
    QueueFull {
        /// When to retry.
        retry_after: Duration,
        /// Number of rows waiting now.
        queued_rows: usize,
        /// The bound of `--queue-rows`.
        rows_max: usize,
    },
    /// The request could not be answered within its objective: HTTP 429, gRPC
    /// `RESOURCE_EXHAUSTED`.
    #[error(
        "the requests in the queue leave no time to answer within {} ms: send the request again \
         later",
        objective.as_secs_f64() * 1e3
    )]
    Late {
        /// When to retry: how much sooner the workers would have to be free.
        retry_after: Duration,
        /// The time limit of the request.
        objective: Duration,
    },
    /// The request's own deadline passed before its rows had arrived: HTTP 504, gRPC
    /// `DEADLINE_EXCEEDED`.
    #[error("the timeout of the request expired before all of it had arrived: increase it")]
    Expired,
    /// The shared memory is full, although the queue is not: wide rows or results. HTTP 429, gRPC
    /// `RESOURCE_EXHAUSTED`.
    #[error(
        "no shared memory is left for {rows} rows: send the request again later, or fewer rows"
    )]
    MemoryFull {
        /// When to retry.
        retry_after: Duration,
        /// Rows of the request.
        rows: usize,
    },
    /// The request exceeds a bound and can never be accepted: HTTP 413, gRPC `INVALID_ARGUMENT`.
    #[error("{rows} rows are more than the {rows_max} that one request may hold: send fewer rows")]
    TooLarge {
        /// Rows of the request.
        rows: usize,
        /// Maximum number of rows that would be accepted.
        rows_max: usize,
    },
    /// The model does not support this output: HTTP 400.
    #[error("model {model:?} has no output {kind:?}")]
    NoSuchOutput {
        model: String,
        /// The requested output.
        kind: Kind,
    },
    /// The request has no row, no output or rows that are not floats: HTTP 400.
    #[error("{0}")]
    Invalid(&'static str),
    /// The server is shutting down: HTTP 503, gRPC `UNAVAILABLE`.
    #[error("the server is shutting down: send the request to another one")]
    Draining,
    /// No worker is running: HTTP 503, gRPC `UNAVAILABLE`.
    #[error("no worker is running: send the request again later")]
    NoWorkers {
        /// When to retry.
        retry_after: Duration,
    },
}

impl Refusal {
    /// A rejection because the workers would have to be free sooner by `excess` to answer within
    /// `time`.
    pub(super) fn late(excess: Nanos, time: Nanos) -> Self {
        Self::Late {
            retry_after: Duration::from_nanos(excess.0).clamp(RETRY_AFTER_MIN, RETRY_AFTER_MAX),
            objective: Duration::from_nanos(time.0),
        }
    }
}

/// An accepted request that could not be answered: HTTP 500, gRPC `INTERNAL`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestFailure {
    /// Every worker that ran the batch with this request crashed.
    #[error(
        "the rows of this request, or of another one in its batch, crashed {crashes} workers \
         ({cause})"
    )]
    Poisonous {
        /// Number of workers that crashed.
        crashes: u32,
        /// Exit status of the last one, for example `signal 11`.
        cause: String,
    },
    /// The worker could not compute the request.
    #[error("the worker could not compute the request: {reason}")]
    Compute {
        /// The worker's message.
        reason: String,
    },
    /// The server stopped before the request was run: HTTP 503, gRPC `UNAVAILABLE`.
    #[error("the server stopped before the request was run")]
    Stopped,
}
