//! Events for changes of pods and of the node since the last update. Event reasons are stable,
//! because alerts depend on them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use albacore_api::counted;
use albacore_cluster::{EventDraft, ObjectEvent};
use albacore_placer::RestoreSummary;
use k8s_openapi::api::core::v1::ObjectReference;

use crate::desired::PodAction;
use crate::facts::{NodeFacts, PodFacts};
use crate::limits::{MISSING_TIME, THROTTLED_SHARE};
use crate::locate::NotPlaced;
use crate::placer_stats::{BackOffSummary, SubjectStats};

/// State of one pod that was already reported.
#[derive(Clone, Debug, Default)]
struct PodHistory {
    is_verified: bool,
    /// Detected workers and threads, if they were detected.
    counted: Option<(u16, u16)>,
    stats: SubjectStats,
    /// The verdict of its trial, if its plan was not withdrawn.
    decided: Option<String>,
    missing_since: Option<Instant>,
    /// Reasons of persistent problems that were reported and still hold.
    reported: BTreeSet<&'static str>,
}

/// Records what was reported, so that each change emits one event.
#[derive(Clone, Debug, Default)]
pub(crate) struct EventTracker {
    pods: BTreeMap<String, PodHistory>,
    degraded: BTreeSet<&'static str>,
}

impl EventTracker {
    /// Returns the events of the pods and of `node` for changes in `facts`.
    pub(crate) fn new_events(
        &mut self,
        facts: &NodeFacts,
        node: &ObjectReference,
        now: Instant,
    ) -> Vec<ObjectEvent> {
        let mut events = Vec::new();
        let mut before = std::mem::take(&mut self.pods);
        for pod in &facts.pods {
            let uid = &pod.desired.pod.uid;
            let mut history = before.remove(uid).unwrap_or_default();
            let drafts = history.record(pod, now);
            let regarding = &pod.desired.pod.regarding;
            events.extend(
                drafts
                    .into_iter()
                    .map(|draft| draft.regarding(regarding.clone())),
            );
            self.pods.insert(uid.clone(), history);
        }
        let degraded = &facts.health.degraded;
        let new = degraded
            .iter()
            .filter(|reason| !self.degraded.contains(reason.code));
        events.extend(new.map(|reason| {
            EventDraft::warning(reason.code, "Place", reason.message.clone())
                .regarding(node.clone())
        }));
        self.degraded = degraded.iter().map(|reason| reason.code).collect();
        events
    }
}

impl PodHistory {
    /// Records the facts about a pod; returns events for changes.
    fn record(&mut self, pod: &PodFacts, now: Instant) -> Vec<EventDraft> {
        let mut events = self.increments(&pod.stats);
        self.stats = pod.stats.clone();
        let found = pod.counted_shape();
        if let Some((workers, threads)) = found.filter(|_| found != self.counted) {
            let note = format!(
                "detected {} of {}: placed with these counts",
                counted(workers, "worker"),
                counted(threads, "thread")
            );
            events.push(EventDraft::normal("WorkersCounted", "Observe", note));
            self.counted = found;
        }
        let counts = pod.counts();
        let is_verified = counts.slots > 0 && counts.verified == counts.slots;
        if is_verified && !self.is_verified {
            let note = format!(
                "verified on the planned cpus: {}",
                counted(counts.verified, "thread")
            );
            events.push(EventDraft::normal("PlacementVerified", "Pin", note));
        }
        self.is_verified = is_verified;
        let decided = pod.trial.decided.clone();
        if let Some(note) = decided.clone().filter(|_| decided != self.decided) {
            events.push(EventDraft::normal("TrialDecided", "Observe", note));
        }
        self.decided = decided;
        events.extend(self.new_problems(pod, now));
        events
    }

    /// Events for counters that increased.
    fn increments(&self, stats: &SubjectStats) -> Vec<EventDraft> {
        let mut events = Vec::new();
        let increase =
            |count: fn(&SubjectStats) -> u64| count(stats).saturating_sub(count(&self.stats));
        let foreign = increase(|s| s.foreign);
        let drifts = increase(|s| s.drifts).saturating_sub(foreign);
        if drifts > 0 {
            let cause = stats.cause.unwrap_or_default().name();
            let note = format!("{} found changed: {cause}", counted(drifts, "mask"));
            events.push(EventDraft::warning("PlacementDrifted", "Verify", note));
        }
        let back_offs = increase(|s| s.back_offs);
        let back_off = stats.back_off.as_ref().filter(|_| back_offs > 0);
        if foreign > 0 || back_offs > 0 {
            let note = match back_off {
                None => format!(
                    "{} changed by another process; repaired",
                    counted(foreign, "mask")
                ),
                Some(back_off) => back_off_note(back_off),
            };
            events.push(EventDraft::warning("ForeignPinning", "Verify", note));
        }
        let released = increase(|s| s.released);
        let failed = increase(|s| s.release_errors);
        if released + failed > 0 {
            events.push(restored(released, failed, "enforcement is Observe"));
        }
        let widened = increase(|s| s.widened);
        if widened > 0 {
            let note = format!(
                "{widened} pinned threads were found on their whole cpuset: the kernel widened their \
                 masks without notice"
            );
            events.push(EventDraft::warning("MaskWidened", "Verify", note));
        }
        if stats.is_inherited && !self.stats.is_inherited {
            let note = "InheritedAffinity: the container started with a mask narrower than its \
                        cpuset (a bug of some runtimes)";
            events.push(EventDraft::warning(
                "ForeignPinning",
                "Verify",
                note.to_owned(),
            ));
        }
        events
    }

