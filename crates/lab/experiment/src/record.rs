//! Lines of `experiment.jsonl`: a header with experiment and machine, and one line per window.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::grid::{Cell, WindowId};
use crate::machine::Machine;
use crate::spec::Spec;

/// Format version of the lines; other versions are rejected.
pub(crate) const FORMAT: u32 = 1;

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Line {
    /// The first line.
    Experiment(Box<Header>),
    Window(Box<Window>),
    /// A cell could not be measured, or only partially.
    Failed(Failed),
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Header {
    pub format: u32,
    pub version: String,
    /// Seconds since 1970.
    pub started: u64,
    pub spec: Spec,
    pub machine: Machine,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Failed {
    #[serde(flatten)]
    pub cell: Cell,
    /// Number of missing windows of the cell.
    pub windows: usize,
    pub what: String,
}

/// The measurements of a window.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Window {
    #[serde(flatten)]
    pub id: WindowId,
    /// Seconds since 1970.
    pub at: u64,
    /// Time from the first request to the end of the window.
    pub seconds: f64,
    pub sent: usize,
    /// Requests answered with status 200.
    pub answered: usize,
    /// Answered within the objective; all answered ones if there is no objective.
    pub good: usize,
    /// From the intended send time, microseconds; quantiles over the answered requests.
    pub latency: Quantiles,
    /// Metric `run` of `Server-Timing`; empty if the server does not report it.
    pub server: Quantiles,
    /// By stage name, in microseconds.
    pub stages: BTreeMap<String, Stage>,
    pub usage: Usage,
    pub host: Host,
    /// Cause of a disturbance, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disturbed: Option<String>,
    /// Number of earlier attempts of this window.
    pub repeats: u32,
}

impl Window {
    /// 99th percentile of latency, milliseconds; `None` without an answer.
    #[must_use]
    pub fn p99_ms(&self) -> Option<f64> {
        Some(self.latency.at(0.99)? / 1e3)
    }
}

/// Quantiles that are recorded.
pub(crate) const SHARES: [f64; 13] = [
    0.01, 0.1, 0.25, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.975, 0.99, 0.995, 1.0,
];

/// Times in microseconds at [`SHARES`]; empty if there are no values.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Quantiles(pub Vec<u64>);

impl Quantiles {
    /// The value at one of [`SHARES`].
    pub(crate) fn at(&self, share: f64) -> Option<f64> {
        let index = SHARES.iter().position(|&known| known == share)?;
        self.0.get(index).map(|&micros| micros as f64)
    }
}

/// A stage of request processing in the server.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Stage {
    pub mean: f64,
    pub p99: u64,
}

/// Resource usage of the server's threads.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Usage {
    pub cpu_seconds: f64,
    /// Total time in which threads were runnable and waited for a cpu.
    pub run_delay_seconds: f64,
    /// `None` if the kernel does not count them.
    pub migrations: Option<u64>,
}

/// Load of the machine, as shares of the window; steal and others as shares of all cpus.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Host {
    /// CPU time stolen by the hypervisor.
    pub steal: f64,
    /// CPU time of processes other than the server and the load generator.
    pub others: f64,
    /// Pressure stall information, `some` for cpus and `full` for the others; `None` if not
    /// supported.
    pub psi_cpu: Option<f64>,
    pub psi_memory: Option<f64>,
    pub psi_io: Option<f64>,
    /// Mean frequency of all cpus at the end of the window.
    pub mhz: Option<f64>,
}
