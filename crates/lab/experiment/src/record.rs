//! The lines of `experiment.jsonl`: what was run where, and each window.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::grid::{Cell, WindowId};
use crate::machine::Machine;
use crate::spec::Spec;

/// Format of the lines; another one is not read.
pub(crate) const FORMAT: u32 = 1;

/// One line.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Line {
    /// The first line.
    Experiment(Box<Header>),
    Window(Box<Window>),
    /// A cell or the rest of it could not be measured.
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
    /// Windows of the cell that are missing.
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
    /// From the first request to the end of the window.
    pub seconds: f64,
    pub sent: usize,
    /// With status 200.
    pub answered: usize,
    /// Answered within the objective; all answered without one.
    pub good: usize,
    /// From the intended send time, microseconds; by share of the answered requests.
    pub latency: Quantiles,
    /// Metric `run` of `Server-Timing`; empty if the server does not report it.
    pub server: Quantiles,
    /// By name, in microseconds.
    pub stages: BTreeMap<String, Stage>,
    pub usage: Usage,
    pub host: Host,
    /// Why the window does not count as quiet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disturbed: Option<String>,
    /// How often it was repeated before.
    pub repeats: u32,
}

impl Window {
    /// 99th percentile of latency, milliseconds; `None` without an answer.
    #[must_use]
    pub fn p99_ms(&self) -> Option<f64> {
        Some(self.latency.at(0.99)? / 1e3)
    }
}

/// Shares of requests at which times are kept.
pub(crate) const SHARES: [f64; 13] = [
    0.01, 0.1, 0.25, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.975, 0.99, 0.995, 1.0,
];

/// Times in microseconds at [`SHARES`]; empty without a time.
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

/// A stage of the server's work on a request.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Stage {
    pub mean: f64,
    pub p99: u64,
}

/// What the server's threads used.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Usage {
    pub cpu_seconds: f64,
    /// Time in which threads were ready and waited for a cpu, all together.
    pub run_delay_seconds: f64,
    /// `None` where the kernel does not count them.
    pub migrations: Option<u64>,
}

/// What the machine was like, as shares of the window; of steal and others, of all cpus.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Host {
    /// Cpu time that the hypervisor took.
    pub steal: f64,
    /// Cpu time of processes that are neither the server's nor the load generator.
    pub others: f64,
    /// Pressure stall information, `some` for cpus and `full` for the others; `None` without it.
    pub psi_cpu: Option<f64>,
    pub psi_memory: Option<f64>,
    pub psi_io: Option<f64>,
    /// Mean frequency of all cpus at the end of the window.
    pub mhz: Option<f64>,
}
