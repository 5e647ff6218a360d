//! The conditions. `Ready`, `Available`, `Progressing`, `ModelLoaded`, `Placed` and `SLOMet` always
//! exist; `Reconciling`, `Stalled`, `WorkersRespawning`, `StandbyMissing` and `UpgradePending`
//! exist only while they are true, so that kstatus (Flux, Argo CD) and `kubectl wait` interpret
//! them correctly.
//!
//! `Ready` is omitted while the deployment is scaled to zero: it is not expected to serve, a
//! `False` would keep GitOps tools waiting forever, and a `True` would be wrong. `ModelLoaded` and
//! `SLOMet` exist for the built-in server only.

use albacore_api::ConditionState;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::measurements::Objectives;
use super::stuck::stuck;
use super::{ApplyOutcome, DeploymentFacts, live_workers, measurements, models, placed};
use crate::limits::{MESSAGE_CHARS_MAX, RESPAWN_WINDOW, RESPAWNS_FREQUENT};
use crate::observed::{ObservedCondition, ObservedPod};
use crate::rejected_write::{RejectedWrite, with_remedy};
use crate::rollout::{UPGRADE_PENDING, upgrade_pending};

pub(super) const RECONCILING: &str = "Reconciling";
pub(super) const STALLED: &str = "Stalled";
pub(super) const RESPAWNING: &str = "WorkersRespawning";
const STANDBY_MISSING: &str = "StandbyMissing";

pub(super) fn conditions(facts: &DeploymentFacts<'_>, now: &Time) -> Vec<Condition> {
    let stalled = stalled(facts);
    let reconciling = match stalled {
        Some(_) => None,
        None => reconciling(facts),
    };
    let upgrade = facts
        .rollout
        .and_then(|rollout| upgrade_pending(rollout, facts.server_image));
    let states = [
        ("Ready", ready(facts, stalled.as_ref())),
        ("Available", Some(available(facts))),
        ("Progressing", Some(progressing(facts))),
        (
            "ModelLoaded",
            facts.is_built_in().then(|| model_loaded(facts)),
        ),
        ("Placed", Some(placed::placed(facts))),
        ("SLOMet", facts.is_built_in().then(|| slo_met(facts))),
        (RECONCILING, reconciling),
        (STALLED, stalled),
        (RESPAWNING, respawning(facts)),
        (STANDBY_MISSING, standby_missing(facts)),
        (UPGRADE_PENDING, upgrade),
    ];
    let before = facts.deployment.status.as_ref();
    let before = before.map_or(&[][..], |status| &status.conditions);
    let generation = facts.deployment.metadata.generation;
    let known = states.into_iter().filter_map(|(kind, state)| {
        let mut state = state?;
        state.message = state.message.chars().take(MESSAGE_CHARS_MAX).collect();
        Some(state.condition(kind, generation, before, now))
    });
    known.collect()
}

/// Reason of the Deployment's own condition when pods did not become available in time.
const DEADLINE: &str = "ProgressDeadlineExceeded";

/// The condition `Stalled`: a problem that blocks the spec until a user acts.
fn stalled(facts: &DeploymentFacts<'_>) -> Option<ConditionState> {
    let (reason, message) = match facts.outcome {
        ApplyOutcome::Invalid(violations) => {
            let sentences: Vec<String> = violations.iter().map(ToString::to_string).collect();
            ("InvalidSpec", sentences.join("; "))
        }
        ApplyOutcome::NameConflict(kind) => (
            "NameTaken",
            format!(
                "a {} of this name exists that this deployment does not control; delete or rename \
                 it, or give the deployment another name",
                kind.kind()
            ),
        ),
        ApplyOutcome::Rejected(rejection) if rejection.is_permanent => (
            rejection.reason,
            with_remedy(&rejection.message, rejection.reason),
        ),
        ApplyOutcome::Applied
        | ApplyOutcome::AwaitingGarbageCollection(_)
        | ApplyOutcome::Rejected(_) => {
            let progressing = facts.workload?.progressing_condition.as_ref()?;
            if progressing.reason != DEADLINE {
                return None;
            }
            let message = match stuck(facts) {
                Some(stuck) => stuck.append_to(&progressing.message),
                None => progressing.message.clone(),
            };
            (DEADLINE, message)
        }
    };
    Some(ConditionState::new("True", reason, message))
}

