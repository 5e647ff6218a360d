//! Decides when a status is written, and creates events for its changes.
//!
//! A status that differs in measurements only is written at most every [`measurements_pause`],
//! because measurements change constantly and no reader needs them more often. A status that
//! differs in roll-out progress only is written at most every [`PROGRESS_PAUSE`], because the
//! Deployment and its pods change in many small steps.

use std::time::{Duration, Instant};

use albacore_api::{InferenceDeployment, InferenceDeploymentStatus, counted};
use albacore_cluster::{EventDraft, ObjectEvent, Resource as _, ResourceExt as _};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::apply::AppliedChanges;
use crate::autoscale::Scaling;
use crate::child_action::is_not_newer;
use crate::children::ChildKind;
use crate::limits::{MEASUREMENTS_PAUSE, MEASUREMENTS_PAUSE_PER_DEPLOYMENT, PROGRESS_PAUSE};
use crate::names::AGENT_SILENT;
use crate::record::DeploymentRecord;
use crate::rejected_write::RejectedWrite;
use crate::rollout::{STUCK, UPGRADE_PENDING};

/// The current status of `deployment`: the one written last if the watch has not reported it yet.
pub(crate) fn status_before(
    deployment: &InferenceDeployment,
    record: &DeploymentRecord,
) -> Option<InferenceDeploymentStatus> {
    let version = deployment
        .metadata
        .resource_version
        .as_deref()
        .unwrap_or_default();
    match &record.status {
        Some((status, written, _)) if is_not_newer(version, written) => Some(status.clone()),
        _ => deployment.status.clone(),
    }
}

/// When to write a status.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WriteDecision {
    /// Nothing changed.
    Never,
    Now,
    /// Only measurements or the progress of a roll-out changed.
    After(Duration),
}

/// Shortest time between two status writes that differ in measurements only, for a given number of
/// deployments.
pub(crate) fn measurements_pause(deployments: usize) -> Duration {
    let deployments = u32::try_from(deployments).unwrap_or(u32::MAX);
    MEASUREMENTS_PAUSE_PER_DEPLOYMENT
        .saturating_mul(deployments)
        .max(MEASUREMENTS_PAUSE)
}

/// When to write `status` over `before`; `pause` is that of [`measurements_pause`].
pub(crate) fn write_decision(
    before: Option<&InferenceDeploymentStatus>,
    status: &InferenceDeploymentStatus,
    record: &DeploymentRecord,
    now: Instant,
    pause: Duration,
) -> WriteDecision {
    let Some(before) = before else {
        return WriteDecision::Now;
    };
    if before == status {
        return WriteDecision::Never;
    }
    let (old, new) = (without_measurements(before), without_measurements(status));
    let pause = match old == new {
        true => pause,
        false if without_progress(old) == without_progress(new) => PROGRESS_PAUSE,
        false => return WriteDecision::Now,
    };
    let written = record.status.as_ref().map(|(_, _, at)| *at);
    let age = written.map_or(pause, |at| now.duration_since(at));
    match pause.checked_sub(age).filter(|left| !left.is_zero()) {
        Some(left) => WriteDecision::After(left),
        None => WriteDecision::Now,
    }
}

fn without_measurements(status: &InferenceDeploymentStatus) -> InferenceDeploymentStatus {
    let mut status = InferenceDeploymentStatus {
        goodput: None,
        latency_p99: None,
        bad_rate: None,
        load_factor: None,
        utilization: None,
        ..status.clone()
    };
    // The reason states whether fewer pods seem sufficient, which may change with each report.
    if let Some(traffic) = &mut status.traffic {
        traffic.reason.clear();
    }
    for model in &mut status.models {
        model.latency.clear();
        (model.goodput, model.p99, model.bad_rate) = (None, None, None);
        // Its condition immediately reports whether an objective is missed or met.
        model.slo_met = None;
        model.batching.clear();
    }
    if let Some(workers) = &mut status.workers {
        workers.respawns = 0;
        workers.last_cause = None;
    }
    // Messages of other components may change with each attempt (counts, times), which does not
    // justify an immediate write.
    for condition in &mut status.conditions {
        condition.message.clear();
    }
    status
}

/// Removes the progress of a roll-out while it is in progress; its end changes `Reconciling`.
fn without_progress(status: InferenceDeploymentStatus) -> InferenceDeploymentStatus {
    let mut conditions = status.conditions.clone();
    if !conditions.iter().any(|c| c.type_ == "Reconciling") {
        return status;
    }
    // Copied from the Deployment, whose conditions change at each step.
    conditions.retain(|c| !matches!(&*c.type_, "Available" | "Progressing"));
    InferenceDeploymentStatus {
        conditions,
        replicas: None,
        ready_replicas: None,
        ready: None,
        workers: None,
        ..status
    }
}

/// The changes of one reconcile that are not part of the status.
pub(crate) struct ReconcileChanges<'a> {
    pub(crate) applied: &'a AppliedChanges,
    pub(crate) scaling: Option<&'a Scaling>,
    /// The note of an event about respawned workers, if one is due.
    pub(crate) respawn_note: Option<String>,
    /// Whether pods started or stopped receiving requests.
    pub(crate) has_traffic_changed: bool,
}

