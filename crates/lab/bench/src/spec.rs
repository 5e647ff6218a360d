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
    /// Whether the highest rate within the objective is searched instead.
    pub is_search: bool,
    /// How long each run is.
    pub length: Duration,
    /// Replies later than this after the intended time are bad.
    pub objective: Duration,
    /// Percent of the requests that must be good for a rate to be within the objective.
    pub percentile: f64,
    /// `poisson`, `gamma:SHAPE`, or a file of times in seconds.
    pub arrivals: String,
    /// `[MODEL/][OUTPUT:]ROWS[=SHARE]`, comma-separated.
    pub mix: String,
    /// Values of a row of every model; `None`: what the server's metadata says.
    pub features: Option<usize>,
    /// The input tensor's name; `None`: what the server's metadata says, or `input`.
    pub input: Option<String>,
    /// Whether tensors are sent over HTTP as bytes, not as text.
    pub is_binary: bool,
    pub connections: usize,
    /// Equal seeds give equal times and rows.
    pub seed: u64,
    /// Processes of the server on this machine.
    pub pids: Vec<u32>,
}
