//! The stream from the agent of a node to `albacore-params`: the pods of the node and the
//! parameters of each.
//!
//! A named pipe (FIFO) of JSON Lines. Each line is a complete [`NodeSnapshot`], so a reader needs
//! the newest line only. The agent writes a line on each change and every ten seconds. It creates
//! the pipe (mode 0644, so that its readers cannot write), and does not wait for a reader.
//!
//! ```json
//! {"node":"n1","sequence":7,"pods":[{"address":"10.0.0.7","namespace":"shop","name":"fraud-5d8-x",
//! "uid":"6a…","deployment":"fraud","generation":3,"parameters":{"batching":{"policy":"timeout",
//! "max_rows":512,"max_delay":"2ms"},"queue":{"max_rows":4096},"slo":[{"model":"fraud","latency":
//! "25ms","percentile":99.0}],"models":[{"model":"fraud","threads":2}],"generation":3}}],
//! "metrics":""}
//! ```
//!
//! **Torn lines.** A writer that is killed may leave the beginning of a line in the pipe. A new
//! writer therefore writes [`LINE_TERMINATOR`] first; a reader skips empty lines and invalid ones.
//!
//! **Versions.** Agent and params may differ by a version: unknown fields are ignored and counted
//! ([`DecodedSnapshot::unknown_fields`]). An unknown value is an error: the previous parameters are
//! better than a guess.

mod decode;
mod encode;
mod report;
mod validate;

use core::net::IpAddr;
use std::time::Duration;

use albacore_batching::{BatchingParams, ModelBatching, Slo};

use crate::limits::WEIGHT_DEFAULT;
use crate::settings::{Model, Settings};
use crate::validate::check_threads;
use crate::validation_error::ValidationError;

pub use report::LatencyReport;

/// Ends the torn line of a previous writer.
pub const LINE_TERMINATOR: &[u8] = b"\n";

/// The content of one line: the pods of a node and their parameters at one moment.
#[derive(Clone, PartialEq, Debug)]
pub struct NodeSnapshot {
    pub node: String,
    /// Counts the snapshots of one agent process, from 1.
    pub sequence: u64,
    /// The pods that may have parameters. A pod with two addresses is listed twice.
    pub pods: Vec<ServingPod>,
    /// The agent's metrics as OpenMetrics text, without `# EOF`.
    pub metrics: String,
}

/// A pod of the node and the parameters of its deployment.
#[derive(Clone, PartialEq, Debug)]
pub struct ServingPod {
    /// The address that identifies it; never an IPv4-mapped IPv6 address. `None`: it is not
    /// reached over a network, as under `albacore run`.
    pub address: Option<IpAddr>,
    pub namespace: String,
    pub name: String,
    /// Its uid: another pod may get its name and address later.
    pub uid: String,
    /// The `InferenceDeployment` that it belongs to, in its namespace.
    pub deployment: String,
    /// `metadata.generation` of the deployment when the agent observed the pod.
    pub generation: u64,
    /// The parameters that the pod receives.
    pub parameters: Parameters,
}

/// What can change in a running server.
#[derive(Clone, PartialEq, Debug)]
pub struct Parameters {
    /// When waiting rows are dispatched to a worker, and how many may wait.
    pub batching: BatchingParams,
    /// The latency objectives: of all models that have one.
    pub slo: Vec<ModelSlo>,
    /// Further parameters of models. A model that is not listed has those of its settings: a
    /// sender of an older version lists none.
    pub models: Vec<ModelParameters>,
    /// `metadata.generation` of the deployment that these parameters are from.
    pub generation: u64,
    /// How often the server reports its latency; `None`: never.
    pub report: Option<Duration>,
}

/// What can change of a model in a running server, but for its objective.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ModelParameters {
    pub model: String,
    /// Most threads of a worker that compute one batch; `None` (auto): all that busy workers leave.
    pub threads: Option<u16>,
    /// Its share of the server while requests of several models have to be refused.
    pub weight: u32,
    /// How its batches are made; `None`: as [`Parameters::batching`] says.
    pub batching: Option<ModelBatching>,
}

impl ModelParameters {
    /// Those of a model without any of its own.
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

impl Model {
    /// What of it can change in a running server, but for its objective.
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
    /// The parameters that settings hold, as those of a `generation` of their deployment.
    #[must_use]
    pub fn of_settings(settings: &Settings, generation: u64) -> Self {
        let slo = settings.models.iter().filter_map(|model| {
            let (model, slo) = (model.name.clone(), model.slo?);
            Some(ModelSlo { model, slo })
        });
        Self {
            batching: settings.batching,
            slo: slo.collect(),
            models: settings.models.iter().map(Model::parameters).collect(),
            generation,
            report: None,
        }
    }

    /// The further parameters of a model, if it is listed.
    #[must_use]
    pub fn of_model(&self, model: &str) -> Option<&ModelParameters> {
        self.models.iter().find(|entry| entry.model == model)
    }

    /// Checks the parameters against the `threads` that a worker of this server has.
    ///
    /// # Errors
    /// The first model that asks for more.
    pub fn check_threads(&self, threads: usize) -> Result<(), ValidationError> {
        let models = self.models.iter().map(|model| model.threads);
        check_threads("parameters.", models, threads)
    }
}

impl Settings {
    /// The effective settings where `parameters` override this file: batching, queue, objectives
    /// and what `parameters` lists of models are those of `parameters`, all else is the file's.
    #[must_use]
    pub fn overridden_by(&self, parameters: &Parameters) -> Self {
        let mut settings = self.clone();
        settings.batching = parameters.batching;
        for model in &mut settings.models {
            let mut slos = parameters.slo.iter();
            let own = slos.find(|entry| entry.model == model.name);
            model.slo = own.map(|entry| entry.slo);
            if let Some(own) = parameters.of_model(&model.name) {
                model.threads = own.threads;
                model.weight = own.weight;
                model.batching = own.batching;
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
    /// Number of its fields that this version does not know.
    pub unknown_fields: usize,
}
