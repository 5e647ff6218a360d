//! A plan: a mapping applied to live threads, as ordered steps. Planning cannot fail; anomalies are
//! reported as [`PlacementWarning`].

use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;

use albacore_solver::{Mapping, Problem, Slot, WorkerIndex};
use albacore_topology::CpuSet;

use crate::drift::cause_of;
use crate::front::{find_front, front_cpus, has_inherited_front_mask};
use crate::plan_history::{Environment, Verified};
use crate::ranks::{index_workers, rank_threads};
use crate::server_shape::server_shape;
use crate::targets::TargetBuilder;
pub use crate::targets::{Target, ThreadRole};
use crate::{
    BackOff, Enforcement, MaskDrift, MaskDriftCause, Micros, Observation, ObservedThread, Pid,
    PlacementMethod, PlanHistory, Process, ProcessId, Role, Roles, ServerShape, SubjectPolicy,
    ThreadId, find_roles,
};

/// Stage of a plan returned by [`plan`], which must not be executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Proposed {}

/// Stage of a plan that passed [`crate::lint`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Linted {}

/// Purpose of a step.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum StepKind {
    /// Pins a thread of a worker or an event loop.
    Pin,
    /// Restores the mask of a thread to the whole cpuset.
    Restore,
}

/// One planned change of an affinity mask.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlanStep {
    pub kind: StepKind,
    /// The thread; its identity is checked again right before and after the write.
    pub thread: ThreadId,
    pub process: ProcessId,
    /// Its slot, if any.
    pub slot: Option<Slot>,
    /// The new mask.
    pub mask: CpuSet,
    /// Why the current mask differs.
    pub cause: MaskDriftCause,
}

/// A condition due to which placement deviates from the policy, or that may slow the server down.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum PlacementWarning {
    /// The number of workers differs from the requested one.
    WorkerCountMismatch {
        /// Number of workers found.
        found: usize,
        requested: u16,
    },
    /// The thread names of two processes claim the same worker; the older process is used.
    DuplicateWorkerName {
        worker: WorkerIndex,
        /// The process that is ignored.
        pid: Pid,
    },
    /// A worker currently has fewer compute threads than requested.
    MissingThreads {
        worker: WorkerIndex,
        /// Number of threads found.
        found: usize,
        requested: u16,
    },
    /// A worker has more than T threads; the extra ones get all cpus of their worker.
    ExtraThreads { worker: WorkerIndex, count: usize },
    /// The main thread is not pinned yet, because the worker might otherwise create too small a
    /// thread pool.
    PoolSizeUnsafe { worker: WorkerIndex },
    /// The mask of a thread is not repaired for a while, because another program changed it too
    /// often.
    BackedOff {
        thread: ThreadId,
        /// Its slot, if any.
        slot: Option<Slot>,
        /// Number of changes, and when the planned mask is written again.
        back_off: BackOff,
    },
    /// The cpuset is empty, so nothing can be placed.
    EmptyCpuset,
    /// The root process has a narrower mask than its cpuset, which this program did not set: the
    /// container runtime, or the process that started it, is pinned, and masks are inherited.
    /// Workers are placed nevertheless.
    InheritedAffinity { pid: Pid, mask: CpuSet },
    /// The CPU quota of the cgroup is lower than the number of threads requested: fewer threads are
    /// placed, and the remaining ones share their cpus.
    LimitedByQuota {
        /// The quota in millicpus.
        millicpus: u32,
        /// Number of threads per worker that are placed.
        threads: u16,
        requested: u16,
    },
    /// The policy's distances are ignored, because another subject on this machine has different
    /// ones and all subjects are planned together.
    DistancesIgnored,
    /// Some main threads are planned on cores slower than the fastest of the cpuset.
    SlowMains { count: usize },
    /// The container was recently throttled by its CPU quota.
    Throttled,
    /// The container contains processes that were not started by its root process (`kubectl exec`);
    /// they are not placed and may run on any of its cpus.
    ForeignProcesses { count: usize },
}

/// Steps to execute, and findings of the observation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan<Stage> {
    /// Sequence number of the plan of a subject.
    pub generation: u64,
    /// Time of the observation.
    pub at: Micros,
    /// The cpuset for which it was made.
    pub cpuset: CpuSet,
    /// The target of each placed thread.
    pub targets: BTreeMap<ThreadId, Target>,
    /// Changes of masks in order: pins of main threads first.
    pub steps: Vec<PlanStep>,
    /// Masks that differ from the planned ones.
    pub drifts: Vec<MaskDrift>,
    /// Sorted, without duplicates.
    pub warnings: Vec<PlacementWarning>,
    /// Number of workers and threads found in the process tree, independent of the policy.
    pub shape: Option<ServerShape>,
    pub(crate) environment: Environment,
    pub(crate) history: PlanHistory,
    stage: PhantomData<Stage>,
}

