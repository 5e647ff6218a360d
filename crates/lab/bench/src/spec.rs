//! The options of a benchmark.

use std::time::Duration;

/// The options of `albacore bench serve`.
#[derive(Clone, Debug)]
pub struct Spec {
    /// `http://HOST:PORT` or `grpc://HOST:PORT`.
    pub url: String,
    /// At least one.
    pub models: Vec<String>,
    /// Requests per second, one run each.
    pub rates: Vec<f64>,
    /// Whether to search for the highest rate within the objective instead.
    pub is_search: bool,
    /// Length of each run.
    pub length: Duration,
    /// Replies later than this after the intended send time are bad.
    pub objective: Duration,
    /// Percent of the requests that must be good for a rate to be within the objective.
    pub percentile: f64,
    /// `poisson`, `gamma:SHAPE`, or a file of times in seconds.
    pub arrivals: String,
    /// `[MODEL/][OUTPUT:]ROWS[=SHARE]`, comma-separated.
    pub mix: String,
    /// Features per row of every model; `None`: from the server's metadata.
    pub features: Option<usize>,
    /// Name of the input tensor; `None`: from the server's metadata, or `input`.
    pub input: Option<String>,
    /// Whether tensors are sent over HTTP as binary data instead of JSON.
    pub is_binary: bool,
    pub connections: usize,
    /// Equal seeds give equal times and rows.
    pub seed: u64,
    /// Processes of the server on this machine.
    pub pids: Vec<u32>,
}
