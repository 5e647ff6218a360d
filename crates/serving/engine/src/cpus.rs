//! How many cpus this process may use, and how many threads of a worker that leaves for one batch.
//!
//! A worker has T threads, but W workers with T threads each may have fewer cpus than W times T: a
//! batch is computed by all of its worker's threads while the neighbors are idle, and by one where
//! all of them are busy. More threads than cpus would only take them from each other.

use std::time::{Duration, Instant};

use albacore_os::{HostRoot, Pid};

use crate::limits::{CPUS_POLL_PERIOD, SPIN_TIME};

/// Threads for one batch while `busy` workers (this one among them) compute on so many cpus.
pub(super) fn threads_for_one(cpus: usize, busy: usize, threads: usize) -> usize {
    (cpus / busy.max(1)).clamp(1, threads.max(1))
}

/// For how long a worker looks for its next batch before it sleeps: only where there are more cpus
/// than the threads of all workers, so that it takes its cpu from nobody, the front among them.
pub(super) fn spin_time(cpus: usize, threads_of_all: usize) -> Duration {
    match cpus {
        usize::MAX => Duration::ZERO,
        cpus if cpus > threads_of_all => SPIN_TIME,
        _ => Duration::ZERO,
    }
}

/// How many cpus this process may use: those of its cgroup, or of its quota of cpu time where that
/// is less. Masks say nothing here: threads are pinned to where they are, not to where the process
/// may be.
#[derive(Debug)]
pub(super) struct Cpus {
    host: HostRoot,
    looked: Option<Instant>,
}

impl Cpus {
    /// Of the machine this runs on.
    pub(super) fn new() -> Self {
        Self {
            host: HostRoot::live(),
            looked: None,
        }
    }

    /// As many as there are now, at most every [`CPUS_POLL_PERIOD`]. What cannot be read does not
    /// bound.
    pub(super) fn look(&mut self) -> Option<usize> {
        let due = |looked: Instant| looked.elapsed() >= CPUS_POLL_PERIOD;
        if !self.looked.is_none_or(due) {
            return None;
        }
        self.looked = Some(Instant::now());
        Some(self.read().unwrap_or(usize::MAX))
    }

    fn read(&self) -> Option<usize> {
        let pid = Pid(i32::try_from(std::process::id()).ok()?);
        let cgroup = albacore_os::find_cgroup(&self.host, pid).ok()?;
        let cpuset = cgroup.read_effective(&self.host).ok();
        let quota = albacore_os::read_cpu_quota(&self.host, &cgroup).ok();
        let whole = |millicpus: u32| millicpus.div_ceil(1000) as usize;
        let quota = quota.and_then(|quota| quota.millicpus).map(whole);
        cpuset
            .map(|cpuset| cpuset.cpus.len())
            .into_iter()
            .chain(quota)
            .min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_gets_the_threads_that_busy_neighbors_leave() {
        let of = |busy| threads_for_one(16, busy, 4);
        assert_eq!([1, 4, 5, 8, 16, 99].map(of), [4, 4, 3, 2, 1, 1]);
        assert_eq!(threads_for_one(0, 0, 0), 1);
        assert_eq!(threads_for_one(usize::MAX, 7, 4), 4, "nothing is known");
    }

    #[test]
    fn workers_spin_only_on_cpus_that_nobody_else_needs() {
        assert_eq!(spin_time(9, 8), SPIN_TIME);
        assert_eq!(spin_time(8, 8), Duration::ZERO, "the front needs one");
        assert_eq!(spin_time(usize::MAX, 1), Duration::ZERO, "nothing is known");
    }

    #[test]
    fn the_cpus_of_this_machine_are_counted_and_not_again_at_once() {
        let mut cpus = Cpus::new();
        let online = std::thread::available_parallelism().unwrap().get();
        let seen = cpus.look().unwrap();
        assert!(
            seen >= 1 && (seen == usize::MAX || seen >= online),
            "{seen}"
        );
        assert_eq!(cpus.look(), None);
    }
}