impl<Stage> Plan<Stage> {
    /// State for the next plan.
    pub fn history(&self) -> &PlanHistory {
        &self.history
    }

    /// Consumes the plan and returns the state for the next one.
    pub fn into_history(self) -> PlanHistory {
        self.history
    }

    pub(crate) fn into_stage<Next>(self) -> Plan<Next> {
        let Self {
            generation,
            at,
            cpuset,
            targets,
            steps,
            drifts,
            warnings,
            shape,
            environment,
            history,
            stage: _,
        } = self;
        Plan {
            generation,
            at,
            cpuset,
            targets,
            steps,
            drifts,
            warnings,
            shape,
            environment,
            history,
            stage: PhantomData,
        }
    }
}

impl Plan<Linted> {
    /// Records that a step was executed and its mask read back as planned.
    pub fn confirm(&mut self, step: &PlanStep) {
        match step.kind {
            StepKind::Pin => {
                self.history.restored.remove(&step.thread);
                self.history.record_repaired(step.thread);
                let mask = step.mask.clone();
                let environment = self.environment.clone();
                let verified = Verified {
                    process: step.process,
                    mask,
                    environment,
                    is_ours: true,
                };
                self.history.verified.insert(step.thread, verified);
            }
            StepKind::Restore => {
                self.history.verified.remove(&step.thread);
                self.history.restored.insert(step.thread, step.process);
            }
        }
    }

    /// Records that a step was executed but another mask was read back: another program changed it
    /// in between. Returns a warning if a back-off starts.
    pub fn record_overwritten(&mut self, step: &PlanStep) -> Option<PlacementWarning> {
        if step.kind == StepKind::Restore {
            return None;
        }
        let back_off = self.history.record_change(step.thread, self.at)?;
        Some(PlacementWarning::BackedOff {
            thread: step.thread,
            slot: step.slot,
            back_off,
        })
    }
}

/// The optimization problem for a policy and an observation; `None` if there is nothing to solve:
/// the kernel places the threads, or the cpuset has no cpu of the machine.
pub fn problem(
    policy: &SubjectPolicy,
    observation: &Observation,
    current: Option<&Mapping>,
) -> Option<Problem> {
    if policy.placement == PlacementMethod::None {
        return None;
    }
    Some(Problem {
        workers: policy.workers,
        threads: policy.threads,
        mode: policy.mode,
        topology: observation.machine.restrict(&observation.cpuset).ok()?,
        distances: policy.distances.apply_to(observation.machine.distances()),
        current: current.cloned(),
    })
}

/// Applies a mapping to the live threads. Without a mapping (the kernel places the threads, or
/// placement ends), every mask that this program set is restored.
pub fn plan(
    policy: &SubjectPolicy,
    observation: &Observation,
    mapping: Option<&Mapping>,
    history: &PlanHistory,
) -> Plan<Proposed> {
    let roles = find_roles(observation, policy.workers, history);
    plan_with_roles(policy, observation, mapping, history, &roles)
}

/// As [`plan`], with roles already known.
pub(crate) fn plan_with_roles(
    policy: &SubjectPolicy,
    observation: &Observation,
    mapping: Option<&Mapping>,
    history: &PlanHistory,
    roles: &Roles,
) -> Plan<Proposed> {
    let mut draft = PlanBuilder::new(policy, observation, history);
    if observation.cpuset.is_empty() {
        draft.plan.warnings.push(PlacementWarning::EmptyCpuset);
        return draft.finish();
    }
    draft.plan.history.arbiter = roles.arbiter;
    draft
        .plan
        .history
        .command_pattern
        .clone_from(&roles.command_pattern);
    draft.plan.shape = server_shape(observation, roles, policy.threads);
    let workers: Vec<&Process> = observation
        .processes
        .iter()
        .filter(|p| roles.of(p) == Role::Worker)
        .collect();
    if workers.len() != usize::from(policy.workers) {
        draft
            .plan
            .warnings
            .push(PlacementWarning::WorkerCountMismatch {
                found: workers.len(),
                requested: policy.workers,
            });
    }
    draft.place(workers, mapping);
    draft.place_front(roles, mapping);
    draft.warn_of_inherited_mask();
    draft.restore_masks(roles);
    draft.finish()
}

