//! Writes affinity masks and reads them back. Never stops at an error: every step has its own
//! outcome.

use albacore_os::{CgroupSubtree, MaskError, OsError, read_mask, read_task_stat, write_mask};
use albacore_plan::{Linted, Plan, PlanStep, StepKind};
use albacore_topology::{CpuId, CpuSet};
use albacore_values::sentence;

use crate::process::ProcessReader;

/// Outcome of one step.
#[derive(Debug)]
pub(crate) enum StepOutcome {
    /// The mask was read back as planned.
    Verified,
    /// The mask was written, but a different one was read back.
    Differs {
        /// The mask read back.
        actual: CpuSet,
    },
    /// The thread exited before or during the step, which is normal.
    Gone,
    /// The thread must not be modified: it left the cgroup of its container, or is unmanaged.
    Outside,
    /// The cpuset changed after it was read: plan again.
    Stale,
    /// Permission denied.
    NotPermitted(MaskError),
    /// The error with its causes.
    Failed(String),
}

/// Restrictions on the writes of a subject.
#[derive(Debug)]
pub(crate) struct Guard<'a> {
    /// Threads outside of this subtree are not modified.
    pub(crate) subtree: Option<&'a CgroupSubtree>,
    /// Masks are restored to a configured limit instead of to the whole cpuset.
    pub(crate) is_limited: bool,
}

/// A step and its outcome.
#[derive(Debug)]
pub(crate) struct ExecutedStep {
    pub(crate) step: PlanStep,
    pub(crate) outcome: StepOutcome,
}

/// Executes a plan; `calls` counts the masks written. If the cpuset is not limited, a mask is
/// restored by requesting all possible cpus: the kernel intersects that with the cpuset and extends
/// the mask when the cpuset grows, as if no narrower mask had ever been set.
pub(crate) fn execute(
    reader: &ProcessReader,
    plan: &Plan<Linted>,
    guard: &Guard<'_>,
    calls: &mut u64,
) -> Vec<ExecutedStep> {
    let every: CpuSet = (0..=CpuSet::MAX_ID).map(CpuId).collect();
    let run = |step: &PlanStep| {
        let request = match step.kind {
            StepKind::Restore if !guard.is_limited => &every,
            StepKind::Restore | StepKind::Pin => &step.mask,
        };
        let outcome = execute_step(reader, step, request, guard, calls);
        ExecutedStep {
            step: step.clone(),
            outcome,
        }
    };
    plan.steps.iter().map(run).collect()
}

fn execute_step(
    reader: &ProcessReader,
    step: &PlanStep,
    request: &CpuSet,
    guard: &Guard<'_>,
    calls: &mut u64,
) -> StepOutcome {
    let tid = step.thread.tid;
    // Checked right before and after the write, because the kernel identifies threads by tid only,
    // and tids are reused.
    match is_same(reader, step) {
        Ok(true) => {}
        Ok(false) => return StepOutcome::Gone,
        Err(e) => return failed(&e),
    }
    match may_write(reader, step, guard) {
        Ok(true) => {}
        Ok(false) => return StepOutcome::Outside,
        Err(e) if e.is_gone() => return StepOutcome::Gone,
        Err(e) => return failed(&e),
    }
    *calls += 1;
    match write_mask(tid, request) {
        Ok(()) => {}
        Err(MaskError::Gone { .. }) => return StepOutcome::Gone,
        Err(MaskError::OutsideCpuset { .. }) => return StepOutcome::Stale,
        Err(e @ MaskError::NotPermitted { .. }) => return StepOutcome::NotPermitted(e),
        Err(e) => return failed(&e),
    }
    match read_mask(&reader.host, tid) {
        Ok(actual) if actual == step.mask => {}
        Ok(actual) => return StepOutcome::Differs { actual },
        Err(MaskError::Gone { .. }) => return StepOutcome::Gone,
        Err(e) => return failed(&e),
    }
    match is_same(reader, step) {
        Ok(true) => StepOutcome::Verified,
        Ok(false) => StepOutcome::Gone,
        Err(e) => failed(&e),
    }
}

fn failed(error: &dyn std::error::Error) -> StepOutcome {
    StepOutcome::Failed(sentence(error))
}

/// True if the thread may be modified: checked again before every write. The init process and
/// kernel threads must never be modified.
fn may_write(reader: &ProcessReader, step: &PlanStep, guard: &Guard<'_>) -> Result<bool, OsError> {
    let (pid, tid) = (step.process.pid, step.thread.tid);
    if pid.0 <= 1 || tid.0 <= 1 {
        return Ok(false);
    }
    match guard.subtree {
        Some(subtree) => subtree.contains(&reader.host, pid, tid),
        None => Ok(true),
    }
}

/// True if the tid still refers to the thread of the step.
fn is_same(reader: &ProcessReader, step: &PlanStep) -> Result<bool, OsError> {
    match read_task_stat(&reader.host, step.process.pid, step.thread.tid) {
        Ok(stat) => {
            Ok(stat.start_ticks == step.thread.start_ticks && !stat.is_dead() && !stat.is_kernel)
        }
        Err(e) if e.is_gone() => Ok(false),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use albacore_os::{HostRoot, Pid, Tid};
    use albacore_plan::{MaskDriftCause, ProcessId, ThreadId};

    use super::*;

    #[test]
    fn a_failed_step_holds_the_error_of_the_kernel() {
        let root = tempfile::tempdir().unwrap();
        let host = HostRoot::recorded(root.path());
        // To read a folder as a file fails with EISDIR, also for root.
        std::fs::create_dir_all(host.proc.join("7/task/8/stat")).unwrap();
        let reader = ProcessReader::new(host).unwrap();
        let step = PlanStep {
            kind: StepKind::Pin,
            thread: ThreadId {
                start_ticks: 1,
                tid: Tid(8),
            },
            process: ProcessId {
                start_ticks: 1,
                pid: Pid(7),
            },
            slot: None,
            mask: CpuSet::new(),
            cause: MaskDriftCause::NewThread,
        };
        let guard = Guard {
            subtree: None,
            is_limited: false,
        };
        let mut calls = 0;
        let outcome = execute_step(&reader, &step, &step.mask, &guard, &mut calls);
        let holds = |reason: &str| reason.contains("/8/stat: ") && reason.contains("os error 21");
        assert!(
            matches!(&outcome, StepOutcome::Failed(reason) if holds(reason)),
            "{outcome:?}"
        );
        assert_eq!(calls, 0, "nothing was written");
    }
}
