//! What is to be measured.

use std::time::Duration;

/// What is to be measured, as `albacore bench serve` takes it.
#[derive(Clone, Debug)]
pub struct Spec {
    /// `http://HOST:PORT` or `grpc://HOST:PORT`.
    pub url: String,
    pub model: String,
    /// Requests a second, one run each.
    pub rates: Vec<f64>,
    /// Whether the highest rate within the objective is searched instead.
    pub is_search: bool,
    /// How long each run is.
    pub length: Duration,
    /// Answers later than this after the intended time are bad.
    pub objective: Duration,
    /// Percent of the requests that must be good for a rate to be within the objective.
    pub percentile: f64,
    /// `poisson`, `gamma:SHAPE`, or a file of times in seconds.
    pub arrivals: String,
    /// `[OUTPUT:]ROWS[=SHARE]`, several with commas.
    pub mix: String,
    /// Values of a row; `None`: what the server's metadata says.
    pub features: Option<usize>,
    /// The input tensor's name; `None`: what the server's metadata says, or `input`.
    pub input: Option<String>,
    /// Whether tensors travel over HTTP as bytes, not as text.
    pub is_binary: bool,
    pub connections: usize,
    /// The same seed gives the same times and rows.
    pub seed: u64,
    /// Processes of the server on this machine.
    pub pids: Vec<u32>,
}
