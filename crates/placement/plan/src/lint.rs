//! The last check before anything is written: looks at a finished plan with no trust in how it was
//! made.

use std::collections::BTreeSet;

use albacore_mapping::{Mapping, Problem, Slot, Violation, check};
use albacore_topology::CpuSet;

use crate::{Linted, Observation, Pid, Plan, Proposed, Role, StepKind, Tid, find_roles};

/// Why a plan must not be executed. Each is a broken invariant of this program or an observation
/// that grew old.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum LintError {
    /// A mask is empty or reaches outside the cpuset.
    #[error("the mask {mask} planned for thread {} is not inside the cpuset {cpuset}", tid.0)]
    OutsideCpuset {
        tid: Tid,
        mask: CpuSet,
        cpuset: CpuSet,
    },
    /// A step names a thread that was not observed.
    #[error("thread {} was not observed with this start time", tid.0)]
    UnknownThread { tid: Tid },
    /// A step pins something that is not a worker.
    #[error("process {} is not a worker and must not be pinned", pid.0)]
    NotAWorker { pid: Pid },
    /// Two steps write one thread, or fill one slot.
    #[error("thread {} or its slot {slot:?} appears twice", tid.0)]
    Twice { tid: Tid, slot: Option<Slot> },
    /// The mapping does not answer the problem.
    #[error("the mapping breaks rules of its problem: {}", first(violations))]
    Mapping { violations: Vec<Violation> },
}

fn first(violations: &[Violation]) -> String {
    violations
        .first()
        .map(ToString::to_string)
        .unwrap_or_default()
}

/// Passes a plan for execution.
///
/// # Errors
/// The first rule that the plan breaks; the plan is gone then, and the world has to be observed
/// again.
pub fn lint(
    plan: Plan<Proposed>,
    observation: &Observation,
    solved: Option<(&Problem, &Mapping)>,
) -> Result<Plan<Linted>, LintError> {
    if let Some((problem, mapping)) = solved {
        check(problem, mapping).map_err(|violations| LintError::Mapping { violations })?;
    }
    let roles = find_roles(observation, plan.asked, plan.ledger());
    let mut threads = BTreeSet::new();
    let mut slots = BTreeSet::new();
    for step in &plan.steps {
        let tid = step.thread.tid;
        let process = observation
            .processes
            .iter()
            .find(|p| p.id == step.process && p.threads.iter().any(|t| t.id == step.thread))
            .ok_or(LintError::UnknownThread { tid })?;
        let is_init = step.process.pid.0 <= 1;
        if is_init || step.kind == StepKind::Pin && roles.of(process) != Role::Worker {
            return Err(LintError::NotAWorker {
                pid: process.id.pid,
            });
        }
        let cpuset = &observation.cpuset;
        let is_inside = match step.kind {
            StepKind::Pin => !step.mask.is_empty() && step.mask.is_subset(cpuset),
            StepKind::GiveBack => !step.mask.is_empty() && step.mask == *cpuset,
        };
        if !is_inside {
            let (mask, cpuset) = (step.mask.clone(), cpuset.clone());
            return Err(LintError::OutsideCpuset { tid, mask, cpuset });
        }
        if !threads.insert(step.thread) || step.slot.is_some_and(|slot| !slots.insert(slot)) {
            return Err(LintError::Twice {
                tid,
                slot: step.slot,
            });
        }
    }
    Ok(plan.into_stage())
}