    /// Events for persistent problems that began.
    fn new_problems(&mut self, pod: &PodFacts, now: Instant) -> Vec<EventDraft> {
        let is_missing = self.is_missing_workers(pod, now);
        let unsupported = match &pod.not_placed {
            Some(NotPlaced::Unsupported(text)) => Some(text.clone()),
            _ => None,
        };
        let missing = is_missing.then(|| pod.reason()).flatten();
        let empty = "the cpuset has no online cpu: no thread can be placed";
        let empty = pod.is_cpuset_empty().then(|| empty.to_owned());
        let throttled = pod.throttling.throttled;
        let throttled = (throttled >= THROTTLED_SHARE).then(|| {
            format!(
                "the cpu quota throttled the container in {:.0} % of the last periods: raise or \
                 remove limits.cpu",
                throttled * 100.0
            )
        });
        let trial = &pod.trial;
        let without_reports = trial.progress.clone().filter(|_| trial.is_missing_reports);
        let refused = match &pod.desired.action {
            PodAction::Refuse { reason } => Some(reason.clone()),
            _ => None,
        };
        let problems: [(&'static str, &'static str, Option<String>); 7] = [
            ("PlacementRefused", "Observe", refused),
            ("WorkersMissing", "Observe", missing),
            ("CpusetEmpty", "Observe", empty),
            ("Throttled", "Observe", throttled),
            ("PlacementWithdrawn", "Restore", trial.withdrawn.clone()),
            ("TrialWithoutFigures", "Observe", without_reports),
            ("Unsupported", "Observe", unsupported),
        ];
        let mut events = Vec::new();
        for (reason, action, note) in problems {
            match note {
                Some(note) if self.reported.insert(reason) => {
                    events.push(EventDraft::warning(reason, action, note));
                }
                Some(_) => {}
                None => {
                    self.reported.remove(reason);
                }
            }
        }
        events
    }

    /// Whether workers have been missing for longer than a respawn takes.
    fn is_missing_workers(&mut self, pod: &PodFacts, now: Instant) -> bool {
        let found = pod.counts().workers;
        let shape = pod.shape().filter(|_| pod.is_placed);
        let is_incomplete = shape.is_some_and(|(workers, _)| found != usize::from(workers));
        if !is_incomplete {
            self.missing_since = None;
            return false;
        }
        let since = *self.missing_since.get_or_insert(now);
        now.duration_since(since) >= MISSING_TIME
    }
}

fn back_off_note(back_off: &BackOffSummary) -> String {
    format!(
        "another process (the kernel does not report which) changed the mask of a thread {} times \
         in {} s; such threads are not pinned until {}. Stop the program that sets masks in this \
         pod or on this node (OMP_PROC_BIND, GOMP_CPU_AFFINITY, KMP_AFFINITY, taskset or another \
         tool), or set spec.placement.policy: None (remove the annotation of a pod without \
         InferenceDeployment). An edit of either or a restart of the pod retries immediately",
        back_off.changes,
        back_off.seconds,
        back_off.retry_at.strftime("%Y-%m-%dT%H:%M:%SZ")
    )
}

/// Event for masks that were given back because the pod is no longer placed.
pub(crate) fn restored_event(
    pod: &ObjectReference,
    masks: &RestoreSummary,
    why: &str,
) -> ObjectEvent {
    restored(masks.count as u64, masks.errors_total as u64, why).regarding(pod.clone())
}

fn restored(count: u64, errors: u64, why: &str) -> EventDraft {
    let masks = counted(count, "mask");
    match errors {
        0 => EventDraft::normal(
            "PlacementRestored",
            "Restore",
            format!("{masks} restored: {why}"),
        ),
        n => EventDraft::warning(
            "PlacementRestored",
            "Restore",
            format!("{masks} restored, {n} failed: {why}"),
        ),
    }
}

#[cfg(test)]
mod tests;
