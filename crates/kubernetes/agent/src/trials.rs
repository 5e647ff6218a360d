//! The trials of this node's pods: the policy of each window, and the samples at its ends.
//!
//! Latency reports are read by `latency_reports.rs`; the trial logic is in `albacore-trial`.

use std::collections::BTreeMap;
use std::time::Instant;

use albacore_plan::{Enforcement, PlacementMethod, SubjectPolicy};
use albacore_trial::{Outcome, SubjectSnapshot, SubjectTrial, TrialRun, TrialSpec, TrialState};

use crate::desired::{DesiredPod, PodAction};
use crate::facts::TrialFacts;
use crate::latency_reports::LatestLatency;

/// The trial of one container under one generation of its deployment; a change of either starts a
/// new trial.
#[derive(Clone, Debug)]
struct PodTrial {
    container: String,
    generation: i64,
    trial: SubjectTrial,
}

/// All trials of the node, by pod uid.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trials {
    trials: BTreeMap<String, PodTrial>,
}

impl Trials {
    /// Sets the policy of each pod on trial to the arm of the current window, or to the arm that
    /// its trial decided for. Starts requested trials and drops trials that are no longer
    /// requested.
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
                // All windows would be equal; the trial starts when masks are written again.
                self.trials.remove(uid);
                continue;
            }
            let known = self.trials.get(uid);
            if known.is_none_or(|t| t.container != *container || t.generation != *generation) {
                let begun = PodTrial {
                    container: container.clone(),
                    generation: *generation,
                    trial: SubjectTrial::new(begin(spec.clone(), policy, uid, now)),
                };
                self.trials.insert(uid.clone(), begun);
            }
            if let Some(trial) = self.trials.get(uid) {
                trial.trial.run().state().arm().apply(policy);
            }
        }
    }

    /// Time of the next sample, except for those that already wait for a report.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.trials.values().filter_map(|t| t.trial.next()).min()
    }

    /// Whether a sample of a window waits for a report. Samples of the load are not urgent.
    pub(crate) fn is_waiting(&self) -> bool {
        self.trials.values().any(|t| t.trial.is_waiting())
    }

    /// Adds the samples that are due and reported; returns true if a window ended or began.
    /// `latest` contains the reports since the last call; `read` reads a pod's counters.
    pub(crate) fn advance(
        &mut self,
        desired: &[DesiredPod],
        latest: &LatestLatency,
        read: impl Fn(&DesiredPod) -> Option<SubjectSnapshot>,
        now: Instant,
    ) -> bool {
        let mut is_changed = false;
        for desired in desired {
            let uid = &desired.pod.uid;
            let Some(trial) = self.trials.get_mut(uid) else {
                continue;
            };
            let trial = &mut trial.trial;
            if !trial.advance(latest.get(uid), || read(desired), now) {
                continue;
            }
            is_changed = true;
            if let TrialState::Over(verdict) = trial.run().state() {
                tracing::info!(pod = %desired.pod.key, verdict = verdict.text, "a trial ended");
            }
        }
        is_changed
    }

    /// Whether latency reports of a pod are used.
    pub(crate) fn uses_latency_reports(&self, uid: &str) -> bool {
        let trial = self.trials.get(uid);
        trial.is_some_and(|t| t.trial.uses_latency_reports())
    }

    /// The state of a pod's trial for status and events.
    pub(crate) fn facts(&self, uid: &str) -> TrialFacts {
        let Some(trial) = self.trials.get(uid) else {
            return TrialFacts::default();
        };
        let trial = &trial.trial;
        let mut facts = TrialFacts {
            progress: trial.run().progress(),
            is_missing_reports: trial.run().is_missing_reports(),
            report_period: trial.report_period(),
            ..TrialFacts::default()
        };
        if let TrialState::Over(verdict) = trial.run().state() {
            match verdict.outcome {
                Outcome::Withdrawn => facts.withdrawn = Some(verdict.text),
                Outcome::Kept | Outcome::Changed => facts.decided = Some(verdict.text),
            }
        }
        facts
    }
}

/// The seed depends on the uid, so that pods of one deployment run their arms in different orders.
fn begin(spec: TrialSpec, policy: &SubjectPolicy, uid: &str, now: Instant) -> TrialRun {
    // FNV-1a
    let seed = uid.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    TrialRun::new(spec, policy, seed, now)
}

#[cfg(test)]
mod tests;