/// The condition `Reconciling`: work in progress.
fn reconciling(facts: &DeploymentFacts<'_>) -> Option<ConditionState> {
    let in_progress =
        |reason: &str, message: String| Some(ConditionState::new("True", reason, message));
    if let ApplyOutcome::AwaitingGarbageCollection(kind) = facts.outcome {
        let message = format!(
            "the {} of a previous deployment of this name is being deleted",
            kind.kind()
        );
        return in_progress("Collecting", message);
    }
    if let ApplyOutcome::Rejected(rejection) = facts.outcome {
        let message = with_remedy(&rejection.message, rejection.reason);
        return in_progress(rejection.reason, message);
    }
    let Some(workload) = facts.workload else {
        return in_progress("Creating", "there is no Deployment yet".to_owned());
    };
    let with_problem = |message: String| match stuck(facts) {
        Some(stuck) => stuck.append_to(&message),
        None => message,
    };
    if !workload.is_observed || workload.replicas != workload.updated {
        return in_progress("RollingOut", with_problem(rollout(facts)));
    }
    if !workload.is_fully_available() {
        let message = format!(
            "{} of {} pods are available",
            workload.available, workload.desired
        );
        let reason = match workload.is_rolled_out() {
            true => "Scaling",
            false => "RollingOut",
        };
        return in_progress(reason, with_problem(message));
    }
    settings_pending(facts)
}

/// `Reconciling` while servers do not have the newest settings yet.
fn settings_pending(facts: &DeploymentFacts<'_>) -> Option<ConditionState> {
    let behind = || {
        facts
            .ready_pods()
            .filter(|pod| facts.has_stale_settings(pod))
    };
    let with_state = || facts.ready_pods().filter(|pod| pod.state.is_some());
    let ObservedPod { name, state, .. } = behind().next()?;
    let refused = state.as_ref().and_then(|state| {
        let params = || state.params.as_ref()?.refused.as_ref();
        state.settings_error.as_ref().or_else(params)
    });
    if let Some(error) = refused {
        let message = format!("{name} keeps its previous settings: {error}");
        return Some(ConditionState::new("True", "SettingsRefused", message));
    }
    let message = format!(
        "{} of {} pods have not loaded the newest settings yet; the kubelet updates them within \
         about a minute",
        behind().count(),
        with_state().count()
    );
    Some(ConditionState::new("True", "SettingsPending", message))
}

fn rollout(facts: &DeploymentFacts<'_>) -> String {
    let workload = facts.workload.cloned().unwrap_or_default();
    format!(
        "{} of {} pods have the newest template, {} are available",
        workload.updated, workload.desired, workload.available
    )
}

fn ready(facts: &DeploymentFacts<'_>, stalled: Option<&ConditionState>) -> Option<ConditionState> {
    let no = |reason: &str, message: String| Some(ConditionState::new("False", reason, message));
    let stuck = stuck(facts);
    match (stalled, &stuck) {
        (Some(stalled), Some(stuck)) if stalled.reason == DEADLINE => {
            return no(&stuck.reason, stuck.message());
        }
        (Some(stalled), _) => return no(&stalled.reason, stalled.message.clone()),
        (None, _) => {}
    }
    if facts.is_at_zero() {
        return None;
    }
    let Some(workload) = facts.workload else {
        return match facts.outcome {
            ApplyOutcome::Rejected(RejectedWrite {
                reason, message, ..
            }) => no(reason, with_remedy(message, reason)),
            _ => no("Creating", "there is no Deployment yet".to_owned()),
        };
    };
    if let (true, models::LoadProgress::Failed(model, error)) =
        (facts.is_built_in(), models::progress(facts))
    {
        return no("ModelFailed", format!("model {model}: {error}"));
    }
    let is_served = workload.is_rolled_out() && workload.available > 0;
    if let Some(stuck) = stuck.filter(|_| !is_served) {
        return no(&stuck.reason, stuck.message());
    }
    if !workload.is_rolled_out() {
        return no("RollingOut", rollout(facts));
    }
    if workload.available == 0 {
        return no("NoPods", "no pod is available".to_owned());
    }
    Some(ready_by_workers(facts))
}

/// Whether the available pods have live workers.
fn ready_by_workers(facts: &DeploymentFacts<'_>) -> ConditionState {
    let yes = || ConditionState::new("True", "Serving", "requests are served");
    let none = || ConditionState::new("False", "NoLiveWorkers", "no worker process is alive");
    let mut ready = facts.ready_pods();
    let is_alive = live_workers(facts) > 0;
    match facts.is_built_in() {
        true if is_alive => yes(),
        true if ready.any(|pod| pod.state.is_some()) => none(),
        true => {
            let message = "pods are ready, but the controller cannot read the state of any: check \
                           that it can connect to their HTTP port";
            ConditionState::new("Unknown", "StateUnread", message)
        }
        // For a user's own server only the agent observes workers; if it reports and observes none,
        // there is none.
        false => {
            let is_seen = ready.all(|pod| pod.placement.is_some());
            if is_seen && !is_alive { none() } else { yes() }
        }
    }
}

