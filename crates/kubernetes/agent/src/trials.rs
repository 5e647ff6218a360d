//! The trials of this node's pods: which policy each window has, and the readings of its ends.
//!
//! A reading is due at both ends of a window. Its latency is the first report of the pod that comes
//! after that (see `reports.rs`), its cpu time is read from the kernel when that report is there.

use std::collections::BTreeMap;
use std::time::Instant;

use albacore_os::{HostRoot, Pid, read_usage};
use albacore_placer::SubjectState;
use albacore_plan::{Enforcement, Placement};

use crate::limits::REPORT_WAIT_MAX;
use crate::reports::Latest;
use crate::trial::{Doing, Reading, Trial, TrialSpec, Usage};
use crate::wish::{Aim, Wish};

/// A pod's trial, and what it is a trial of: another container or another spec is tried anew.
#[derive(Clone, Debug)]
struct Tried {
    container: String,
    generation: i64,
    trial: Trial,
    /// Since when a reading waits for a report.
    waits_since: Option<Instant>,
}

/// All trials of the node; by uid.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trials {
    tried: BTreeMap<String, Tried>,
}

impl Trials {
    /// Puts into the wishes what each trial does now. Trials of pods that are not wished for any
    /// more are forgotten.
    pub(crate) fn apply(&mut self, wishes: &mut [Wish], now: Instant) {
        let is_wished = |uid: &String| wishes.iter().any(|wish| wish.pod.uid == *uid);
        self.tried.retain(|uid, _| is_wished(uid));
        for wish in wishes {
            let Aim::Place {
                container,
                policy,
                generation,
                trial: Some(spec),
                ..
            } = &mut wish.aim
            else {
                self.tried.remove(&wish.pod.uid);
                continue;
            };
            if policy.enforcement == Enforcement::Observe || policy.placement == Placement::None {
                continue;
            }
            let is_other = |t: &Tried| t.container != *container || t.generation != *generation;
            if self.tried.get(&wish.pod.uid).is_none_or(is_other) {
                let tried = Tried {
                    container: container.clone(),
                    generation: *generation,
                    trial: Trial::new(*spec, now),
                    waits_since: None,
                };
                self.tried.insert(wish.pod.uid.clone(), tried);
            }
            let doing = self.tried.get(&wish.pod.uid).map(|t| t.trial.doing());
            let is_without = matches!(
                doing,
                Some(Doing::Window { has_plan: false } | Doing::Withdrawn(_))
            );
            if is_without {
                policy.placement = Placement::None;
            }
        }
    }

    /// When the next reading is due, of those that do not wait for a report yet.
    pub(crate) fn next(&self) -> Option<Instant> {
        let begins = self.tried.values().filter(|t| t.waits_since.is_none());
        begins.filter_map(|t| t.trial.due()).min()
    }

    /// Whether a reading waits for a report.
    pub(crate) fn is_waiting(&self) -> bool {
        self.tried.values().any(|t| t.waits_since.is_some())
    }

    /// Takes the readings that are due and reported; true if a window ended or began. `latest` is
    /// what was reported since the last call, by uid.
    pub(crate) fn advance(
        &mut self,
        wishes: &[Wish],
        latest: &Latest,
        usage: impl Fn(&Wish) -> Option<Usage>,
        now: Instant,
    ) -> bool {
        let mut is_changed = false;
        for wish in wishes {
            let Some(tried) = self.tried.get_mut(&wish.pod.uid) else {
                continue;
            };
            if tried.trial.due().is_none_or(|due| due > now) {
                continue;
            }
            let Some(since) = tried.waits_since else {
                // What was reported until now may be from before the moment that is to be read.
                tried.waits_since = Some(now);
                continue;
            };
            match latest.get(&wish.pod.uid) {
                Some(latency) => {
                    let reading = usage(wish).map(|usage| Reading {
                        latency: latency.clone(),
                        usage,
                    });
                    tried.trial.take(reading, now);
                }
                None if now.duration_since(since) >= REPORT_WAIT_MAX => tried.trial.miss(now),
                None => continue,
            }
            tried.waits_since = None;
            is_changed = true;
            if let Doing::Kept(why) = tried.trial.doing() {
                tracing::info!(pod = %wish.pod.key, why, "the plan stays");
            }
        }
        is_changed
    }

    /// Why a pod's plan is not in force: it was withdrawn, or this window is without it.
    pub(crate) fn withdrawn(&self, uid: &str) -> Option<String> {
        match self.tried.get(uid)?.trial.doing() {
            Doing::Withdrawn(why) => Some(why),
            _ => None,
        }
    }

    /// How far a pod's trial is.
    pub(crate) fn progress(&self, uid: &str) -> Option<String> {
        self.tried.get(uid)?.trial.progress()
    }

    /// Whether a pod's trial has no figures to go by.
    pub(crate) fn is_without_figures(&self, uid: &str) -> bool {
        let tried = self.tried.get(uid);
        tried.is_some_and(|tried| tried.trial.is_without_figures())
    }
}

/// What a deployment asks for.
pub(crate) fn trial_spec(asked: &albacore_api::Trial) -> TrialSpec {
    TrialSpec {
        window: asked.window.duration(),
        pairs: asked.windows,
    }
}

/// Reads the counters of a pod from the kernel: cpu time and moves of its workers.
pub(crate) fn read(
    host: &HostRoot,
    workers: &[Pid],
    state: Option<&SubjectState>,
) -> Option<Usage> {
    if state.is_some_and(|state| state.workers_found == 0) || workers.is_empty() {
        return None;
    }
    let mut sum = Usage {
        migrations: Some(0),
        ..Usage::default()
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
