//! Readings of a subject for a trial of placements: the kernel's counters of its workers, and the
//! mapping in force.

use albacore_os::{HostRoot, Pid, read_tasks, read_usage};
use albacore_plan::{SubjectPolicy, masks_hash};
use albacore_trial::{Arm, PodUsage};

use crate::limits::TRIAL_THREADS_MAX;
use crate::{SlotRow, SubjectState};

/// Sums the kernel's counters over the workers of a subject; `None` if one cannot be read, or if
/// there are more than [`TRIAL_THREADS_MAX`] threads.
#[must_use]
pub fn read_workers(
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

/// Hash of the cpus of all threads of a subject; `None` until all threads have one, and while
/// `state` belongs to another arm than `policy`, the arm being measured.
#[must_use]
pub fn mapping_hash(policy: &SubjectPolicy, rows: &[SlotRow], state: &SubjectState) -> Option<u32> {
    if Arm::of(&state.policy) != Arm::of(policy) {
        return None;
    }
    let planned = rows
        .iter()
        .map(|row| Some((row.slot, row.planned.as_ref()?)));
    let planned: Vec<_> = planned.collect::<Option<_>>()?;
    masks_hash(0, planned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_with_too_many_threads_is_not_read() {
        let keep = tempfile::tempdir().unwrap();
        let host = HostRoot::recorded(keep.path());
        let make = |threads: usize| {
            for tid in 1..=threads {
                let task = host.proc.join(format!("7/task/{tid}"));
                std::fs::create_dir_all(&task).unwrap();
                std::fs::write(task.join("schedstat"), "5000 9000 1\n").unwrap();
            }
            read_workers(&host, &[Pid(7)], None)
        };
        let few = make(3).unwrap();
        assert_eq!((few.cpu_micros, few.waiting_micros), (15, 27));
        assert_eq!(make(TRIAL_THREADS_MAX + 1), None);
    }
}
