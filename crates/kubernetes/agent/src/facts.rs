//! Snapshot of the state of the node and its pods: input of status, events, metrics and parameters.

use std::collections::BTreeMap;
use std::time::Duration;

use albacore_api::{CountSource, Isolation, PLACE_ANNOTATION, counted};
use albacore_placer::{SlotRow, SlotState, SubjectState};
use albacore_plan::{Enforcement, PlacementWarning, ServerShape, masks_hash};
use albacore_topology::Topology;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::desired::{CountSources, DesiredPod, PodAction};
use crate::locate::NotPlaced;
use crate::placer_stats::{SpawnHistogram, SubjectStats};

/// CPU time that a container's cgroups grant it.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Throttling {
    /// CPUs that its CFS quota allows; `None` without a quota.
    pub(crate) quota: Option<f64>,
    /// Share of the last interval in which the quota throttled all its threads, 0 to 1.
    pub(crate) throttled: f64,
    /// Whether other containers may use its CPUs.
    pub(crate) isolation: Isolation,
}

/// State of one pod.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct PodFacts {
    pub(crate) desired: DesiredPod,
    /// Whether it is a subject of the placer.
    pub(crate) is_placed: bool,
    /// Why it is not placed, although it should be.
    pub(crate) not_placed: Option<NotPlaced>,
    pub(crate) stats: SubjectStats,
    pub(crate) state: Option<SubjectState>,
    pub(crate) rows: Vec<SlotRow>,
    pub(crate) throttling: Throttling,
    pub(crate) trial: TrialFacts,
}

/// State of one pod's trial; the default is that of a pod without a trial.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct TrialFacts {
    /// Progress so far.
    pub(crate) progress: Option<String>,
    /// Why the trial withdrew the plan, if it did.
    pub(crate) withdrawn: Option<String>,
    /// Any other decision of the trial.
    pub(crate) decided: Option<String>,
    /// Whether a latency report that the trial needed is missing.
    pub(crate) is_missing_reports: bool,
    /// Period in which the server has to report its latency for the trial.
    pub(crate) report_period: Option<Duration>,
}

/// A reason: a stable code for programs and a sentence for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Reason {
    pub(crate) code: &'static str,
    pub(crate) message: String,
}

impl Reason {
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }
}

/// How the kernel treats masks when cpusets change.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct MaskRestorationState {
    /// Whether it restores them after a cpuset grows again: `True`, `False` or `Unknown`.
    pub(crate) status: &'static str,
    pub(crate) reason: Reason,
}

/// The agent's ability to work on this node.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Health {
    /// Why masks are not written on this node; `None` if they are.
    pub(crate) not_enforcing: Option<Reason>,
    /// Reasons why the agent is degraded.
    pub(crate) degraded: Vec<Reason>,
    /// `None` if it was not probed.
    pub(crate) mask_restoration_state: Option<MaskRestorationState>,
}

/// State of the node and its pods.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct NodeFacts {
    /// The pods that opted in, ordered by name.
    pub(crate) pods: Vec<PodFacts>,
    /// Hash of the machine's topology.
    pub(crate) topology: u64,
    /// The machine for which plans are made; `None` until the placer has read it.
    pub(crate) machine: Option<Topology>,
    pub(crate) spawns: SpawnHistogram,
    /// Number of verified masks that were later found changed.
    pub(crate) drifts: u64,
    pub(crate) health: Health,
    /// Time at which all masks were last read back.
    pub(crate) verified_at: Option<Time>,
}

/// Counts of slots of a pod.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct SlotCounts {
    pub(crate) workers: usize,
    /// Workers whose threads are all as planned.
    pub(crate) workers_verified: usize,
    /// Threads with a planned CPU.
    pub(crate) planned: usize,
    /// Threads read back as planned.
    pub(crate) verified: usize,
    /// Threads that exist.
    pub(crate) alive: usize,
    /// Threads that are left alone because another process keeps changing their masks.
    pub(crate) backed_off: usize,
    /// All slots: workers x threads.
    pub(crate) slots: usize,
}

