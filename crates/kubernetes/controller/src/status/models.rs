//! The models, as the pods see them.

use albacore_api::{LatencyModel, Model, ModelStatus};

use super::{Facts, figures};
use crate::limits::MESSAGE_CHARS_MAX;
use crate::observed::PodSeen;
use crate::settings::source_of;
use crate::state::{Loading, ModelState};

/// The models in the order of the spec; none for a server of the user's own.
pub(super) fn models(facts: &Facts<'_>) -> Vec<ModelStatus> {
    let models = facts.deployment.spec.models.iter();
    models.map(|model| status_of(facts, model)).collect()
}

fn status_of(facts: &Facts<'_>, model: &Model) -> ModelStatus {
    let pods: Vec<(&PodSeen, &ModelState)> = seen(facts, model).collect();
    let loaded = pods.iter().filter(|(_, seen)| is_loaded(model, seen));
    let digests = loaded
        .clone()
        .filter_map(|(_, seen)| seen.sha256.as_deref());
    let mut digests: Vec<&str> = digests.collect();
    digests.sort_unstable();
    digests.dedup();
    ModelStatus {
        name: model.name.clone(),
        loaded: format!("{}/{}", loaded.count(), facts.wanted()),
        sha256: match digests.as_slice() {
            [digest] => Some((*digest).to_owned()),
            _ => None,
        },
        error: error(&pods),
        latency: latency(&pods),
    }
}

/// What the pods say of a model.
fn seen<'a>(
    facts: &'a Facts<'_>,
    model: &'a Model,
) -> impl Iterator<Item = (&'a PodSeen, &'a ModelState)> {
    facts.live_pods().filter_map(|pod| {
        let models = pod.state.as_ref()?.models.iter();
        let mut of_name = models.filter(|seen| seen.name == model.name);
        of_name.next().map(|seen| (pod, seen))
    })
}

/// Whether a pod has what the spec names.
fn is_loaded(model: &Model, seen: &ModelState) -> bool {
    let is_source = seen.source == source_of(&model.uri.place).to_string();
    let is_digest = model.uri.sha256.is_none() || model.uri.sha256 == seen.sha256;
    seen.state == Loading::Loaded && is_source && is_digest
}

fn error(pods: &[(&PodSeen, &ModelState)]) -> Option<String> {
    let failed = pods
        .iter()
        .filter(|(_, seen)| seen.state == Loading::Failed);
    // Of several the first by name, so that the text does not jump from pod to pod.
    let (pod, seen) = failed.min_by_key(|(pod, _)| &pod.name)?;
    let why = seen
        .error
        .as_deref()
        .unwrap_or("the server does not say why");
    let text = format!("{}: {why}", pod.name);
    Some(text.chars().take(MESSAGE_CHARS_MAX).collect())
}

/// The median over pods, which one odd pod does not move.
fn latency(pods: &[(&PodSeen, &ModelState)]) -> Vec<LatencyModel> {
    let learned = || {
        let models = pods.iter().flat_map(|(_, seen)| &seen.latency);
        models.filter(|l| l.samples > 0 && l.alpha_us.is_finite() && l.beta_us.is_finite())
    };
    let mut kinds: Vec<&str> = learned().map(|l| l.kind.as_str()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let of_kind = |kind: &str| {
        let median = |of: fn(&crate::state::Latency) -> f64| {
            let of_kind = learned().filter(|l| l.kind == kind);
            let mut values: Vec<f64> = of_kind.map(of).collect();
            values.sort_by(f64::total_cmp);
            values.get(values.len() / 2).copied().unwrap_or_default()
        };
        LatencyModel {
            kind: kind.to_owned(),
            per_row: figures::time(median(|l| l.alpha_us)),
            per_batch: figures::time(median(|l| l.beta_us)),
        }
    };
    kinds.into_iter().map(of_kind).collect()
}

/// How far all models are, on all pods that serve or are about to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Progress {
    /// No pod said anything yet.
    Unread,
    /// A model, and what a pod says of it.
    Failed(String, String),
    /// So many of so many (pod, model) are loaded.
    Loading(usize, usize),
    Loaded,
}

pub(super) fn progress(facts: &Facts<'_>) -> Progress {
    let pods: Vec<&PodSeen> = facts.live_pods().collect();
    if pods.iter().all(|pod| pod.state.is_none()) {
        return Progress::Unread;
    }
    let models = &facts.deployment.spec.models;
    let mut loaded = 0;
    for model in models {
        let seen: Vec<_> = seen(facts, model).collect();
        if let Some(error) = error(&seen) {
            return Progress::Failed(model.name.clone(), error);
        }
        loaded += seen
            .iter()
            .filter(|(_, seen)| is_loaded(model, seen))
            .count();
    }
    let all = models.len() * pods.len();
    match loaded == all {
        true => Progress::Loaded,
        false => Progress::Loading(loaded, all),
    }
}
