//! Request outcomes of the last minute by model and kind of output, summed over the pods that
//! report them.

use std::collections::BTreeMap;

use albacore_api::{InferenceDeploymentSpec, ModelSpec};
use albacore_batching::{DeploymentLoad, ModelLoad, RequestCounts};

use crate::observed::ObservedPod;
use crate::server_state::{self, ServerState, UNREAD};

/// The requests of one model.
#[derive(Clone, PartialEq, Default, Debug)]
pub(crate) struct ModelOutcomes {
    /// By kind of output.
    kinds: BTreeMap<String, RequestCounts>,
    /// Replies within the objective, per second.
    pub(crate) goodput: f64,
    /// Number of replies by upper bound of the latency bucket, in microseconds.
    latencies: BTreeMap<u64, u64>,
}

impl ModelOutcomes {
    /// Sums the outcomes over all pods; `None` if no pod reports outcomes of this model.
    pub(crate) fn of<'a>(
        model: &ModelSpec,
        states: impl Iterator<Item = &'a ServerState>,
    ) -> Option<Self> {
        let mut sum: Option<Self> = None;
        for state in states {
            let mut models = state.models.iter();
            let reported = models.find(|reported| reported.name == model.name);
            let Some(kinds) = reported.and_then(|reported| reported.outcomes.as_ref()) else {
                continue;
            };
            let sum = sum.get_or_insert_default();
            for of in kinds {
                let counts = sum.kinds.entry(of.kind.clone()).or_default();
                counts.add(&counts_of(&of.requests, &of.newest));
                sum.goodput += of.requests.good as f64 / state.window_seconds.max(1.0);
                for &(bound, count) in &of.latency_us {
                    let bucket = sum.latencies.entry(bound).or_default();
                    *bucket = bucket.saturating_add(count);
                }
            }
        }
        sum
    }

    /// All requests of the model.
    pub(crate) fn all(&self) -> RequestCounts {
        let mut all = RequestCounts::default();
        self.kinds.values().for_each(|counts| all.add(counts));
        all
    }

    /// The known kinds of output with their requests.
    pub(crate) fn known_kinds(&self) -> impl Iterator<Item = (&str, &RequestCounts)> {
        let kinds = self.kinds.iter().filter(|(kind, _)| *kind != UNREAD);
        kinds.map(|(kind, counts)| (kind.as_str(), counts))
    }

    /// The 99th percentile of the latency in microseconds, rounded up to the bucket bound; `None`
    /// without replies.
    pub(crate) fn p99_micros(&self) -> Option<u64> {
        let all: u64 = self.latencies.values().fold(0, |a, &b| a.saturating_add(b));
        let rank = (all as f64 * 0.99).ceil() as u64;
        let mut seen = 0_u64;
        let mut buckets = self.latencies.iter().filter(|(_, count)| **count > 0);
        buckets.find_map(|(&bound, &count)| {
            seen = seen.saturating_add(count);
            (seen >= rank).then_some(bound)
        })
    }

    /// Input of the scaling rule.
    pub(crate) fn load(&self, model: &ModelSpec) -> ModelLoad {
        ModelLoad {
            bad_rate_allowed: bad_rate_allowed(model),
            all: self.all(),
            kinds: self.known_kinds().map(|(_, counts)| *counts).collect(),
        }
    }
}

/// The share of bad requests that a model's objective allows; `None` without an objective.
pub(crate) fn bad_rate_allowed(model: &ModelSpec) -> Option<f64> {
    model.slo.map(|slo| 1.0 - slo.percentile / 100.0)
}

/// The load of all ready pods with a known state. Of models for which no pod reports outcomes, only
/// the objective is used: all requests are then measured against the strictest objective.
pub(crate) fn load_of<'a>(
    spec: &InferenceDeploymentSpec,
    pods: impl Iterator<Item = &'a ObservedPod>,
) -> DeploymentLoad {
    let ready = pods.filter(|pod| pod.is_ready && !pod.is_inactive);
    let states: Vec<&ServerState> = ready.filter_map(|pod| pod.state.as_ref()).collect();
    let mut all = RequestCounts::default();
    for state in &states {
        all.add(&counts_of(&state.requests, &state.requests_newest));
    }
    let models = spec.models.iter().map(|model| {
        let outcomes = ModelOutcomes::of(model, states.iter().copied());
        outcomes.unwrap_or_default().load(model)
    });
    let models: Vec<ModelLoad> = models.collect();
    let idle: f64 = states.iter().map(|state| state.idle_share).sum();
    let idle_share = idle / states.len().max(1) as f64;
    let pods = u32::try_from(states.len()).unwrap_or(u32::MAX);
    DeploymentLoad::new(pods, idle_share, all, &models)
}

fn counts_of(
    window: &server_state::RequestOutcomes,
    newest: &server_state::RequestOutcomes,
) -> RequestCounts {
    RequestCounts {
        requests: window.all(),
        bad: window.bad(),
        recent_requests: newest.all(),
        recent_bad: newest.bad(),
    }
}