impl PodFacts {
    /// Workers and threads per worker, if the pod is to be placed and both counts are known.
    pub(crate) fn shape(&self) -> Option<(u16, u16)> {
        match &self.desired.action {
            PodAction::Place {
                counts:
                    CountSources::Annotation {
                        are_known: false, ..
                    },
                ..
            } => None,
            PodAction::Place { policy, .. } => Some((policy.workers, policy.threads)),
            PodAction::Keep { .. } | PodAction::Release { .. } | PodAction::Refuse { .. } => None,
        }
    }

    /// The shape, if at least one of its counts was detected.
    pub(crate) fn counted_shape(&self) -> Option<(u16, u16)> {
        let PodAction::Place {
            counts: CountSources::Annotation {
                workers, threads, ..
            },
            ..
        } = &self.desired.action
        else {
            return None;
        };
        let is_counted = [workers, threads].contains(&&CountSource::ProcessTree);
        self.shape().filter(|_| is_counted)
    }

    /// Whether its deployment and the rules of the node permit writing its masks.
    pub(crate) fn is_enforced(&self) -> bool {
        matches!(&self.desired.action, PodAction::Place { policy, .. } if policy.enforcement == Enforcement::Enforce)
    }

    pub(crate) fn counts(&self) -> SlotCounts {
        let mut counts = SlotCounts {
            slots: self.rows.len(),
            ..SlotCounts::default()
        };
        #[derive(Default)]
        struct Worker {
            is_running: bool,
            unverified: usize,
        }
        let mut workers: BTreeMap<u16, Worker> = BTreeMap::new();
        for row in &self.rows {
            let is_verified = row.state == SlotState::Verified;
            counts.planned += usize::from(row.planned.is_some());
            counts.verified += usize::from(is_verified);
            counts.alive += usize::from(row.tid.is_some());
            counts.backed_off += usize::from(row.state == SlotState::BackedOff);
            let worker = workers.entry(row.slot.worker.0).or_default();
            worker.is_running |= row.pid.is_some();
            worker.unverified += usize::from(!is_verified);
        }
        counts.workers = workers.values().filter(|w| w.is_running).count();
        counts.workers_verified = workers.values().filter(|w| w.unverified == 0).count();
        counts
    }

    /// Number of front-end event loops that are placed, and how many of them are verified.
    pub(crate) fn front(&self) -> Option<(usize, usize)> {
        let front = &self.state.as_ref().filter(|_| self.is_placed)?.front;
        let verified = front.iter().filter(|row| row.is_verified()).count();
        (!front.is_empty()).then_some((front.len(), verified))
    }

    /// Hash of the plan and the machine; the same in every program for equal plans on equal
    /// machines.
    pub(crate) fn plan_hash(&self, topology: u64) -> Option<u32> {
        plan_hash(&self.rows, topology)
    }

    /// Why the pod or a part of it is not placed; `None` if it is placed completely.
    pub(crate) fn reason(&self) -> Option<String> {
        match &self.desired.action {
            PodAction::Release { reason } | PodAction::Refuse { reason } => {
                return Some(reason.clone());
            }
            PodAction::Keep { reason } => return Some(format!("placement unchanged: {reason}")),
            PodAction::Place { .. } => {}
        }
        if let Some(withdrawn) = &self.trial.withdrawn {
            return Some(withdrawn.clone());
        }
        if !self.is_placed {
            let text = self.not_placed.as_ref().map(|a| a.text().to_owned());
            return Some(text.unwrap_or_else(|| "searching for its processes".to_owned()));
        }
        let Some((workers, threads)) = self.shape() else {
            return Some(self.counting_text());
        };
        let counts = self.counts();
        let mut parts: Vec<String> = self.trial.progress.iter().cloned().collect();
        if self.is_cpuset_empty() {
            parts.push("its cpuset has no online cpu".to_owned());
        }
        if counts.workers != usize::from(workers) {
            parts.push(format!("found {} of {workers} workers", counts.workers));
        } else if counts.alive < counts.slots {
            let all = counts.slots;
            parts.push(format!(
                "found {} of {all} threads ({threads} in each worker)",
                counts.alive
            ));
        }
        if counts.backed_off > 0 {
            parts.push(self.back_off_text(counts.backed_off));
        }
        if self.state.as_ref().is_some_and(|state| state.is_refused) {
            parts.push("the kernel forbids writing its masks".to_owned());
        }
        if counts.verified < counts.alive && self.is_enforced() {
            parts.extend(self.stats.failure.clone());
        }
        if let Some(state) = &self.state {
            parts.extend(state.warnings.iter().filter_map(warning_text));
        }
        (!parts.is_empty()).then(|| parts.join("; "))
    }

