//! The stream from the agent of a node to `albacore-params`: the pods of the node and the
//! parameters of each.
//!
//! A named pipe (FIFO) of JSON Lines. Each line is a complete [`NodeSnapshot`], so a reader needs
//! only the newest line. The agent writes a line on each change and every ten seconds. It creates
//! the pipe with mode 0644, so that readers cannot write to it, and never blocks on a reader.
//!
//! ```json
//! {"node":"n1","sequence":7,"pods":[{"address":"10.0.0.7","namespace":"shop","name":"fraud-5d8-x",
//! "uid":"6a…","deployment":"fraud","generation":3,"parameters":{"batching":{"policy":"timeout",
//! "max_rows":512,"max_delay":"2ms"},"queue":{"max_rows":4096},"slo":[{"model":"fraud","latency":
//! "25ms","percentile":99.0}],"models":[{"model":"fraud","threads":2}],"generation":3}}],
//! "metrics":""}
//! ```
//!
//! **Torn lines.** A writer that is killed may leave an incomplete line in the pipe. A new writer
//! therefore writes [`LINE_TERMINATOR`] first; a reader skips empty and invalid lines.
//!
//! **Versions.** The agent and `albacore-params` may differ by one version: unknown fields are
//! ignored and counted ([`DecodedSnapshot::unknown_fields`]). An unknown value is an error, because
//! keeping the previous parameters is safer than guessing.

mod decode;
mod encode;
mod report;
mod validate;

use core::net::IpAddr;
use std::time::Duration;

use albacore_batching::{BatchingParams, ModelBatching, Slo};

use crate::limits::WEIGHT_DEFAULT;
use crate::settings::{ModelSettings, Settings};
use crate::validate::check_threads;
use crate::validation_error::ValidationError;

pub use report::LatencyReport;

/// Terminates an incomplete line of a previous writer.
pub const LINE_TERMINATOR: &[u8] = b"\n";

/// The content of one line: the pods of a node and their parameters at one moment.
#[derive(Clone, PartialEq, Debug)]
pub struct NodeSnapshot {
    pub node: String,
    /// Sequence number of the snapshot within one agent process, from 1.
    pub sequence: u64,
    /// Pods that can receive parameters. A pod with two addresses is listed twice.
    pub pods: Vec<ServingPod>,
    /// The agent's metrics as OpenMetrics text, without `# EOF`.
    pub metrics: String,
}

/// A pod of the node and the parameters of its deployment.
#[derive(Clone, PartialEq, Debug)]
pub struct ServingPod {
    /// Address that identifies the pod; never an IPv4-mapped IPv6 address. `None` if the pod is not
    /// reached over a network, as under `albacore run`.
    pub address: Option<IpAddr>,
    pub namespace: String,
    pub name: String,
    /// Pod uid. A later pod may reuse the name and the address.
    pub uid: String,
    /// `InferenceDeployment` of the pod, in the same namespace.
    pub deployment: String,
    /// `metadata.generation` of the deployment when the agent observed the pod.
    pub generation: u64,
    /// The parameters that the pod receives.
    pub parameters: Parameters,
}

/// Parameters of a server that can change while it runs.
#[derive(Clone, PartialEq, Debug)]
pub struct Parameters {
    /// Batching policy and queue bound.
    pub batching: BatchingParams,
    /// Latency objectives, one for each model that has an objective.
    pub slo: Vec<ModelSlo>,
    /// Other parameters of models. A model that is not listed keeps those of its settings file;
    /// senders of older versions list none.
    pub models: Vec<ModelParameters>,
    /// `metadata.generation` of the deployment that defines these parameters.
    pub generation: u64,
    /// Interval between latency reports of the server; `None`: no reports.
    pub report: Option<Duration>,
}

/// Parameters of a model that can change while the server runs, except its objective.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ModelParameters {
    pub model: String,
    /// Maximum threads of a worker per batch; `None` (auto): all threads that busy workers do not
    /// use.
    pub threads: Option<u16>,
    /// Share of the server when requests of several models must be rejected.
    pub weight: u32,
    /// Batching of this model; `None`: [`Parameters::batching`].
    pub batching: Option<ModelBatching>,
}

impl ModelParameters {
    /// Returns the parameters of a model that sets none.
    #[must_use]
    pub fn defaults(model: String) -> Self {
        Self {
            model,
            threads: None,
            weight: WEIGHT_DEFAULT,
            batching: None,
        }
    }
}

impl ModelSettings {
    /// Returns the parameters that can change while the server runs, except the objective.
    #[must_use]
    pub fn parameters(&self) -> ModelParameters {
        ModelParameters {
            model: self.name.clone(),
            threads: self.threads,
            weight: self.weight,
            batching: self.batching,
        }
    }
}

impl Parameters {
    /// Returns the parameters of a settings file, marked with the `generation` of their deployment.
    #[must_use]
    pub fn from_settings(settings: &Settings, generation: u64) -> Self {
        let slo = settings.models.iter().filter_map(|model| {
            let (model, slo) = (model.name.clone(), model.slo?);
            Some(ModelSlo { model, slo })
        });
        Self {
            batching: settings.batching,
            slo: slo.collect(),
            models: settings
                .models
                .iter()
                .map(ModelSettings::parameters)
                .collect(),
            generation,
            report: None,
        }
    }

    /// Returns the other parameters of a model, if it is listed.
    #[must_use]
    pub fn of_model(&self, model: &str) -> Option<&ModelParameters> {
        self.models.iter().find(|entry| entry.model == model)
    }

    /// Checks that no model uses more than `threads`, the threads of each worker of this server.
    ///
    /// # Errors
    /// The first model that exceeds `threads`.
    pub fn check_threads(&self, threads: usize) -> Result<(), ValidationError> {
        let models = self.models.iter().map(|model| model.threads);
        check_threads("parameters.", models, threads)
    }
}

impl Settings {
    /// Returns these settings with `parameters` applied: batching, queue, objectives and the listed
    /// model parameters are replaced, everything else is kept.
    #[must_use]
    pub fn overridden_by(&self, parameters: &Parameters) -> Self {
        let mut settings = self.clone();
        settings.batching = parameters.batching;
        for model in &mut settings.models {
            let mut slos = parameters.slo.iter();
            let entry = slos.find(|entry| entry.model == model.name);
            model.slo = entry.map(|entry| entry.slo);
            if let Some(entry) = parameters.of_model(&model.name) {
                model.threads = entry.threads;
                model.weight = entry.weight;
                model.batching = entry.batching;
            }
        }
        settings
    }
}

/// The latency objective of a model.
#[derive(Clone, PartialEq, Debug)]
pub struct ModelSlo {
    pub model: String,
    pub slo: Slo,
}

/// The result of [`NodeSnapshot::decode`].
#[derive(Clone, PartialEq, Debug)]
pub struct DecodedSnapshot {
    pub snapshot: NodeSnapshot,
    /// Number of fields that this version does not know.
    pub unknown_fields: usize,
}
