//! Writes the status where it changed, and tells what happened.
//!
//! A status that differs in measured figures only waits until [`FIGURES_PAUSE`] has passed since
//! the last write: numbers move all the time, and nobody reads them faster.

use std::time::{Duration, Instant};

use albacore_api::{InferenceDeployment, InferenceDeploymentStatus, counted};
use albacore_cluster::{Happening, Resource as _, Severity};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::apply::Done;
use crate::autoscale::Scaling;
use crate::children::ChildKind;
use crate::limits::FIGURES_PAUSE;
use crate::memory::Memory;
use crate::names::AGENT_SILENT;
use crate::refusal::Refusal;
use crate::step::is_not_newer;

/// The status that `deployment` has: as it was last written, if the watch has not told of it yet.
pub(crate) fn status_before(
    deployment: &InferenceDeployment,
    memory: &Memory,
) -> Option<InferenceDeploymentStatus> {
    let version = deployment
        .metadata
        .resource_version
        .as_deref()
        .unwrap_or_default();
    match &memory.status {
        Some((status, written, _)) if is_not_newer(version, written) => Some(status.clone()),
        _ => deployment.status.clone(),
    }
}

/// When a status is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Writing {
    /// It says nothing new.
    Never,
    Now,
    /// It has new figures only.
    After(Duration),
}

/// When to write `status` over `before`.
pub(crate) fn writing(
    before: Option<&InferenceDeploymentStatus>,
    status: &InferenceDeploymentStatus,
    memory: &Memory,
    now: Instant,
) -> Writing {
    let Some(before) = before else {
        return Writing::Now;
    };
    if before == status {
        return Writing::Never;
    }
    if without_figures(before) != without_figures(status) {
        return Writing::Now;
    }
    let written = memory.status.as_ref().map(|(_, _, at)| *at);
    let age = written.map_or(FIGURES_PAUSE, |at| now.duration_since(at));
    match FIGURES_PAUSE
        .checked_sub(age)
        .filter(|left| !left.is_zero())
    {
        Some(left) => Writing::After(left),
        None => Writing::Now,
    }
}

fn without_figures(status: &InferenceDeploymentStatus) -> InferenceDeploymentStatus {
    let mut status = InferenceDeploymentStatus {
        goodput: None,
        latency_p99: None,
        bad_rate: None,
        load_factor: None,
        ..status.clone()
    };
    for model in &mut status.models {
        model.latency.clear();
    }
    if let Some(workers) = &mut status.workers {
        workers.respawns = 0;
        workers.last_cause = None;
    }
    // What others say can change with each try (counts, times): it is no reason to write at once.
    for condition in &mut status.conditions {
        condition.message.clear();
    }
    status
}

/// What happened between two statuses, as events.
pub(crate) fn happenings(
    deployment: &InferenceDeployment,
    before: Option<&InferenceDeploymentStatus>,
    status: &InferenceDeploymentStatus,
    done: &Done,
    scaling: Option<&Scaling>,
) -> Vec<Happening> {
    let regarding = deployment.object_ref(&());
    let tell = |severity, reason: &'static str, action: &'static str, note: String| Happening {
        regarding: regarding.clone(),
        severity,
        reason,
        action,
        note,
    };
    let mut told = Vec::new();
    for (kinds, reason, action, verb) in [
        (&done.created, "Created", "Create", "created"),
        (&done.changed, "Changed", "Change", "changed"),
        (&done.deleted, "Deleted", "Delete", "deleted"),
    ] {
        if !kinds.is_empty() {
            let names: Vec<&str> = kinds.iter().map(|kind: &ChildKind| kind.kind()).collect();
            let note = format!("{verb} {}", names.join(", "));
            told.push(tell(Severity::Normal, reason, action, note));
        }
    }
    if let Some(Scaling { from, to, advice }) = scaling {
        let note = format!(
            "from {from} to {}: {}",
            counted(*to, "pod"),
            why(advice.cause)
        );
        told.push(tell(Severity::Normal, "Scaled", "Scale", note));
    }
    for (severity, reason, action, note) in of_conditions(before, status) {
        told.push(tell(severity, reason, action, note));
    }
    told
}

/// The events of conditions that changed: severity, reason, action and note of each.
fn of_conditions(
    before: Option<&InferenceDeploymentStatus>,
    status: &InferenceDeploymentStatus,
) -> Vec<(Severity, &'static str, &'static str, String)> {
    let mut told = Vec::new();
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
        if let Some(reason) = apply_reason(&now.reason) {
            told.push((Severity::Warning, reason, "Apply", now.message));
        }
    }
    if let Some(now) = changed("WorkersRespawning") {
        let reason = "WorkersRespawning";
        told.push((Severity::Warning, reason, "Serve", now.message));
    }
    if let Some(now) = changed("ModelLoaded").filter(|now| now.reason == "LoadFailed") {
        told.push((Severity::Warning, "LoadFailed", "Load", now.message));
    }
    if let Some(now) = changed("Ready") {
        match now.status.as_str() {
            "True" => told.push((Severity::Normal, "Ready", "Serve", now.message)),
            _ if now.reason == "NoLiveWorkers" => {
                told.push((Severity::Warning, "NoLiveWorkers", "Serve", now.message));
            }
            _ => {}
        }
    }
    if let Some(now) = changed("Placed").filter(|now| now.reason == AGENT_SILENT) {
        told.push((Severity::Warning, AGENT_SILENT, "Place", now.message));
    }
    if let Some(now) = changed("SLOMet").filter(|now| now.reason == "Missed") {
        told.push((Severity::Warning, "ObjectiveMissed", "Serve", now.message));
    }
    told
}

/// The reason of the event about a condition that says that the spec does not come true; `None` for
/// what is usual. Reasons of events are words of the program's.
fn apply_reason(reason: &str) -> Option<&'static str> {
    let own = ["InvalidSpec", "NameTaken", "ProgressDeadlineExceeded"];
    let mut known = own.into_iter().chain(Refusal::REASONS);
    known.find(|known| *known == reason)
}

fn why(cause: albacore_batching::Cause) -> &'static str {
    use albacore_batching::Cause;
    match cause {
        Cause::Bounds => "the bounds of spec.autoscaling",
        Cause::BadRate => "requests were late, shed or failed",
        Cause::Idle => "workers were idle for five minutes",
        Cause::NoReport | Cause::Growing | Cause::Stabilizing | Cause::Steady => "no change",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(goodput: &str, ready: &str) -> InferenceDeploymentStatus {
        InferenceDeploymentStatus {
            goodput: Some(goodput.to_owned()),
            ready: Some(ready.to_owned()),
            ..InferenceDeploymentStatus::default()
        }
    }

    #[test]
    fn figures_alone_wait_and_everything_else_does_not() {
        let start = Instant::now();
        let written = status("10/s", "1/2");
        let mut memory = Memory::default();
        memory.status = Some((written.clone(), "7".to_owned(), start));
        let at = |status: &InferenceDeploymentStatus, seconds| {
            let now = start + Duration::from_secs(seconds);
            writing(Some(&written), status, &memory, now)
        };
        assert_eq!(at(&written, 99), Writing::Never);
        assert_eq!(at(&status("10/s", "2/2"), 0), Writing::Now);
        let left = Duration::from_secs(20);
        assert_eq!(at(&status("20/s", "1/2"), 10), Writing::After(left));
        assert_eq!(at(&status("20/s", "1/2"), 30), Writing::Now);
        assert_eq!(writing(None, &written, &memory, start), Writing::Now);
    }
}
