//! The trials of this node's pods: which policy each window has, and the samples at its ends.
//!
//! A sample is due at both ends of a window. Its latency is the first report of the pod that comes
//! after that moment (see `latency_reports.rs`); what the kernel counts is read when that report is
//! there. Servers of a user's own report no latency: theirs is what the kernel counts alone.

use std::collections::BTreeMap;
use std::time::Instant;

use albacore_os::{HostRoot, Pid, read_tasks, read_usage};
use albacore_placer::{SlotRow, SubjectState};
use albacore_plan::{Enforcement, PlacementMethod, SubjectPolicy, masks_hash};
use albacore_trial::{
    Arm, Figure, LatencyHistogram, Outcome, PodUsage, Sample, TrialRun, TrialSpec, TrialState,
};

use crate::desired::{DesiredPod, PodAction};
use crate::facts::TrialFacts;
use crate::latency_reports::LatestLatency;
use crate::limits::{LOAD_REPORT_PERIOD, REPORT_PERIOD, REPORT_WAIT_MAX, TRIAL_THREADS_MAX};

/// What the kernel and the placer say of a pod at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    pub(crate) usage: PodUsage,
    /// Hash of the mapping in force.
    pub(crate) mapping: Option<u32>,
}

/// The trial of one container under one generation of its deployment; a change of either begins
/// another.
#[derive(Clone, Debug)]
struct PodTrial {
    container: String,
    generation: i64,
    run: TrialRun,
    /// Since when a sample that is due waits for a latency report.
    waits_since: Option<Instant>,
}

impl PodTrial {
    fn is_over(&self) -> bool {
        matches!(self.run.state(), TrialState::Over(_))
    }

    /// Adds a sample if one is due and its report has come, or gives up on the report; true if the
    /// trial shows that.
    fn advance(
        &mut self,
        latency: Option<&LatencyHistogram>,
        read: impl FnOnce() -> Option<Reading>,
        now: Instant,
    ) -> bool {
        if self.run.due().is_none_or(|due| due > now) {
            return false;
        }
        if self.run.figure() == Figure::RunDelay {
            return self.add(LatencyHistogram::new(), read(), now);
        }
        let Some(since) = self.waits_since else {
            // A report that came until now may describe a time before the sample was due.
            self.waits_since = Some(now);
            return false;
        };
        let is_changed = match latency {
            Some(latency) => self.add(latency.clone(), read(), now),
            None if now.duration_since(since) < REPORT_WAIT_MAX => return false,
            None => self.run.report_missing(now),
        };
        self.waits_since = None;
        is_changed
    }

    fn add(&mut self, latency: LatencyHistogram, reading: Option<Reading>, now: Instant) -> bool {
        let mapping = reading.as_ref().and_then(|reading| reading.mapping);
        let usage = reading.map(|reading| reading.usage);
        let sample = usage.map(|usage| Sample { latency, usage });
        self.run.add_sample(sample, mapping, now)
    }
}

/// All trials of the node, by the uid of the pod.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trials {
    trials: BTreeMap<String, PodTrial>,
}

impl Trials {
    /// Gives the policy of each pod on trial the arm that has its window now, or the one that its
    /// trial decided for. Begins trials that are asked for, and forgets those that are not any
    /// more.
    pub(crate) fn apply(&mut self, desired: &mut [DesiredPod], now: Instant) {
        let is_desired = |uid: &String| desired.iter().any(|desired| desired.pod.uid == *uid);
        self.trials.retain(|uid, _| is_desired(uid));
        for desired in desired {
            let uid = &desired.pod.uid;
            let PodAction::Place {
                container,
                policy,
                generation,
                trial: Some(spec),
                ..
            } = &mut desired.action
            else {
                self.trials.remove(uid);
                continue;
            };
            if policy.enforcement == Enforcement::Observe
                || policy.placement == PlacementMethod::None
            {
                // All windows would be the same; it begins when masks are written again.
                self.trials.remove(uid);
                continue;
            }
            let known = self.trials.get(uid);
            if known.is_none_or(|t| t.container != *container || t.generation != *generation) {
                let begun = PodTrial {
                    container: container.clone(),
                    generation: *generation,
                    run: begin(spec.clone(), policy, uid, now),
                    waits_since: None,
                };
                self.trials.insert(uid.clone(), begun);
            }
            if let Some(trial) = self.trials.get(uid) {
                trial.run.state().arm().apply(policy);
            }
        }
    }

