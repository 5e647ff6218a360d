//! The feed: what the agent of a node knows of its pods, for `albacore-params`.
//!
//! A pipe (FIFO) of JSON Lines. Each line is a whole [`FeedLine`]: whoever missed the lines before
//! has lost nothing, and the newest is all there is. The agent writes one on each change and every
//! ten seconds; it makes the pipe (mode 0644, so that its readers cannot write), and goes on
//! without a reader.
//!
//! ```json
//! {"node":"n1","sequence":7,"pods":[{"address":"10.0.0.7","namespace":"shop","name":"fraud-5d8-x",
//! "uid":"6a…","deployment":"fraud","generation":3,"parameters":{"batching":{"policy":"timeout",
//! "max_rows":512,"max_delay":"2ms"},"queue":{"max_rows":4096},"slo":[{"model":"fraud","latency":
//! "25ms","percentile":99.0}],"workers":4,"threads":4,"cpu_share":3.5,"generation":3}}],
//! "metrics":""}
//! ```
//!
//! **Torn lines.** A writer that dies may leave the beginning of a line in the pipe. Who opens the
//! pipe for writing therefore writes [`LINE_START`] first; a reader passes over empty lines, and
//! over a broken one to the next.
//!
//! **Versions.** Agent and params may differ by a version: fields that are not known are passed
//! over and counted ([`Decoded::unknown_fields`]). A value that is not known is wrong: better the
//! parameters before than others than were asked for.

mod check;
mod decode;
mod encode;
mod report;

use core::net::IpAddr;
use std::time::Duration;

pub use report::LatencyReport;

use crate::settings::{Batching, Queue, Settings, Slo};

/// Ends the torn line of a writer before.
pub const LINE_START: &[u8] = b"\n";

/// What the agent knows at one moment: what a line says.
#[derive(Clone, PartialEq, Debug)]
pub struct FeedLine {
    pub node: String,
    /// Counts the snapshots of one life of the agent, from 1.
    pub sequence: u64,
    /// The pods that may have parameters. A pod of two addresses is here twice.
    pub pods: Vec<Pod>,
    /// The agent's metrics as OpenMetrics text, without `# EOF`.
    pub metrics: String,
}

/// A pod of the node and the parameters of its deployment.
#[derive(Clone, PartialEq, Debug)]
pub struct Pod {
    /// The address by which it is known; never IPv4 in IPv6. `None`: it is not reached by a
    /// network, as under `albacore run`.
    pub address: Option<IpAddr>,
    pub namespace: String,
    pub name: String,
    /// Its uid: another pod may have its name and address later.
    pub uid: String,
    /// The `InferenceDeployment` that it belongs to, in its namespace.
    pub deployment: String,
    /// `metadata.generation` of the deployment when the pod was looked at.
    pub generation: u64,
    /// What is handed out to it.
    pub parameters: Parameters,
}

/// What a server may be told while it runs.
#[derive(Clone, PartialEq, Debug)]
pub struct Parameters {
    /// When waiting rows are released to a worker.
    pub batching: Batching,
    /// How much may wait.
    pub queue: Queue,
    /// The latency objectives: of all models that have one.
    pub slo: Vec<Objective>,
    /// The longest that rows may be held back for a fuller batch, if the deployment says so.
    pub window: Option<Duration>,
    /// Workers that the pod has threads placed for.
    pub workers: u32,
    /// Threads of each of them that can run at once.
    pub threads: u32,
    /// Cpus that the container may use at once, by cpuset and quota: 2.5 is two and a half.
    pub cpu_share: f64,
    /// `metadata.generation` of the deployment that these are of.
    pub generation: u64,
    /// How often the server reports its latency; `None`: never.
    pub report: Option<Duration>,
}

impl Settings {
    /// What is in force where `parameters` win over this file: rules, bounds and objectives are
    /// theirs, all else is the file's.
    #[must_use]
    pub fn overridden_by(&self, parameters: &Parameters) -> Self {
        let mut settings = self.clone();
        settings.batching = parameters.batching;
        settings.queue = parameters.queue;
        for model in &mut settings.models {
            let mut objectives = parameters.slo.iter();
            let own = objectives.find(|objective| objective.model == model.name);
            model.slo = own.map(|objective| objective.slo);
        }
        settings
    }
}

/// The latency objective of a model.
#[derive(Clone, PartialEq, Debug)]
pub struct Objective {
    pub model: String,
    /// So many percent of the replies within so much time.
    pub slo: Slo,
}

/// A line that was read.
#[derive(Clone, PartialEq, Debug)]
pub struct Decoded {
    pub snapshot: FeedLine,
    /// Fields of it that this version does not know.
    pub unknown_fields: usize,
}
