//! The trials of this node's pods: which policy each window has, and the samples at its ends.
//!
//! A sample is due at both ends of a window. Its latency is the first report of the pod that comes
//! after that moment (see `latency_reports.rs`); its CPU time is read from the kernel when that
//! report is there.

use std::collections::BTreeMap;
use std::time::Instant;

use albacore_os::{HostRoot, Pid, read_usage};
use albacore_placer::SubjectState;
use albacore_plan::{Enforcement, PlacementMethod};

use crate::desired::{DesiredPod, PodAction};
use crate::latency_reports::LatestLatency;
use crate::limits::REPORT_WAIT_MAX;
use crate::trial::{LatencyHistogram, PodUsage, Sample, TrialRun, TrialSpec, TrialState};

/// The trial of one container under one generation of its deployment; a change of either begins
/// another.
#[derive(Clone, Debug)]
struct PodTrial {
    container: String,
    generation: i64,
    trial: TrialRun,
    /// Since when a sample that is due waits for a latency report.
    waits_since: Option<Instant>,
}

impl PodTrial {
    /// Adds a sample if one is due and its report has come, or gives up on the report; true if
    /// either happened.
    fn advance(
        &mut self,
        latency: Option<&LatencyHistogram>,
        usage: impl FnOnce() -> Option<PodUsage>,
        now: Instant,
    ) -> bool {
        if self.trial.due().is_none_or(|due| due > now) {
            return false;
        }
        let Some(since) = self.waits_since else {
            // A report that came until now may describe a time before the sample was due.
            self.waits_since = Some(now);
            return false;
        };
        match latency {
            Some(latency) => {
                let latency = latency.clone();
                let sample = usage().map(|usage| Sample { latency, usage });
                self.trial.add_sample(sample, now);
            }
            None if now.duration_since(since) < REPORT_WAIT_MAX => return false,
            None => self.trial.report_missing(now),
        }
        self.waits_since = None;
        true
    }
}

/// All trials of the node, by the uid of the pod.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trials {
    trials: BTreeMap<String, PodTrial>,
}

impl Trials {
    /// Removes the placement from the policy of each pod whose trial runs without a plan now.
    /// Begins trials that are asked for, and forgets those that are not any more.
    pub(crate) fn apply(&mut self, desired: &mut [DesiredPod], now: Instant) {
        let is_desired = |uid: &String| desired.iter().any(|desired| desired.pod.uid == *uid);
        self.trials.retain(|uid, _| is_desired(uid));
        for desired in desired {
            let PodAction::Place {
                container,
                policy,
                generation,
                trial: Some(spec),
                ..
            } = &mut desired.action
            else {
                self.trials.remove(&desired.pod.uid);
                continue;
            };
            if policy.enforcement == Enforcement::Observe
                || policy.placement == PlacementMethod::None
            {
                continue;
            }
            let state = self.state(&desired.pod.uid, container, *generation, *spec, now);
            if !state.has_plan() {
                policy.placement = PlacementMethod::None;
            }
        }
    }

    /// The state of a pod's trial, which begins now unless it runs already.
    fn state(
        &mut self,
        uid: &str,
        container: &str,
        generation: i64,
        spec: TrialSpec,
        now: Instant,
    ) -> TrialState {
        let known = self.trials.get(uid);
        let known = known.filter(|t| t.container == container && t.generation == generation);
        if let Some(known) = known {
            return known.trial.state();
        }
        let begun = PodTrial {
            container: container.to_owned(),
            generation,
            trial: TrialRun::new(spec, now),
            waits_since: None,
        };
        let state = begun.trial.state();
        self.trials.insert(uid.to_owned(), begun);
        state
    }

    /// When the next sample is due, of those that do not wait for a report yet.
    pub(crate) fn next(&self) -> Option<Instant> {
        let idle = self.trials.values().filter(|t| t.waits_since.is_none());
        idle.filter_map(|t| t.trial.due()).min()
    }

    /// Whether a sample waits for a report.
    pub(crate) fn is_waiting(&self) -> bool {
        self.trials.values().any(|t| t.waits_since.is_some())
    }

    /// Adds the samples that are due and reported; true if a window ended or began. `latest` holds
    /// what was reported since the last call; `usage` reads a pod's counters from the kernel.
    pub(crate) fn advance(
        &mut self,
        desired: &[DesiredPod],
        latest: &LatestLatency,
        usage: impl Fn(&DesiredPod) -> Option<PodUsage>,
        now: Instant,
    ) -> bool {
        let mut is_changed = false;
        for desired in desired {
            let uid = &desired.pod.uid;
            let Some(trial) = self.trials.get_mut(uid) else {
                continue;
            };
            if !trial.advance(latest.get(uid), || usage(desired), now) {
                continue;
            }
            is_changed = true;
            if let TrialState::Kept(why) = trial.trial.state() {
                tracing::info!(pod = %desired.pod.key, why, "the plan stays");
            }
        }
        is_changed
    }

    /// Why a pod's plan was withdrawn, if its trial did that.
    pub(crate) fn withdrawn(&self, uid: &str) -> Option<String> {
        match self.trials.get(uid)?.trial.state() {
            TrialState::Withdrawn(why) => Some(why),
            _ => None,
        }
    }

    /// How far a pod's trial is, for people; `None` if it has none or it is over.
    pub(crate) fn progress(&self, uid: &str) -> Option<String> {
        self.trials.get(uid)?.trial.progress()
    }

    /// Whether a pod's trial got no latency report when it needed one.
    pub(crate) fn lacks_reports(&self, uid: &str) -> bool {
        let trial = self.trials.get(uid);
        trial.is_some_and(|trial| trial.trial.lacks_reports())
    }
}

/// Sums the kernel's counters over the workers of a pod; `None` if one cannot be read.
pub(crate) fn read_workers(
    host: &HostRoot,
    workers: &[Pid],
    state: Option<&SubjectState>,
) -> Option<PodUsage> {
    if state.is_some_and(|state| state.workers_found == 0) || workers.is_empty() {
        return None;
    }
    let mut sum = PodUsage {
        migrations: Some(0),
        ..PodUsage::default()
    };
    for pid in workers {
        let usage = read_usage(host, *pid).ok()?;
        sum.cpu_micros += usage.running_micros;
        let migrations = sum.migrations.zip(usage.migrations);
        sum.migrations = migrations.map(|(a, b)| a + b);
        sum.processes.push(pid.0);
    }
    sum.processes.sort_unstable();
    Some(sum)
}

#[cfg(test)]
mod tests;
