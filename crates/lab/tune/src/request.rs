//! The options of a run.

use std::path::PathBuf;
use std::time::Duration;

use albacore_topology::CpuSet;
use serde::{Deserialize, Serialize};

/// Location of the measured servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// On the machine of the file: its models are local files.
    Machine,
    /// In a pod with the volumes of the deployment's pods.
    Pod,
}

/// Input of a run.
#[derive(Clone, Debug)]
pub struct TuneRequest {
    /// The InferenceDeployment.
    pub file: PathBuf,
    pub place: Place,
    /// Folder for results.
    pub folder: PathBuf,
    /// Cpus of the servers; the load generator gets the other cpus of this process. `None`: all,
    /// shared by both.
    pub cpus: Option<CpuSet>,
    pub options: TuneOptions,
}

/// Options of the measurement; they are sent to a pod that measures.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TuneOptions {
    /// The latency objective; `None`: that of the file's model.
    pub latency: Option<Duration>,
    /// Percentage of requests within it; `None`: from the file's model.
    pub percentile: Option<f64>,
    /// Requests of clients: `[MODEL/][OUTPUT:]ROWS[=SHARE]`, comma-separated.
    pub mix: String,
    /// `poisson`, `gamma:SHAPE`, or a file of times in seconds.
    pub arrivals: String,
    /// Requests per second that all pods together must sustain; `None`: as many as possible.
    pub rate: Option<f64>,
    /// Time limit of measurements.
    pub time: Duration,
    /// Equal seeds give equal arrivals and rows.
    pub seed: u64,
}
