//! What params hands out, as a line into its pipe: never waits, the newest line wins, nobody may
//! read.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::time::Instant;

use albacore_api::{BatchingPolicy, InferenceDeployment};
use albacore_os::{LineFifo, OsError, Written};
use albacore_settings::agent_stream::{ModelSlo, NodeSnapshot, Parameters, ServingPod};
use albacore_settings::{Batching, Policy, Queue, Slo};

use crate::facts::PodFacts;
use crate::limits::{FEED_LOOK, FEED_PERIOD, FEED_RETRY, REPORT_PERIOD};

/// The pods of a moment, as params needs them. A deployment's parameters belong to all pods of it,
/// placed or not.
pub(crate) fn pods<'a>(
    facts: &[PodFacts],
    deployment_of: impl Fn(&PodFacts) -> Option<std::sync::Arc<InferenceDeployment>> + 'a,
) -> Vec<ServingPod> {
    let mut owners: BTreeMap<IpAddr, usize> = BTreeMap::new();
    for address in facts.iter().flat_map(addresses) {
        *owners.entry(address).or_default() += 1;
    }
    let mut pods = Vec::new();
    for pod in facts {
        let Some(deployment) = deployment_of(pod) else {
            continue;
        };
        let parameters = parameters(pod, &deployment);
        for address in addresses(pod) {
            // Pods in the node's own network have its address: nobody can tell them apart.
            if owners.get(&address) != Some(&1) {
                continue;
            }
            let entry = ServingPod {
                address: Some(address),
                namespace: pod.wish.pod.key.namespace.clone(),
                name: pod.wish.pod.key.name.clone(),
                uid: pod.wish.pod.uid.clone(),
                deployment: pod.wish.pod.deployment.clone(),
                generation: parameters.generation,
                parameters: parameters.clone(),
            };
            // One that does not pass would have the whole line refused.
            match entry.check() {
                Ok(()) => pods.push(entry),
                Err(error) => {
                    let pod = pod.wish.pod.key.to_string();
                    tracing::debug!(pod, %error, "a pod is left out of the feed");
                }
            }
        }
    }
    pods
}

fn addresses(pod: &PodFacts) -> impl Iterator<Item = IpAddr> {
    let parsed = pod.wish.pod.addresses.iter().filter_map(|a| a.parse().ok());
    let mut all: Vec<IpAddr> = parsed.map(|a: IpAddr| a.to_canonical()).collect();
    all.sort();
    all.dedup();
    all.into_iter()
}

fn parameters(pod: &PodFacts, deployment: &InferenceDeployment) -> Parameters {
    let spec = &deployment.spec;
    let objective = |model: &albacore_api::Model| {
        let slo = model.slo?;
        Some(ModelSlo {
            model: model.name.clone(),
            slo: Slo {
                latency: slo.latency.duration(),
                percentile: slo.percentile,
                contribs: slo.contribs.map(|span| span.duration()),
                interactions: slo.interactions.map(|span| span.duration()),
            },
        })
    };
    let cpus = pod.story.cpuset.as_ref().map_or(0, |cpuset| cpuset.len());
    let cpus = if cpus == 0 { None } else { Some(cpus as f64) };
    let share = match (cpus, pod.strain.quota) {
        (Some(cpus), Some(quota)) => cpus.min(quota),
        (Some(share), None) | (None, Some(share)) => share,
        (None, None) => f64::from(spec.workers) * f64::from(spec.threads),
    };
    Parameters {
        batching: Batching {
            policy: match spec.batching.policy {
                BatchingPolicy::Auto => Policy::Auto,
                BatchingPolicy::Deferred => Policy::Deferred,
                BatchingPolicy::Timeout => Policy::Timeout {
                    delay: spec
                        .batching
                        .max_delay
                        .map(|d| d.duration())
                        .unwrap_or_default(),
                },
                BatchingPolicy::Eager => Policy::Eager,
            },
            max_rows: spec.batching.max_rows,
        },
        queue: Queue {
            max_rows: spec.queue.max_rows,
        },
        slo: spec.models.iter().filter_map(objective).collect(),
        window: None,
        workers: u32::from(spec.workers),
        threads: u32::from(spec.threads),
        cpu_share: share,
        generation: deployment
            .metadata
            .generation
            .and_then(|g| u64::try_from(g).ok())
            .unwrap_or_default(),
        report: pod.trial.is_some().then_some(REPORT_PERIOD),
    }
}

/// The pipe to params.
#[derive(Debug)]
pub(crate) struct Feed {
    pipe: LineFifo,
    node: String,
    sequence: u64,
    pods: Vec<ServingPod>,
    due: Option<Instant>,
    /// The line that was offered last.
    line: String,
    written: Written,
}

impl Feed {
    /// Opens the pipe, and makes it if it is not there.
    ///
    /// # Errors
    /// It cannot be made, or something else has its name.
    pub(crate) fn open(path: &Path, node: &str) -> Result<Self, OsError> {
        Ok(Self {
            pipe: LineFifo::new(path)?,
            node: node.to_owned(),
            sequence: 0,
            pods: Vec::new(),
            due: None,
            line: String::new(),
            written: Written::Whole,
        })
    }

    /// Whether a line is to be made: something else is known than was written, or the last one is
    /// old.
    pub(crate) fn wants(&self, pods: &[ServingPod], now: Instant) -> bool {
        self.sequence == 0 || self.pods != pods || self.due.is_none_or(|due| due <= now)
    }

    /// Writes what is known now.
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
            Err(error) => tracing::warn!(%error, "the feed cannot be printed"),
        }
        self.offer();
    }

    /// Writes what waits, if anything does.
    pub(crate) fn flush(&mut self) {
        match self.written {
            Written::Whole => {}
            Written::Waiting => {
                let written = self.pipe.flush();
                self.note(written);
            }
            Written::NoReader => self.offer(),
        }
    }

    fn offer(&mut self) {
        let written = self.pipe.offer(&self.line);
        self.note(written);
    }

    fn note(&mut self, written: Result<Written, OsError>) {
        self.written = written.unwrap_or_else(|error| {
            tracing::debug!(%error, "the feed cannot be written; it is tried again");
            Written::NoReader
        });
    }

    /// When it has to be called again.
    pub(crate) fn next(&self, now: Instant) -> Instant {
        match self.written {
            Written::Whole => self.due.unwrap_or(now),
            Written::Waiting => now + FEED_RETRY,
            Written::NoReader => now + FEED_LOOK,
        }
    }
}