/// Events for the changes between two statuses.
pub(crate) fn events(
    deployment: &InferenceDeployment,
    before: Option<&InferenceDeploymentStatus>,
    status: &InferenceDeploymentStatus,
    changes: ReconcileChanges<'_>,
) -> Vec<ObjectEvent> {
    let ReconcileChanges {
        applied,
        scaling,
        respawn_note,
        has_traffic_changed,
    } = changes;
    let mut drafts = Vec::new();
    for (kinds, reason, action, verb) in [
        (&applied.created, "Created", "Create", "created"),
        (&applied.changed, "Changed", "Change", "changed"),
        (&applied.deleted, "Deleted", "Delete", "deleted"),
    ] {
        if !kinds.is_empty() {
            let names: Vec<&str> = kinds.iter().map(|kind: &ChildKind| kind.noun()).collect();
            let note = format!("{verb} {}", names.join(", "));
            drafts.push(EventDraft::normal(reason, action, note));
        }
    }
    for kind in &applied.skipped {
        let (kind, name) = (kind.noun(), kind.name_of(&deployment.name_any()));
        let note = format!(
            "cannot create {kind} {name}: an object that this deployment does not control has this \
             name; delete or rename it"
        );
        drafts.push(EventDraft::warning("NameTaken", "Apply", note));
    }
    if let Some(Scaling { from, to, advice }) = scaling {
        let (pods, scaling_reason) = (counted(*to, "pod"), scaling_reason(advice.cause));
        let note = format!("from {from} to {pods}: {scaling_reason}");
        drafts.push(EventDraft::normal("Scaled", "Scale", note));
    }
    if let Some(traffic) = status.traffic.as_ref().filter(|_| has_traffic_changed) {
        let note = format!(
            "ready pods that get requests: {}: {}",
            traffic.serving, traffic.reason
        );
        drafts.push(EventDraft::normal("Redirected", "Redirect", note));
    }
    drafts.extend(condition_events(before, status));
    drafts.extend(respawn_note.map(|note| EventDraft::warning("WorkersRespawned", "Serve", note)));
    let regarding = deployment.object_ref(&());
    drafts
        .into_iter()
        .map(|draft| draft.regarding(regarding.clone()))
        .collect()
}

/// Events for conditions that changed.
fn condition_events(
    before: Option<&InferenceDeploymentStatus>,
    status: &InferenceDeploymentStatus,
) -> Vec<EventDraft> {
    let mut found = Vec::new();
    let of = |status: Option<&InferenceDeploymentStatus>, kind: &str| -> Option<Condition> {
        status?.conditions.iter().find(|c| c.type_ == kind).cloned()
    };
    let changed = |kind: &str| {
        let now = of(Some(status), kind);
        let same = |a: &Condition, b: &Condition| (&a.status, &a.reason) == (&b.status, &b.reason);
        let was = of(before, kind);
        now.filter(|now| was.is_none_or(|was| !same(&was, now)))
    };
    for kind in ["Stalled", "Reconciling"] {
        let Some(now) = changed(kind) else { continue };
        if let Some(reason) = blocking_event_reason(&now.reason) {
            found.push(EventDraft::warning(reason, "Apply", now.message));
        }
    }
    for (kind, reason, event, action) in [
        (
            "WorkersRespawning",
            "FrequentRespawns",
            "WorkersRespawning",
            "Serve",
        ),
        ("ModelLoaded", "LoadFailed", "LoadFailed", "Load"),
        ("Ready", "NoLiveWorkers", "NoLiveWorkers", "Serve"),
        ("Placed", AGENT_SILENT, AGENT_SILENT, "Place"),
        ("SLOMet", "Missed", "ObjectiveMissed", "Serve"),
        (UPGRADE_PENDING, STUCK, "RolloutStuck", "Apply"),
    ] {
        if let Some(now) = changed(kind).filter(|now| now.reason == reason) {
            found.push(EventDraft::warning(event, action, now.message));
        }
    }
    if let Some(now) = changed("Ready").filter(|now| now.status == "True") {
        found.push(EventDraft::normal("Ready", "Serve", now.message));
    }
    found
}

/// The reason of the event for a condition that blocks the spec; `None` for other conditions. Maps
/// to this program's own constants.
fn blocking_event_reason(reason: &str) -> Option<&'static str> {
    let own = ["InvalidSpec", "NameTaken", "ProgressDeadlineExceeded"];
    let mut known = own.into_iter().chain(RejectedWrite::REASONS);
    known.find(|known| *known == reason)
}

fn scaling_reason(cause: albacore_batching::Cause) -> &'static str {
    use albacore_batching::Cause;
    match cause {
        Cause::Bounds => "the bounds of spec.autoscaling",
        Cause::BadRate => "requests were late, shed or failed",
        Cause::Idle => "workers were idle for five minutes",
        Cause::NoReport | Cause::Growing | Cause::Stabilizing | Cause::Steady => "no change",
    }
}

#[cfg(test)]
mod tests;
