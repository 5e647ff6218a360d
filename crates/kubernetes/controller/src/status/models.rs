//! The status of the models, from the reports of the pods.

use albacore_api::{BatchingStatus, LatencyModel, ModelSpec, ModelStatus};

use super::{DeploymentFacts, measurements};
use crate::limits::MESSAGE_CHARS_MAX;
use crate::observed::ObservedPod;
use crate::server_state::{ModelLoadState, ModelState};

/// The models in the order of the spec; empty for a user's own server.
pub(super) fn models(facts: &DeploymentFacts<'_>) -> Vec<ModelStatus> {
    let models = facts.deployment.spec.models.iter();
    models.map(|model| status_of(facts, model)).collect()
}

fn status_of(facts: &DeploymentFacts<'_>, model: &ModelSpec) -> ModelStatus {
    let pods: Vec<(&ObservedPod, &ModelState)> = model_states(facts, model).collect();
    let loaded = pods.iter().filter(|(_, state)| is_loaded(model, state));
    let digests = loaded
        .clone()
        .filter_map(|(_, state)| state.sha256.as_deref());
    let mut digests: Vec<&str> = digests.collect();
    digests.sort_unstable();
    digests.dedup();
    let status = ModelStatus {
        name: model.name.clone(),
        loaded: format!("{}/{}", loaded.count(), facts.desired_replicas()),
        sha256: match digests.as_slice() {
            [digest] => Some((*digest).to_owned()),
            _ => None,
        },
        error: error(&pods),
        latency: latency(&pods),
        batching: batching(&pods),
        ..ModelStatus::default()
    };
    measurements::add_outcomes(facts, model, status)
}

/// The states of a model on the pods.
fn model_states<'a>(
    facts: &'a DeploymentFacts<'_>,
    model: &'a ModelSpec,
) -> impl Iterator<Item = (&'a ObservedPod, &'a ModelState)> {
    facts.active_pods().filter_map(|pod| {
        let models = pod.state.as_ref()?.models.iter();
        let mut of_name = models.filter(|state| state.name == model.name);
        of_name.next().map(|state| (pod, state))
    })
}

/// Whether a pod has loaded the version in the spec.
fn is_loaded(model: &ModelSpec, state: &ModelState) -> bool {
    let is_source = state.source == model.uri.place.source_in_pod().to_string();
    let is_digest = model.uri.sha256.is_none() || model.uri.sha256 == state.sha256;
    state.state == ModelLoadState::Loaded && is_source && is_digest
}

fn error(pods: &[(&ObservedPod, &ModelState)]) -> Option<String> {
    let failed = pods
        .iter()
        .filter(|(_, state)| state.state == ModelLoadState::Failed);
    // The first by name if there are several, so that the text does not alternate between pods.
    let (pod, state) = failed.min_by_key(|(pod, _)| &pod.name)?;
    let why = state
        .error
        .as_deref()
        .unwrap_or("the server reports no reason");
    let text = format!("{}: {why}", pod.name);
    Some(text.chars().take(MESSAGE_CHARS_MAX).collect())
}

/// The median over pods, which is robust against an outlier.
fn latency(pods: &[(&ObservedPod, &ModelState)]) -> Vec<LatencyModel> {
    let learned = || {
        let models = pods.iter().flat_map(|(_, state)| &state.latency);
        models.filter(|l| l.samples > 0 && l.alpha_us.is_finite() && l.beta_us.is_finite())
    };
    let mut kinds: Vec<&str> = learned().map(|l| l.kind.as_str()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let of_kind = |kind: &str| {
        let median = |of: fn(&crate::server_state::LatencyFit) -> f64| {
            let of_kind = learned().filter(|l| l.kind == kind);
            let mut values: Vec<f64> = of_kind.map(of).collect();
            values.sort_by(f64::total_cmp);
            values.get(values.len() / 2).copied().unwrap_or_default()
        };
        LatencyModel {
            kind: kind.to_owned(),
            per_row: measurements::time(median(|l| l.alpha_us)),
            per_batch: measurements::time(median(|l| l.beta_us)),
        }
    };
    kinds.into_iter().map(of_kind).collect()
}

/// The number of pods that defer batches, by kind, and the explanation of the first of these pods
/// by name or, if none defers, of the first pod.
fn batching(pods: &[(&ObservedPod, &ModelState)]) -> Vec<BatchingStatus> {
    let chosen = || {
        let pods = pods.iter();
        pods.flat_map(|(pod, state)| state.batching.iter().map(|choice| (&pod.name, choice)))
    };
    let mut kinds: Vec<&str> = chosen().map(|(_, choice)| choice.kind.as_str()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let of_kind = |kind: &str| {
        let of_kind = || chosen().filter(|(_, choice)| choice.kind == kind);
        let deferred = of_kind().filter(|(_, choice)| choice.deferred).count();
        let first = of_kind().min_by_key(|&(pod, choice)| (!choice.deferred, pod));
        let reason = first.map_or("", |(_, choice)| &choice.explanation);
        BatchingStatus {
            kind: kind.to_owned(),
            deferred: format!("{deferred}/{}", of_kind().count()),
            reason: reason.chars().take(MESSAGE_CHARS_MAX).collect(),
        }
    };
    kinds.into_iter().map(of_kind).collect()
}

/// The progress of loading all models on all active pods.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum LoadProgress {
    /// No pod has reported yet.
    NoReport,
    /// A model, and the error reported by a pod.
    Failed(String, String),
    /// Number of loaded pairs of pod and model, and number of all pairs.
    Loading(usize, usize),
    Loaded,
}

pub(super) fn progress(facts: &DeploymentFacts<'_>) -> LoadProgress {
    let pods: Vec<&ObservedPod> = facts.active_pods().collect();
    if pods.iter().all(|pod| pod.state.is_none()) {
        return LoadProgress::NoReport;
    }
    let models = &facts.deployment.spec.models;
    let mut loaded = 0;
    for model in models {
        let states: Vec<_> = model_states(facts, model).collect();
        if let Some(error) = error(&states) {
            return LoadProgress::Failed(model.name.clone(), error);
        }
        loaded += states
            .iter()
            .filter(|(_, state)| is_loaded(model, state))
            .count();
    }
    let all = models.len() * pods.len();
    match loaded == all {
        true => LoadProgress::Loaded,
        false => LoadProgress::Loading(loaded, all),
    }
}
