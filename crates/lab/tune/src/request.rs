//! The options of a run.

use std::path::PathBuf;
use std::time::Duration;

use albacore_topology::CpuSet;
use serde::{Deserialize, Serialize};

/// Where the servers run that are measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Where the file lies: its models are files here.
    Machine,
    /// In a pod with the volumes of the deployment's pods.
    Pod,
}

/// What is asked for.
#[derive(Clone, Debug)]
pub struct TuneRequest {
    /// The InferenceDeployment.
    pub file: PathBuf,
    pub place: Place,
    /// Where results are written.
    pub folder: PathBuf,
    /// The cpus that servers may use; the load generator gets the others that this process has.
    /// `None`: all, which both share.
    pub cpus: Option<CpuSet>,
    pub options: TuneOptions,
}

/// What is measured; what is sent to a pod that measures.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TuneOptions {
    /// The latency objective; `None`: that of the file's model.
    pub latency: Option<Duration>,
    /// Percent of requests within it; `None`: as the file's model says.
    pub percentile: Option<f64>,
    /// What clients send: `[MODEL/][OUTPUT:]ROWS[=SHARE]`, comma-separated.
    pub mix: String,
    /// `poisson`, `gamma:SHAPE`, or a file of times in seconds.
    pub arrivals: String,
    /// Requests a second that all pods together have to carry; `None`: as many as possible.
    pub rate: Option<f64>,
    /// Time for measurements.
    pub time: Duration,
    /// Equal seeds give equal arrivals and rows.
    pub seed: u64,
}