    /// Progress of detecting the worker and thread counts.
    fn counting_text(&self) -> String {
        let shape = self.state.as_ref().and_then(|state| state.shape);
        match shape {
            Some(ServerShape { workers, threads }) => format!(
                "counting its workers and threads, {workers} x {threads} so far: they are placed \
                 when the counts have not changed for 10 s"
            ),
            None => format!(
                "no workers found yet, and a single process may fork later: if it serves requests \
                 itself, write {PLACE_ANNOTATION}: '{{\"workers\": 1}}'"
            ),
        }
    }

    /// Why threads are left alone, when they are placed again, and how to resolve it.
    fn back_off_text(&self, threads: usize) -> String {
        let threads = counted(threads, "thread");
        let Some(back_off) = &self.stats.back_off else {
            return format!("{threads}: masks changed by another process");
        };
        format!(
            "{threads}: mask changed {} times in {} s by another process; next attempt {}; stop \
             the program that sets it (OMP_PROC_BIND, taskset) or edit the deployment",
            back_off.changes,
            back_off.seconds,
            back_off.retry_at.strftime("%H:%M:%SZ")
        )
    }

    /// Threads per worker that the CPU quota lets run at once, if fewer than requested.
    pub(crate) fn quota_threads(&self) -> Option<u16> {
        let state = self.state.as_ref()?;
        (state.policy.threads < state.threads_requested).then_some(state.policy.threads)
    }

    /// Threads of workers that are hot, once measured.
    pub(crate) fn hot_threads(&self) -> Option<usize> {
        self.state.as_ref().filter(|_| self.is_placed)?.hot_threads
    }

    /// Whether the container has no CPU to run on.
    pub(crate) fn is_cpuset_empty(&self) -> bool {
        let warnings = self.state.iter().flat_map(|state| &state.warnings);
        if warnings
            .into_iter()
            .any(|warning| *warning == PlacementWarning::EmptyCpuset)
        {
            return true;
        }
        let is_empty = |cpuset: &albacore_topology::CpuSet| cpuset.is_empty();
        self.stats.cpuset.as_ref().is_some_and(is_empty)
            || matches!(self.not_placed, Some(NotPlaced::EmptyCpuset(_)))
    }
}

/// Sentence for a warning that is not otherwise visible in the status or the table.
fn warning_text(warning: &PlacementWarning) -> Option<String> {
    match warning {
        PlacementWarning::DuplicateWorkerName { worker, pid } => Some(format!(
            "process {} also has the name of worker {} and is not placed",
            pid.0, worker.0
        )),
        PlacementWarning::DistancesIgnored => Some(
            "DistancesIgnored: spec.placement.distances is not used, because another deployment on \
             this node sets other distances and all are planned together"
                .to_owned(),
        ),
        PlacementWarning::SlowMains { count } => Some(format!(
            "SlowMains: {count} main threads are on slow cores: the cpuset has fewer fast cores \
             than workers, or they are in use"
        )),
        PlacementWarning::PoolSizeUnsafe { worker } => Some(format!(
            "PoolSizeUnsafe: the main thread of worker {} keeps its worker's cpus until its thread \
             pool exists",
            worker.0
        )),
        _ => None,
    }
}

/// See [`PodFacts::plan_hash`]; `None` if nothing is planned.
pub(crate) fn plan_hash(rows: &[SlotRow], topology: u64) -> Option<u32> {
    let planned = rows
        .iter()
        .filter_map(|row| Some((row.slot, row.planned.as_ref()?)));
    masks_hash(topology, planned)
}
