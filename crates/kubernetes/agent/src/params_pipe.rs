//! The pipe to albacore-params. Writing never blocks and needs no reader; a newer line replaces a
//! line that was not read.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::time::Instant;

use albacore_api::InferenceDeployment;
use albacore_os::{LineFifo, OsError, WriteStatus};
use albacore_settings::agent_stream::{ModelSlo, NodeSnapshot, Parameters, ServingPod};

use crate::facts::PodFacts;
use crate::limits::{FEED_PERIOD, FEED_POLL, FEED_RETRY};

/// Returns the pods with their parameters. All pods of a deployment get parameters, whether placed
/// or not.
pub(crate) fn params_pods<'a>(
    facts: &[PodFacts],
    deployment_of: impl Fn(&PodFacts) -> Option<std::sync::Arc<InferenceDeployment>> + 'a,
) -> Vec<ServingPod> {
    let mut owners: BTreeMap<IpAddr, usize> = BTreeMap::new();
    for address in facts.iter().flat_map(addresses) {
        *owners.entry(address).or_default() += 1;
    }
    let mut pods = Vec::new();
    for pod in facts {
        let name = pod.desired.pod.opt_in.deployment().map(str::to_owned);
        let Some((deployment, name)) = deployment_of(pod).zip(name) else {
            continue;
        };
        let parameters = parameters(pod, &deployment);
        for address in addresses(pod) {
            // Pods in the host network share its address, so params cannot tell them apart.
            if owners.get(&address) != Some(&1) {
                continue;
            }
            let entry = ServingPod {
                address: Some(address),
                namespace: pod.desired.pod.key.namespace.clone(),
                name: pod.desired.pod.key.name.clone(),
                uid: pod.desired.pod.uid.clone(),
                deployment: name.clone(),
                generation: parameters.generation,
                parameters: parameters.clone(),
            };
            // The reader would reject the whole line because of one invalid pod.
            match entry.check() {
                Ok(()) => pods.push(entry),
                Err(error) => {
                    let pod = pod.desired.pod.key.to_string();
                    tracing::debug!(pod, %error, "a pod is left out of the parameters");
                }
            }
        }
    }
    pods
}

fn addresses(pod: &PodFacts) -> impl Iterator<Item = IpAddr> {
    let parsed = pod
        .desired
        .pod
        .addresses
        .iter()
        .filter_map(|a| a.parse().ok());
    let mut all: Vec<IpAddr> = parsed.map(|a: IpAddr| a.to_canonical()).collect();
    all.sort();
    all.dedup();
    all.into_iter()
}

fn parameters(pod: &PodFacts, deployment: &InferenceDeployment) -> Parameters {
    let spec = &deployment.spec;
    let generation = deployment.metadata.generation;
    Parameters {
        batching: spec.batching_params(),
        slo: spec.models.iter().filter_map(objective).collect(),
        models: spec.model_parameters(),
        generation: generation
            .and_then(|g| u64::try_from(g).ok())
            .unwrap_or_default(),
        report: pod.trial.report_period,
    }
}

fn objective(model: &albacore_api::ModelSpec) -> Option<ModelSlo> {
    Some(ModelSlo {
        model: model.name.clone(),
        slo: model.slo?.into(),
    })
}

#[derive(Debug)]
pub(crate) struct ParamsPipe {
    pipe: LineFifo,
    node: String,
    sequence: u64,
    pods: Vec<ServingPod>,
    due: Option<Instant>,
    /// The last line, kept for a reader that opens the pipe later.
    line: String,
    written: WriteStatus,
}

impl ParamsPipe {
    /// Opens the pipe and creates it if it does not exist.
    ///
    /// # Errors
    /// The pipe cannot be created, or the path is not a pipe.
    pub(crate) fn open(path: &Path, node: &str) -> Result<Self, OsError> {
        Ok(Self {
            pipe: LineFifo::new(path)?,
            node: node.to_owned(),
            sequence: 0,
            pods: Vec::new(),
            due: None,
            line: String::new(),
            written: WriteStatus::Complete,
        })
    }

    /// Whether a line is due: the pods changed, or the last line is [`FEED_PERIOD`] old.
    pub(crate) fn is_due(&self, pods: &[ServingPod], now: Instant) -> bool {
        self.sequence == 0 || self.pods != pods || self.due.is_none_or(|due| due <= now)
    }

    /// Writes a line with these pods and metrics (OpenMetrics text without `# EOF`).
    pub(crate) fn write(&mut self, pods: Vec<ServingPod>, metrics: String, now: Instant) {
        self.sequence += 1;
        let line = NodeSnapshot {
            node: self.node.clone(),
            sequence: self.sequence,
            pods: pods.clone(),
            metrics,
        };
        self.pods = pods;
        self.due = Some(now + FEED_PERIOD);
        match line.encode() {
            Ok(line) => self.line = line.trim_end().to_owned(),
            Err(error) => tracing::warn!(%error, "the parameters cannot be encoded"),
        }
        self.offer();
    }

    /// Continues a line that was written partly, or writes it again if there was no reader.
    pub(crate) fn flush(&mut self) {
        match self.written {
            WriteStatus::Complete => {}
            WriteStatus::Pending => {
                let written = self.pipe.flush();
                self.record_write(written);
            }
            WriteStatus::NoReader => self.offer(),
        }
    }

    fn offer(&mut self) {
        let written = self.pipe.offer(&self.line);
        self.record_write(written);
    }

    fn record_write(&mut self, written: Result<WriteStatus, OsError>) {
        self.written = written.unwrap_or_else(|error| {
            tracing::debug!(%error, "the parameters cannot be written; it is retried");
            WriteStatus::NoReader
        });
    }

    /// Time of the next write or flush.
    pub(crate) fn next(&self, now: Instant) -> Instant {
        match self.written {
            WriteStatus::Complete => self.due.unwrap_or(now),
            WriteStatus::Pending => now + FEED_RETRY,
            WriteStatus::NoReader => now + FEED_POLL,
        }
    }
}