    /// When the next sample is due, of those that do not wait for a report yet.
    pub(crate) fn next(&self) -> Option<Instant> {
        let idle = self.trials.values().filter(|t| t.waits_since.is_none());
        idle.filter_map(|t| t.run.due()).min()
    }

    /// Whether a sample of a window waits for a report. One of the load has time.
    pub(crate) fn is_waiting(&self) -> bool {
        let mut trials = self.trials.values();
        trials.any(|t| t.waits_since.is_some() && !t.is_over())
    }

    /// Adds the samples that are due and reported; true if a window ended or began. `latest` holds
    /// what was reported since the last call; `read` reads a pod's counters.
    pub(crate) fn advance(
        &mut self,
        desired: &[DesiredPod],
        latest: &LatestLatency,
        read: impl Fn(&DesiredPod) -> Option<Reading>,
        now: Instant,
    ) -> bool {
        let mut is_changed = false;
        for desired in desired {
            let uid = &desired.pod.uid;
            let Some(trial) = self.trials.get_mut(uid) else {
                continue;
            };
            if !trial.advance(latest.get(uid), || read(desired), now) {
                continue;
            }
            is_changed = true;
            if let TrialState::Over(verdict) = trial.run.state() {
                tracing::info!(pod = %desired.pod.key, verdict = verdict.text, "a trial is over");
            }
        }
        is_changed
    }

    /// Whether latency reports of a pod are used.
    pub(crate) fn takes_reports(&self, uid: &str) -> bool {
        let trial = self.trials.get(uid);
        trial.is_some_and(|t| t.run.figure() == Figure::Latency && t.run.due().is_some())
    }

    /// What is reported of a pod's trial.
    pub(crate) fn facts(&self, uid: &str) -> TrialFacts {
        let Some(trial) = self.trials.get(uid) else {
            return TrialFacts::default();
        };
        let period = match trial.is_over() {
            true => LOAD_REPORT_PERIOD,
            false => REPORT_PERIOD,
        };
        let mut facts = TrialFacts {
            progress: trial.run.progress(),
            lacks_reports: trial.run.lacks_reports(),
            report_period: self.takes_reports(uid).then_some(period),
            ..TrialFacts::default()
        };
        if let TrialState::Over(verdict) = trial.run.state() {
            match verdict.outcome {
                Outcome::Withdrawn => facts.withdrawn = Some(verdict.text),
                Outcome::Kept | Outcome::Changed => facts.decided = Some(verdict.text),
            }
        }
        facts
    }
}

/// Pods of one deployment have their arms in different orders.
fn begin(spec: TrialSpec, policy: &SubjectPolicy, uid: &str, now: Instant) -> TrialRun {
    // FNV-1a
    let seed = uid.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    TrialRun::new(spec, policy, seed, now)
}

/// Sums the kernel's counters over the workers of a pod; `None` if one cannot be read, or if there
/// are more than [`TRIAL_THREADS_MAX`] threads.
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
    let mut threads = 0;
    for pid in workers {
        threads += read_tasks(host, *pid).ok()?.len();
        if threads > TRIAL_THREADS_MAX {
            return None;
        }
        let usage = read_usage(host, *pid).ok()?;
        sum.cpu_micros += usage.running_micros;
        sum.waiting_micros += usage.waiting_micros;
        let migrations = sum.migrations.zip(usage.migrations);
        sum.migrations = migrations.map(|(a, b)| a + b);
        sum.processes.push(pid.0);
    }
    sum.processes.sort_unstable();
    Some(sum)
}

/// A hash of the cpus of all threads of a pod; `None` before all have one, and while what was read
/// last is of another arm than the one that has the window.
pub(crate) fn mapping_hash(
    desired: &DesiredPod,
    rows: &[SlotRow],
    state: Option<&SubjectState>,
) -> Option<u32> {
    let PodAction::Place { policy, .. } = &desired.action else {
        return None;
    };
    if Arm::of(&state?.policy) != Arm::of(policy) {
        return None;
    }
    let planned = rows
        .iter()
        .map(|row| Some((row.slot, row.planned.as_ref()?)));
    let planned: Vec<_> = planned.collect::<Option<_>>()?;
    masks_hash(0, planned)
}

#[cfg(test)]
mod tests;
