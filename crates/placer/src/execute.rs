//! Writes masks and reads them back. Never stops at an error: every step has its own outcome.

use albacore_os::{MaskError, OsError, Pid, Tid, read_mask, read_task_stat, write_mask};
use albacore_plan::{Linted, Plan, Step, StepKind};
use albacore_topology::{CpuId, CpuSet};

use crate::process::Reader;

/// How one step went.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The mask was read back as planned.
    Verified,
    /// The mask was written, and is another one all the same.
    Differs {
        /// What was read back.
        actual: CpuSet,
    },
    /// The thread has ended, before or during the step: normal.
    Gone,
    /// The cpuset has changed since it was read: plan again.
    Stale,
    /// The kernel forbids it.
    NotPermitted(MaskError),
    /// Something else.
    Failed(String),
}

/// A step and how it went.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) step: Step,
    pub(crate) outcome: Outcome,
}

/// Executes a plan; `calls` counts the masks written. Where the cpuset is not `limited`, a mask is given back by asking
/// for every cpu there is: the kernel trims that to the cpuset and lets it grow with the cpuset again, as if nobody
/// had ever asked for less.
pub(crate) fn execute(
    reader: &Reader,
    plan: &Plan<Linted>,
    is_limited: bool,
    calls: &mut u64,
) -> Vec<Done> {
    let every: CpuSet = (0..=CpuSet::MAX_ID).map(CpuId).collect();
    let run = |step: &Step| {
        let request = match step.kind {
            StepKind::GiveBack if !is_limited => &every,
            StepKind::GiveBack | StepKind::Pin => &step.mask,
        };
        let outcome = execute_step(reader, step, request, calls);
        Done {
            step: step.clone(),
            outcome,
        }
    };
    plan.steps.iter().map(run).collect()
}

fn execute_step(reader: &Reader, step: &Step, request: &CpuSet, calls: &mut u64) -> Outcome {
    let tid = Tid(step.thread.tid.0);
    // Right before and after: the kernel knows tids only, and tids are used again.
    match is_same(reader, step) {
        Ok(true) => {}
        Ok(false) => return Outcome::Gone,
        Err(e) => return Outcome::Failed(e.to_string()),
    }
    *calls += 1;
    match write_mask(tid, request) {
        Ok(()) => {}
        Err(MaskError::Gone { .. }) => return Outcome::Gone,
        Err(MaskError::OutsideCpuset { .. }) => return Outcome::Stale,
        Err(e @ MaskError::NotPermitted { .. }) => return Outcome::NotPermitted(e),
        Err(e @ MaskError::Other { .. }) => return Outcome::Failed(e.to_string()),
    }
    match read_mask(&reader.host, tid) {
        Ok(actual) if actual == step.mask => {}
        Ok(actual) => return Outcome::Differs { actual },
        Err(MaskError::Gone { .. }) => return Outcome::Gone,
        Err(e) => return Outcome::Failed(e.to_string()),
    }
    match is_same(reader, step) {
        Ok(true) => Outcome::Verified,
        Ok(false) => Outcome::Gone,
        Err(e) => Outcome::Failed(e.to_string()),
    }
}

/// True if the tid still means the thread of the step.
fn is_same(reader: &Reader, step: &Step) -> Result<bool, OsError> {
    match read_task_stat(
        &reader.host,
        Pid(step.process.pid.0),
        Tid(step.thread.tid.0),
    ) {
        Ok(stat) => Ok(stat.start_ticks == step.thread.start_ticks && !stat.is_dead()),
        Err(e) if e.is_gone() => Ok(false),
        Err(e) => Err(e),
    }
}
