//! Independent check of a plan before it is executed. It does not trust the planner: workers, the
//! threads allowed in each slot and event loops are determined from the observation again, by
//! separate code (`workers`, `front`).

use std::collections::{BTreeMap, BTreeSet};

use albacore_solver::{Mapping, MappingViolation, Problem, Slot, WorkerIndex, check};
use albacore_topology::CpuSet;

use front::FrontPins;

use crate::{
    Linted, Observation, ObservedThread, Pid, Plan, PlanHistory, PlanStep, Process, ProcessId,
    Proposed, StepKind, SubjectPolicy, ThreadId, Tid, parse_thread_name,
};

mod front;
mod workers;

/// Reason why a plan must not be executed: a broken invariant of this program, or an outdated
/// observation.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum LintError {
    /// A mask is empty or not a subset of the cpuset.
    #[error("the mask {mask} planned for thread {} is not inside the cpuset {cpuset}", tid.0)]
    OutsideCpuset {
        tid: Tid,
        mask: CpuSet,
        cpuset: CpuSet,
    },
    /// A step refers to a thread that was not observed.
    #[error("thread {} was not observed with this start time", tid.0)]
    UnknownThread { tid: Tid },
    /// A step pins a thread that belongs neither to a worker nor to an event loop of the front end.
    #[error("process {} is not a worker and must not be pinned", pid.0)]
    NotAWorker { pid: Pid },
    /// A step pins a thread outside of workers that is not an event loop, or exceeds their limit.
    #[error("thread {} is not an event loop of the front end and must not be pinned", tid.0)]
    NotAnEventLoop { tid: Tid },
    /// An event loop shares a cpu with a main thread.
    #[error("the mask {mask} planned for event loop {} contains the cpu of a main thread", tid.0)]
    OnMainThread { tid: Tid, mask: CpuSet },
    /// A worker was omitted although fewer workers are placed than the policy requests.
    #[error("process {} is a worker but missing from the plan", pid.0)]
    MissingWorker { pid: Pid },
    /// A thread is pinned to a slot that contradicts its name, its order or the policy.
    #[error("thread {} cannot fill slot {slot:?}", tid.0)]
    WrongSlot { tid: Tid, slot: Slot },
    /// Two steps write to one thread, or fill one slot.
    #[error("thread {} or its slot {slot:?} appears twice", tid.0)]
    Twice { tid: Tid, slot: Option<Slot> },
    /// The mapping violates rules of its problem.
    #[error("the mapping breaks rules of its problem: {}", first(violations))]
    Mapping { violations: Vec<MappingViolation> },
}

fn first(violations: &[MappingViolation]) -> String {
    violations
        .first()
        .map(ToString::to_string)
        .unwrap_or_default()
}

/// Data against which a plan is checked.
#[derive(Clone, Copy, Debug)]
pub struct LintInput<'a> {
    pub policy: &'a SubjectPolicy,
    pub observation: &'a Observation,
    /// The history from before the plan: additions by the planner are not trusted.
    pub history: &'a PlanHistory,
    /// The solved problem and its mapping, if the plan follows one.
    pub solved: Option<(&'a Problem, &'a Mapping)>,
}

/// Checks a plan and releases it for execution.
///
/// # Errors
/// The first rule that the plan violates. The plan is consumed: observe and plan again.
pub fn lint(plan: Plan<Proposed>, input: &LintInput<'_>) -> Result<Plan<Linted>, LintError> {
    if let Some((problem, mapping)) = input.solved {
        check(problem, mapping).map_err(|violations| LintError::Mapping { violations })?;
    }
    let workers = workers::find(input.observation, input.policy.workers, input.history);
    check_no_worker_missing(&plan, input, &workers)?;
    let mut front = FrontPins::new(input, &workers);
    let mut earlier = EarlierSteps::default();
    for step in &plan.steps {
        let process = observed_process(step, input.observation)?;
        let is_pin = step.kind == StepKind::Pin;
        if step.process.pid.0 <= 1 {
            let pid = step.process.pid;
            return Err(LintError::NotAWorker { pid });
        }
        if is_pin && !workers.contains(&step.process) {
            front.check(step, process)?;
        }
        check_mask(step, &input.observation.cpuset)?;
        earlier.add(step)?;
        if let (true, Some(slot)) = (is_pin, step.slot) {
            check_slot(step, slot, process, input.policy)?;
        }
    }
    Ok(plan.into_stage())
}