/// A plan under construction.
struct PlanBuilder<'a> {
    policy: &'a SubjectPolicy,
    observation: &'a Observation,
    before: &'a PlanHistory,
    plan: Plan<Proposed>,
}

impl<'a> PlanBuilder<'a> {
    fn new(
        policy: &'a SubjectPolicy,
        observation: &'a Observation,
        before: &'a PlanHistory,
    ) -> Self {
        let mut history = before.clone();
        history.generation += 1;
        history.forget_exited(observation);
        history.forget_old_changes(observation.at);
        let environment = Environment::of(observation);
        history.record_environment(&environment, observation.at);
        Self {
            policy,
            observation,
            before,
            plan: Plan {
                generation: history.generation,
                at: observation.at,
                cpuset: observation.cpuset.clone(),
                targets: BTreeMap::new(),
                steps: Vec::new(),
                drifts: Vec::new(),
                warnings: Vec::new(),
                shape: None,
                environment,
                history,
                stage: PhantomData,
            },
        }
    }

    /// Assigns slots to the threads of all workers; with a mapping also targets, and steps for
    /// masks that differ.
    fn place(&mut self, workers: Vec<&'a Process>, mapping: Option<&Mapping>) {
        let indexed = index_workers(workers, self.policy, self.before, &mut self.plan.warnings);
        self.plan.history.workers = indexed.workers.iter().map(|(&w, p)| (w, p.id)).collect();
        let builder = TargetBuilder {
            policy: self.policy,
            server_kind: self.observation.server_kind,
            mapping,
            cpuset: &self.observation.cpuset,
        };
        let mut slots = BTreeMap::new();
        for (&worker, process) in &indexed.workers {
            let ranked = rank_threads(worker, process, self.policy.threads, self.before);
            slots.extend(ranked.slots.iter().map(|(&slot, &thread)| (slot, thread)));
            let targets = builder.at(worker, process, ranked, &mut self.plan.warnings);
            let drifted = self.compare(process, &targets);
            self.repair(drifted);
            self.plan.targets.extend(targets);
        }
        self.plan.history.slots = slots;
    }

    /// Adds targets for the event loops of the front end, and steps for masks that differ.
    fn place_front(&mut self, roles: &Roles, mapping: Option<&Mapping>) {
        let Some(mapping) = mapping else { return };
        let cpuset = &self.observation.cpuset;
        let free = front_cpus(self.policy, mapping, cpuset);
        for front in find_front(self.observation, roles) {
            let targets = front.targets(&free, cpuset);
            self.plan.history.front.extend(targets.keys());
            let drifted = self.compare(front.process, &targets);
            self.repair(drifted);
            self.plan.targets.extend(targets);
        }
    }

    /// Compares the masks of a process with its targets and records drifts; returns their index
    /// range in `drifts`.
    fn compare(
        &mut self,
        process: &Process,
        targets: &BTreeMap<ThreadId, Target>,
    ) -> std::ops::Range<usize> {
        let first = self.plan.drifts.len();
        for thread in &process.threads {
            let Some(target) = targets.get(&thread.id) else {
                continue;
            };
            if self.is_backed_off(thread.id) && thread.mask != target.mask {
                continue;
            }
            if thread.mask == target.mask {
                let before = self.plan.history.verified.get(&thread.id);
                let is_narrow = target.mask != self.plan.environment.cpuset;
                let adopts = is_narrow && self.policy.enforcement == Enforcement::Enforce;
                let verified = Verified {
                    process: process.id,
                    mask: target.mask.clone(),
                    environment: self.plan.environment.clone(),
                    is_ours: adopts || before.is_some_and(|verified| verified.is_ours),
                };
                self.plan.history.restored.remove(&thread.id);
                self.plan.history.verified.insert(thread.id, verified);
                self.plan.history.record_repaired(thread.id);
                continue;
            }
            let cause = cause_of(
                thread,
                &self.plan.environment,
                self.observation.at,
                &self.plan.history,
            );
            self.plan.drifts.push(MaskDrift {
                thread: thread.id,
                process: process.id,
                slot: target.role.slot(),
                planned: target.mask.clone(),
                actual: thread.mask.clone(),
                cause,
            });
        }
        first..self.plan.drifts.len()
    }

