//! Measurements over all pods, rounded to two digits so that noise does not change the status.

use albacore_api::InferenceDeploymentSpec;
use albacore_batching::{Load, load_factor as factor_of};

use super::DeploymentFacts;
use crate::observed::ObservedPod;
use crate::server_state::ServerState;

/// The states of the pods that serve.
fn states<'a>(facts: &'a DeploymentFacts<'_>) -> impl Iterator<Item = &'a ServerState> {
    facts.ready_pods().filter_map(|pod| pod.state.as_ref())
}

fn load(facts: &DeploymentFacts<'_>) -> Load {
    load_of(&facts.deployment.spec, facts.pods)
}

/// The load of all ready pods with a known state.
pub(crate) fn load_of(spec: &InferenceDeploymentSpec, pods: &[ObservedPod]) -> Load {
    let mut load = Load {
        pods: 0,
        requests: 0,
        bad: 0,
        recent_requests: 0,
        recent_bad: 0,
        idle_share: 0.0,
        bad_rate_allowed: bad_rate_allowed(spec),
    };
    let ready = pods.iter().filter(|pod| pod.is_ready && !pod.is_ending);
    for state in ready.filter_map(|pod| pod.state.as_ref()) {
        load.pods += 1;
        load.requests = load.requests.saturating_add(state.requests.all());
        load.bad = load.bad.saturating_add(state.requests.bad());
        let newest = &state.requests_newest;
        load.recent_requests = load.recent_requests.saturating_add(newest.all());
        load.recent_bad = load.recent_bad.saturating_add(newest.bad());
        load.idle_share += state.idle_share;
    }
    load.idle_share /= f64::from(load.pods.max(1));
    load
}

/// The smallest share of bad requests that an objective allows; 1 without an objective.
fn bad_rate_allowed(spec: &InferenceDeploymentSpec) -> f64 {
    let objectives = spec.models.iter().filter_map(|m| m.slo);
    let allowed = objectives.map(|slo| 1.0 - slo.percentile / 100.0);
    allowed.fold(1.0, f64::min)
}

/// Whether the objective is met; `None` if nothing is known or no request came.
pub(super) fn is_objective_kept(facts: &DeploymentFacts<'_>) -> Option<bool> {
    let load = load(facts);
    // Without the margin, rounding of 1 - 99/100 would refuse the last request that is allowed.
    let allowed = load.bad_rate_allowed * load.requests as f64 + 1e-6;
    (load.requests > 0).then_some(load.bad as f64 <= allowed)
}

pub(super) fn goodput(facts: &DeploymentFacts<'_>) -> Option<String> {
    let mut states = states(facts).map(|s| s.goodput_per_second).peekable();
    states.peek()?;
    Some(format!("{}/s", two_digits(states.sum())))
}

/// That of the slowest pod.
pub(super) fn latency_p99(facts: &DeploymentFacts<'_>) -> Option<String> {
    let worst = states(facts)
        .filter_map(|s| s.latency_p99_ms)
        .reduce(f64::max)?;
    Some(time(worst * 1_000.0))
}

pub(super) fn bad_rate(facts: &DeploymentFacts<'_>) -> Option<String> {
    let load = load(facts);
    let all = load.requests.max(1) as f64;
    (load.pods > 0).then(|| format!("{}%", two_digits(100.0 * load.bad as f64 / all)))
}

pub(super) fn load_factor(facts: &DeploymentFacts<'_>) -> Option<String> {
    let load = load(facts);
    (load.pods > 0).then(|| two_digits(factor_of(&load)))
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