/// The process that contains the thread of a step.
fn observed_process<'a>(
    step: &PlanStep,
    observation: &'a Observation,
) -> Result<&'a Process, LintError> {
    let has_thread = |p: &Process| p.threads.iter().any(|t| t.id == step.thread);
    let mut processes = observation.processes.iter();
    processes
        .find(|p| p.id == step.process && has_thread(p))
        .ok_or(LintError::UnknownThread {
            tid: step.thread.tid,
        })
}

/// Checks that every worker has an index, unless all indices are taken or the names of its threads
/// claim an invalid one.
fn check_no_worker_missing(
    plan: &Plan<Proposed>,
    input: &LintInput<'_>,
    workers: &BTreeSet<ProcessId>,
) -> Result<(), LintError> {
    let placed: BTreeSet<ProcessId> = plan.history().workers().map(|(_, id)| id).collect();
    if plan.cpuset.is_empty() || placed.len() >= usize::from(input.policy.workers) {
        return Ok(());
    }
    let is_left_out =
        |p: &&Process| workers.contains(&p.id) && !placed.contains(&p.id) && !has_slot_name(p);
    match input.observation.processes.iter().find(is_left_out) {
        Some(process) => Err(LintError::MissingWorker {
            pid: process.id.pid,
        }),
        None => Ok(()),
    }
}

/// A pin must be a subset of the cpuset; a restored mask must equal the cpuset.
fn check_mask(step: &PlanStep, cpuset: &CpuSet) -> Result<(), LintError> {
    let is_valid = match step.kind {
        StepKind::Pin => step.mask.is_subset(cpuset),
        StepKind::Restore => step.mask == *cpuset,
    };
    if is_valid && !step.mask.is_empty() {
        return Ok(());
    }
    Err(LintError::OutsideCpuset {
        tid: step.thread.tid,
        mask: step.mask.clone(),
        cpuset: cpuset.clone(),
    })
}

/// A slot must be within W x T. If threads of the process are named after slots of that worker, the
/// name must match; otherwise rank 0 is the main thread of the process, and no other.
fn check_slot(
    step: &PlanStep,
    slot: Slot,
    process: &Process,
    policy: &SubjectPolicy,
) -> Result<(), LintError> {
    let is_within = |slot: Slot| slot.worker.0 < policy.workers && slot.rank.0 < policy.threads;
    let name = |thread: &ObservedThread| parse_thread_name(&thread.comm);
    let mut own_names = process.threads.iter().filter_map(name);
    let is_right = if own_names.any(|name| name.worker == slot.worker && is_within(name)) {
        let mut threads = process.threads.iter();
        threads.any(|thread| thread.id == step.thread && name(thread) == Some(slot))
    } else {
        let is_first_thread = step.thread.tid == process.id.pid.first_thread();
        is_first_thread == (slot.rank.0 == 0)
    };
    if is_within(slot) && is_right {
        return Ok(());
    }
    let tid = step.thread.tid;
    Err(LintError::WrongSlot { tid, slot })
}

fn has_slot_name(process: &Process) -> bool {
    let mut threads = process.threads.iter();
    threads.any(|thread| parse_thread_name(&thread.comm).is_some())
}

/// Threads and slots of earlier steps of the plan.
#[derive(Default)]
struct EarlierSteps {
    threads: BTreeSet<ThreadId>,
    slots: BTreeSet<Slot>,
    /// The process of each worker index.
    processes: BTreeMap<WorkerIndex, ProcessId>,
}

impl EarlierSteps {
    /// Rejects a thread, slot or worker index that an earlier step used differently.
    fn add(&mut self, step: &PlanStep) -> Result<(), LintError> {
        let is_new_thread = self.threads.insert(step.thread);
        let is_new_slot = step.slot.is_none_or(|slot| {
            let process = *self.processes.entry(slot.worker).or_insert(step.process);
            self.slots.insert(slot) && process == step.process
        });
        if is_new_thread && is_new_slot {
            return Ok(());
        }
        Err(LintError::Twice {
            tid: step.thread.tid,
            slot: step.slot,
        })
    }
}

#[cfg(test)]
mod tests;
