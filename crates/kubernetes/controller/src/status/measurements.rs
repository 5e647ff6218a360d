//! Measurements over all pods, rounded to two digits so that noise does not change the status.

use albacore_api::{ModelSpec, ModelStatus, ServerLimit, Utilization};
use albacore_batching::{DeploymentLoad, RequestCounts};

use super::DeploymentFacts;
use crate::model_outcomes::{ModelOutcomes, bad_rate_allowed, load_of};
use crate::server_state::ServerState;

/// The states of the ready pods.
fn states<'a>(facts: &'a DeploymentFacts<'_>) -> impl Iterator<Item = &'a ServerState> {
    facts.ready_pods().filter_map(|pod| pod.state.as_ref())
}

fn load(facts: &DeploymentFacts<'_>) -> DeploymentLoad {
    load_of(&facts.deployment.spec, facts.pods.iter())
}

/// Adds the measurements of a model, summed over the pods, to its status.
pub(super) fn add_outcomes(
    facts: &DeploymentFacts<'_>,
    model: &ModelSpec,
    status: ModelStatus,
) -> ModelStatus {
    let Some(outcomes) = ModelOutcomes::of(model, states(facts)) else {
        return status;
    };
    let is_met = outcomes.load(model).is_objective_met();
    ModelStatus {
        goodput: Some(format!("{}/s", two_digits(outcomes.goodput))),
        p99: outcomes.p99_micros().map(|micros| time(micros as f64)),
        bad_rate: Some(percent(outcomes.all().bad_rate())),
        // Without requests the objective counts as met, like in the condition.
        slo_met: model.slo.map(|_| is_met.unwrap_or(true)),
        ..status
    }
}

/// The result of the objectives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Objectives {
    /// No requests were received.
    NoRequests,
    Met,
    /// The missed objectives, one clause each.
    Missed(Vec<String>),
}

pub(super) fn objectives(facts: &DeploymentFacts<'_>) -> Objectives {
    let models = &facts.deployment.spec.models;
    let mut missed: Vec<String> = models
        .iter()
        .flat_map(|model| missed_objectives(facts, model))
        .collect();
    // Servers of a version that does not report outcomes by model: all requests together are
    // measured against the strictest objective.
    let is_reported = |state: &ServerState| state.models.iter().all(|m| m.outcomes.is_some());
    let all = *load(facts).all();
    if missed.is_empty() && !states(facts).all(is_reported) {
        let allowed = models.iter().filter_map(bad_rate_allowed);
        let allowed = allowed.fold(1.0, f64::min);
        let counts = RequestCounts {
            requests: all.requests,
            bad: all.bad,
            ..RequestCounts::default()
        };
        missed.extend(describe_miss("all models together", &counts, allowed));
    }
    match (all.requests, missed.is_empty()) {
        (_, false) => Objectives::Missed(missed),
        (0, true) => Objectives::NoRequests,
        (_, true) => Objectives::Met,
    }
}

/// The kinds of output of a model that miss its objective; the model itself if only the total of
/// its requests misses it.
fn missed_objectives(facts: &DeploymentFacts<'_>, model: &ModelSpec) -> Vec<String> {
    let (Some(outcomes), Some(allowed)) = (
        ModelOutcomes::of(model, states(facts)),
        bad_rate_allowed(model),
    ) else {
        return Vec::new();
    };
    let kinds = outcomes.known_kinds().filter_map(|(kind, counts)| {
        describe_miss(&format!("model {}, {kind}", model.name), counts, allowed)
    });
    let mut missed: Vec<String> = kinds.collect();
    if missed.is_empty() {
        let of_model = format!("model {}", model.name);
        missed.extend(describe_miss(&of_model, &outcomes.all(), allowed));
    }
    missed
}

/// Describes by how much an objective is missed; `None` if it is met.
fn describe_miss(about: &str, counts: &RequestCounts, allowed: f64) -> Option<String> {
    let is_missed = counts.is_objective_met(allowed) == Some(false);
    is_missed.then(|| {
        format!(
            "{about}: {} of {} requests were late, shed or failed (at most {} allowed)",
            percent(counts.bad_rate()),
            two_digits(counts.requests as f64),
            percent(allowed)
        )
    })
}

fn percent(share: f64) -> String {
    format!("{}%", two_digits(100.0 * share))
}

pub(super) fn goodput(facts: &DeploymentFacts<'_>) -> Option<String> {
    let mut states = states(facts).map(|s| s.goodput_per_second).peekable();
    states.peek()?;
    Some(format!("{}/s", two_digits(states.sum())))
}

/// The 99th percentile of the slowest pod.
pub(super) fn latency_p99(facts: &DeploymentFacts<'_>) -> Option<String> {
    let worst = states(facts)
        .filter_map(|s| s.latency_p99_ms)
        .reduce(f64::max)?;
    Some(time(worst * 1_000.0))
}

pub(super) fn bad_rate(facts: &DeploymentFacts<'_>) -> Option<String> {
    let load = load(facts);
    let all = load.all();
    let share = all.bad as f64 / all.requests.max(1) as f64;
    (all.pods > 0).then(|| percent(share))
}

pub(super) fn load_factor(facts: &DeploymentFacts<'_>) -> Option<String> {
    let load = load(facts);
    (load.all().pods > 0).then(|| two_digits(load.factor()))
}

/// Utilization from which a part of a server is considered its bottleneck.
const LIMIT_UTILIZATION: f64 = 0.85;

/// The utilization of the pod whose front end or workers are busiest.
pub(super) fn utilization(facts: &DeploymentFacts<'_>) -> Option<Utilization> {
    let shares = states(facts).filter_map(|state| {
        let front = state.front.as_ref()?.busy.clamp(0.0, 1.0);
        Some((front, (1.0 - state.idle_share).clamp(0.0, 1.0)))
    });
    let busiest = |(front, workers): &(f64, f64)| front.max(*workers);
    let (front, workers) = shares.max_by(|a, b| busiest(a).total_cmp(&busiest(b)))?;
    let limit = match front >= workers {
        true => ServerLimit::Front,
        false => ServerLimit::Workers,
    };
    Some(Utilization {
        front: percent(front),
        workers: percent(workers),
        limit: (front.max(workers) >= LIMIT_UTILIZATION).then_some(limit),
    })
}

/// Two significant digits without an exponent: 1234 is 1200, 0.01234 is 0.012.
pub(super) fn two_digits(number: f64) -> String {
    if !number.is_finite() || number.abs() < 1e-6 {
        return "0".to_owned();
    }
    let exponent = number.abs().log10().floor() as i32;
    let unit = 10f64.powi(exponent - 1);
    let rounded = (number / unit).round() * unit;
    let decimals = usize::try_from(1 - exponent).unwrap_or(0);
    let text = format!("{rounded:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// A time in seconds, milliseconds or microseconds.
pub(super) fn time(micros: f64) -> String {
    match micros {
        m if m >= 1e6 => format!("{}s", two_digits(m / 1e6)),
        m if m >= 1e3 => format!("{}ms", two_digits(m / 1e3)),
        m => format!("{}us", two_digits(m)),
    }
}
