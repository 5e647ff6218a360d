//! The number of cpus that this process may use, and the number of threads per batch.
//!
//! W workers with T threads each may have fewer than W times T cpus. A batch is computed by all
//! threads of its worker while the other workers are idle, and by one thread if all of them are
//! busy: more threads than cpus would only preempt each other.

use std::time::{Duration, Instant};

use albacore_os::{HostRoot, Pid};

use crate::limits::{CPUS_POLL_PERIOD, SPIN_TIME};

/// Number of threads for one batch while `busy` workers (including this one) compute on `cpus`
/// cpus.
pub(super) fn threads_for_one(cpus: usize, busy: usize, threads: usize) -> usize {
    (cpus / busy.max(1)).clamp(1, threads.max(1))
}

/// How long a worker spins for its next batch before it sleeps. Spinning must not take a cpu from
/// another thread: it requires more cpus than threads of all workers and event loops, because
/// clients, sidecars and the kernel need one, too. While at most one request is pending, more cpus
/// than threads of workers are sufficient, because its client and its event loop are waiting.
pub(super) fn spin_time(
    cpus: usize,
    worker_threads: usize,
    event_loops: usize,
    pending: usize,
) -> Duration {
    let needed = match pending {
        0 | 1 => worker_threads,
        _ => worker_threads + event_loops,
    };
    match cpus {
        usize::MAX => Duration::ZERO,
        cpus if cpus > needed => SPIN_TIME,
        _ => Duration::ZERO,
    }
}

/// Number of cpus that this process may use, at most `max`; `None` if no limit can be read.
#[must_use]
pub fn usable_cpus(max: Option<usize>) -> Option<usize> {
    Cpus::new(max).read()
}

/// Reads the number of cpus that this process may use: those of its cgroup, its cpu quota or a
/// given limit, whichever is least. Affinity masks are ignored: threads are pinned to single cpus
/// of the cpuset.
#[derive(Debug)]
pub(super) struct Cpus {
    host: HostRoot,
    max: Option<usize>,
    polled_at: Option<Instant>,
}

impl Cpus {
    pub(super) fn new(max: Option<usize>) -> Self {
        Self {
            host: HostRoot::live(),
            max,
            polled_at: None,
        }
    }

    /// The current number, at most once per [`CPUS_POLL_PERIOD`]. A limit that cannot be read is
    /// ignored.
    pub(super) fn poll(&mut self) -> Option<usize> {
        let due = |polled_at: Instant| polled_at.elapsed() >= CPUS_POLL_PERIOD;
        if !self.polled_at.is_none_or(due) {
            return None;
        }
        self.polled_at = Some(Instant::now());
        Some(self.read().unwrap_or(usize::MAX))
    }

    fn read(&self) -> Option<usize> {
        self.read_cgroup().into_iter().chain(self.max).min()
    }

    fn read_cgroup(&self) -> Option<usize> {
        let pid = Pid(i32::try_from(std::process::id()).ok()?);
        let cgroup = albacore_os::find_cgroup(&self.host, pid).ok()?;
        let cpuset = cgroup.read_effective_cpuset(&self.host).ok();
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
        assert_eq!(spin_time(9, 6, 2, 9), SPIN_TIME);
        assert_eq!(spin_time(8, 6, 2, 2), Duration::ZERO, "clients need one");
        assert_eq!(spin_time(8, 6, 2, 1), SPIN_TIME, "clients wait");
        assert_eq!(spin_time(6, 6, 2, 1), Duration::ZERO, "loops need one");
        let unknown = spin_time(usize::MAX, 1, 1, 1);
        assert_eq!(unknown, Duration::ZERO, "nothing is known");
    }

    #[test]
    fn the_cpus_of_this_machine_are_counted_and_not_again_at_once() {
        let mut cpus = Cpus::new(None);
        let online = std::thread::available_parallelism().unwrap().get();
        let found = cpus.poll().unwrap();
        assert!(
            found >= 1 && (found == usize::MAX || found >= online),
            "{found}"
        );
        assert_eq!(cpus.poll(), None);
        assert_eq!(
            (usable_cpus(Some(1)), Cpus::new(Some(1)).poll()),
            (Some(1), Some(1))
        );
    }
}