/// A condition copied from the Deployment.
fn deployment_condition(
    facts: &DeploymentFacts<'_>,
    condition: Option<&ObservedCondition>,
) -> ConditionState {
    let status = |condition: &ObservedCondition| match condition.status.as_str() {
        "True" => "True",
        "False" => "False",
        _ => "Unknown",
    };
    match condition {
        Some(condition) => ConditionState::new(
            status(condition),
            &condition.reason,
            condition.message.clone(),
        ),
        None if facts.workload.is_some() => ConditionState::new(
            "Unknown",
            "Creating",
            "the Deployment has no such condition yet",
        ),
        None => ConditionState::new("False", "NoDeployment", "there is no Deployment"),
    }
}

fn available(facts: &DeploymentFacts<'_>) -> ConditionState {
    deployment_condition(
        facts,
        facts.workload.and_then(|w| w.available_condition.as_ref()),
    )
}

fn progressing(facts: &DeploymentFacts<'_>) -> ConditionState {
    deployment_condition(
        facts,
        facts
            .workload
            .and_then(|w| w.progressing_condition.as_ref()),
    )
}

fn model_loaded(facts: &DeploymentFacts<'_>) -> ConditionState {
    if facts.is_at_zero() {
        return ConditionState::new("Unknown", "ScaledToZero", "there is no pod to load into");
    }
    match models::progress(facts) {
        models::LoadProgress::NoReport => ConditionState::new(
            "Unknown",
            "StateUnread",
            "no pod has reported its state yet",
        ),
        models::LoadProgress::Failed(model, error) => {
            ConditionState::new("False", "LoadFailed", format!("model {model}: {error}"))
        }
        models::LoadProgress::Loading(loaded, all) => {
            let message = format!("{loaded} of {all} models are loaded, counted over all pods");
            ConditionState::new("False", "Loading", message)
        }
        models::LoadProgress::Loaded => {
            ConditionState::new("True", "Loaded", "every model is loaded in every pod")
        }
    }
}

/// Workers that exit repeatedly, although they are replaced.
fn respawning(facts: &DeploymentFacts<'_>) -> Option<ConditionState> {
    let count = facts.respawns.count;
    if count < RESPAWNS_FREQUENT {
        return None;
    }
    let message = format!(
        "worker processes that ended and were replaced in the last {} minutes: {count}; last: {}",
        RESPAWN_WINDOW.as_secs() / 60,
        facts.respawns.last.as_deref().unwrap_or_default()
    );
    let reason = "FrequentRespawns";
    Some(ConditionState::new(
        "True",
        reason,
        with_remedy(&message, reason),
    ))
}

/// Servers that cannot start a standby of their front process: they serve, but the failover of a
/// front that dies is slow.
fn standby_missing(facts: &DeploymentFacts<'_>) -> Option<ConditionState> {
    let of_pod = |pod: &ObservedPod| {
        let state = pod.state.as_ref()?;
        let error = state.front.as_ref()?.standby_error.clone()?;
        Some((pod.name.clone(), error))
    };
    let failed: Vec<_> = facts.ready_pods().filter_map(of_pod).collect();
    let (pod, error) = failed.first()?;
    let message = format!(
        "{} of {} pods cannot start a standby of their front process, which is retried; {pod}: \
         {error}",
        failed.len(),
        facts.ready_pods().count()
    );
    let reason = "StandbyStartFailed";
    Some(ConditionState::new(
        "True",
        reason,
        with_remedy(&message, reason),
    ))
}

fn slo_met(facts: &DeploymentFacts<'_>) -> ConditionState {
    let has_objective = facts.deployment.spec.models.iter().any(|m| m.slo.is_some());
    if !has_objective {
        return ConditionState::new("True", "NoObjective", "no model has a latency objective");
    }
    if facts.ready_pods().all(|pod| pod.state.is_none()) {
        return ConditionState::new(
            "Unknown",
            "StateUnread",
            "no pod has reported its state yet",
        );
    }
    match measurements::objectives(facts) {
        Objectives::NoRequests => {
            ConditionState::new("True", "NoRequests", "there were no requests")
        }
        Objectives::Met => ConditionState::new(
            "True",
            "Met",
            "every kind of request to every model meets its latency objective",
        ),
        Objectives::Missed(clauses) => ConditionState::new("False", "Missed", clauses.join("; ")),
    }
}