    /// Adds steps for drifts, except for threads whose masks another program changed too often.
    fn repair(&mut self, drifted: std::ops::Range<usize>) {
        for drift in &self.plan.drifts[drifted] {
            let (thread, slot) = (drift.thread, drift.slot);
            let is_change = drift.cause == MaskDriftCause::Foreign
                && self.policy.enforcement == Enforcement::Enforce
                && !self.plan.history.is_unrepaired(thread);
            let at = self.observation.at;
            if is_change && let Some(back_off) = self.plan.history.record_change(thread, at) {
                self.plan.warnings.push(PlacementWarning::BackedOff {
                    thread,
                    slot,
                    back_off,
                });
                continue;
            }
            self.plan.steps.push(PlanStep {
                kind: StepKind::Pin,
                thread,
                process: drift.process,
                slot,
                mask: drift.planned.clone(),
                cause: drift.cause,
            });
        }
    }

    fn is_backed_off(&self, thread: ThreadId) -> bool {
        self.plan
            .history
            .back_off(thread, self.observation.at)
            .is_some()
    }

    /// Warns if the root process was started with a narrow mask. If the root process is itself a
    /// worker, the mask is ours once it is placed.
    fn warn_of_inherited_mask(&mut self) {
        let Some(root) = self.observation.processes.first() else {
            return;
        };
        let cpuset = &self.observation.cpuset;
        let Some(main) = root.main() else { return };
        let is_narrow = main.mask != *cpuset && main.mask.is_subset(cpuset);
        if is_narrow && !main.mask.is_empty() && !self.plan.history.has_pinned(root.id) {
            self.plan
                .warnings
                .push(PlacementWarning::InheritedAffinity {
                    pid: root.id.pid,
                    mask: main.mask.clone(),
                });
        }
    }

    /// Adds steps that restore masks: of threads that no longer have a target, and of threads and
    /// child processes that inherited a pin.
    fn restore_masks(&mut self, roles: &Roles) {
        let mut touched: BTreeSet<Pid> = BTreeSet::new();
        for process in &self.observation.processes {
            let is_helper = roles.of(process) == Role::Helper && touched.contains(&process.parent);
            if is_helper
                || self.before.has_pinned(process.id)
                || self.plan.history.has_pinned(process.id)
            {
                touched.insert(process.id.pid);
            }
            let histories = [self.before, &self.plan.history];
            let front_masks: Vec<CpuSet> = histories
                .iter()
                .flat_map(|history| history.front_masks(process.id).cloned())
                .collect();
            for thread in &process.threads {
                if self.plan.targets.contains_key(&thread.id) || self.is_backed_off(thread.id) {
                    continue;
                }
                let has_inherited_front_mask =
                    has_inherited_front_mask(process.id, thread, &front_masks);
                if has_inherited_front_mask {
                    self.plan.history.front.insert(thread.id);
                }
                let inherits = has_inherited_front_mask || touched.contains(&process.id.pid);
                if let Some(cause) = self.restore_cause(thread, inherits) {
                    self.plan.steps.push(PlanStep {
                        kind: StepKind::Restore,
                        thread: thread.id,
                        process: process.id,
                        slot: None,
                        mask: self.observation.cpuset.clone(),
                        cause,
                    });
                }
            }
        }
    }

    /// The cause to restore the mask of a thread without a target, if it must be restored.
    fn restore_cause(&self, thread: &ObservedThread, inherits: bool) -> Option<MaskDriftCause> {
        let cpuset = &self.observation.cpuset;
        if let Some(verified) = self.plan.history.verified.get(&thread.id) {
            // A kernel that remembers requested masks would re-apply ours later, so it is
            // overwritten even if it is currently not visible. A mask that is neither ours nor the
            // cpuset was set by another program afterwards and is kept.
            let is_ours = [&verified.mask, cpuset, &verified.mask.intersection(cpuset)]
                .contains(&&thread.mask)
                || thread.mask.is_empty();
            return (verified.is_ours && is_ours).then_some(MaskDriftCause::Policy);
        }
        let is_narrow = thread.mask != *cpuset && thread.mask.is_subset(cpuset);
        let was_restored = self.plan.history.restored.contains_key(&thread.id);
        (inherits && is_narrow && !was_restored).then_some(MaskDriftCause::Inherited)
    }

    fn finish(self) -> Plan<Proposed> {
        let mut plan = self.plan;
        // Main threads first, because they are on the critical path of a request.
        plan.steps.sort_by_key(|step| {
            let rank = step.slot.map(|slot| slot.rank);
            (rank.is_none(), rank)
        });
        plan.warnings.sort();
        plan.warnings.dedup();
        plan
    }
}

#[cfg(test)]
mod tests;
