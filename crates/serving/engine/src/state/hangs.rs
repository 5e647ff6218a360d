//! Detects hung workers: those whose batch, command or start takes far longer than expected.
//!
//! **Problem.** A worker that is stopped, loops, or waits forever has not exited, so the kernel
//! reports nothing. Its batch must run on another worker, and its process must be dead before its
//! memory is reused, because it may continue at any time. Elapsed time alone cannot distinguish it
//! from a worker whose cpu is used by other threads.
//!
//! **Approach.** Each batch gets a timeout when it is dispatched: a multiple of the usual time of
//! such batches, doubled each time the batch exceeds it, so that a batch that is merely slow
//! finishes eventually. After half of the timeout the worker is a suspect, and the scheduler times
//! of its threads are sampled at each check. Time in which one of its threads waited for a cpu, or
//! in the kernel for a page, is excused: a hung worker has no such waits, because a looping thread
//! runs, and a stopped or blocked thread is not runnable. Time in which the supervisor itself was
//! delayed is excused, too: the whole machine was stalled. A worker that exceeds its timeout is
//! killed. It is then handled like any lost worker: the batch is replayed, and a batch that hangs
//! repeatedly is to blame.
//!
//! **Bounds.** A stopped worker is detected after its timeout and three checks. A worker that loops
//! with a fraction s of a cpu is detected after half its timeout plus half its timeout divided by
//! s. A worker that gets no cpu at all for [`HANG_STARVED_MAX`] is judged by elapsed time: its
//! batch may get a better cpu elsewhere.
//!
//! **Limits.** Until the costs of a queue are known the timeout is long. Steal time of a hypervisor
//! counts as used. If the kernel does not account waiting times, elapsed time alone counts.

use std::sync::Arc;
use std::time::Duration;

use albacore_batching::{Nanos, QueueIndex};
use albacore_os::ThreadTimes;

use super::{Outbox, State, WorkerSlot};
use crate::limits::{
    HANG_FACTOR, HANG_STARVED_MAX, HANG_TIMEOUT_DEFAULT, HANG_TIMEOUT_MIN, INSTALL_DEADLINE,
    STARTUP_DEADLINE,
};

/// Measures the time of a worker's batch, command or start against a timeout.
#[derive(Debug)]
pub(super) struct HangTimer {
    since: Nanos,
    timeout: Nanos,
    /// Time since then that is excused.
    excused: Nanos,
    /// The last sample of its threads; `None` while the worker is not a suspect.
    last_sample: Option<ThreadSample>,
}

#[derive(Debug)]
struct ThreadSample {
    at: Nanos,
    /// When a thread was last observed to have run.
    ran: Nanos,
    /// Total delay of the supervisor since then.
    stalled: Nanos,
    threads: Vec<ThreadTimes>,
}

/// A worker that has used more than half of its timeout.
#[derive(Debug)]
pub(in super::super) struct Suspect {
    pub(in super::super) worker: usize,
    /// When its batch, command or start began.
    since: Nanos,
}

/// Times of a worker that exceeded its timeout.
#[derive(Debug, PartialEq, Eq)]
pub(in super::super) struct HangReport {
    /// Time that counts as used.
    pub(in super::super) used: Duration,
    /// Excused time.
    pub(in super::super) excused: Duration,
}

impl HangTimer {
    pub(super) fn new(since: Nanos, timeout: Duration) -> Self {
        Self {
            since,
            timeout: timeout.into(),
            excused: Nanos(0),
            last_sample: None,
        }
    }

    fn used(&self, now: Nanos) -> Nanos {
        now.saturating_sub(self.since).saturating_sub(self.excused)
    }

    fn is_suspect(&self, now: Nanos) -> bool {
        self.last_sample.is_some() || self.used(now).0 > self.timeout.0 / 2
    }

    fn is_expired(&self, now: Nanos) -> bool {
        self.used(now) > self.timeout
    }

    /// Excuses a delay of the supervisor by `stalled`.
    fn excuse_stall(&mut self, stalled: Nanos) {
        let time = match &mut self.last_sample {
            Some(sample) => &mut sample.stalled,
            None => &mut self.excused,
        };
        *time = time.saturating_add(stalled);
    }

    /// Accounts for a sample of the threads; `None` if they cannot be read.
    fn add_sample(&mut self, threads: Option<Vec<ThreadTimes>>, at: Nanos) {
        let before = self.last_sample.take();
        let stalled = before.as_ref().map_or(Nanos(0), |before| before.stalled);
        let Some(threads) = threads else {
            self.excused = self.excused.saturating_add(stalled);
            return;
        };
        let mut ran = at;
        if before.is_none() {
            // Regardless of the delay of the first sample, half of the timeout is left after it.
            let late = self.used(at).0.saturating_sub(self.timeout.0 / 2);
            self.excused = self.excused.saturating_add(Nanos(late));
        }
        if let Some(before) = before {
            let change = ThreadActivity::between(&before, &threads, at);
            if !change.has_run {
                ran = before.ran.saturating_add(stalled);
            }
            self.excused = self
                .excused
                .saturating_add(change.waited.max(stalled))
                .saturating_sub(change.reported_late);
            if at.saturating_sub(ran) > Nanos::from(HANG_STARVED_MAX) {
                self.excused = Nanos(0);
            }
        }
        self.last_sample = Some(ThreadSample {
            at,
            ran,
            stalled: Nanos(0),
            threads,
        });
    }
}

/// Activity of the threads of a worker between two samples.
#[derive(Debug, PartialEq, Eq)]
struct ThreadActivity {
    has_run: bool,
    /// Longest wait of a thread for a cpu: any other thread may be waiting for that one.
    waited: Nanos,
    /// Excess of a thread's run time over the elapsed time, because the kernel reported it late.
    reported_late: Nanos,
}

impl ThreadActivity {
    fn between(before: &ThreadSample, threads: &[ThreadTimes], at: Nanos) -> Self {
        let time = at.saturating_sub(before.at);
        let mut change = Self {
            has_run: false,
            waited: Nanos(0),
            reported_late: Nanos(0),
        };
        for thread in threads {
            let earlier = before
                .threads
                .binary_search_by_key(&thread.tid, |earlier| earlier.tid)
                .ok()
                .map(|at| before.threads[at]);
            let of = |field: fn(&ThreadTimes) -> u64| {
                Nanos(field(thread).saturating_sub(earlier.as_ref().map_or(0, field)))
            };
            let ran = of(|thread| thread.running_nanos);
            let waited = match thread.state {
                // The kernel adds the current wait to the waiting time only when it ends.
                b'R' | b'D' => time.saturating_sub(ran),
                _ => of(|thread| thread.waiting_nanos).min(time),
            };
            change.has_run |= ran.0 > 0;
            change.waited = change.waited.max(waited);
            change.reported_late = change.reported_late.max(ran.saturating_sub(time));
        }
        change
    }
}

impl WorkerSlot {
    /// Starts the timer of a command.
    pub(in super::super) fn start_open_timer(&mut self, now: Nanos) {
        self.hang_timer = Some(HangTimer::new(now, INSTALL_DEADLINE));
    }

    pub(super) fn start_startup_timer(&mut self, now: Nanos) {
        self.hang_timer = Some(HangTimer::new(now, STARTUP_DEADLINE));
    }

    fn is_busy(&self) -> bool {
        let is_busy = self.batch.is_some() || self.command.is_some() || !self.is_ready;
        self.incarnation.is_some() && is_busy && !self.is_hung
    }
}

impl State {
    /// The timer of a batch that is dispatched now, after `hangs` workers were killed because of
    /// it.
    pub(super) fn hang_timer(
        &self,
        queue: QueueIndex,
        rows: usize,
        hangs: u32,
        now: Nanos,
    ) -> HangTimer {
        let base = match self
            .queue_costs
            .upper_estimate(queue, rows, &self.scheduler)
        {
            None => Nanos::from(HANG_TIMEOUT_DEFAULT),
            Some(upper_estimate) => {
                let upper_estimate = upper_estimate.0.saturating_mul(HANG_FACTOR);
                Nanos::from(HANG_TIMEOUT_MIN).max(Nanos(upper_estimate))
            }
        };
        let timeout = base.0.saturating_mul(1 << hangs.min(16));
        HangTimer::new(now, Duration::from_nanos(timeout))
    }

    /// Returns the workers whose threads must be sampled for [`State::check_suspect`]. `stalled` is
    /// the delay of this check.
    pub(in super::super) fn suspects(
        &mut self,
        stalled: Nanos,
        now: Nanos,
        out: &mut Outbox,
    ) -> Vec<Suspect> {
        // A finished worker is not hung, even if its completion was not collected yet.
        self.collect_all(now, out);
        let mut suspects = Vec::new();
        for (worker, worker_slot) in self.workers.slots.iter_mut().enumerate() {
            if !worker_slot.is_busy() {
                continue;
            }
            let Some(hang_timer) = &mut worker_slot.hang_timer else {
                continue;
            };
            hang_timer.excuse_stall(stalled);
            if !hang_timer.is_suspect(now) {
                continue;
            }
            let since = hang_timer.since;
            suspects.push(Suspect { worker, since });
            // The thread that submitted the batch may have no cpu on which to wake the worker.
            if let Some(incarnation) = &worker_slot.incarnation
                && !incarnation.ring.is_started(worker_slot.sequence)
            {
                out.wakes.push(Arc::clone(incarnation));
            }
        }
        suspects
    }

    /// Checks whether a suspect hangs, by a sample of its threads taken at `at` (`None`: they
    /// cannot be read). A hang is reported once.
    pub(in super::super) fn check_suspect(
        &mut self,
        suspect: &Suspect,
        threads: Option<Vec<ThreadTimes>>,
        at: Nanos,
        now: Nanos,
        out: &mut Outbox,
    ) -> Option<HangReport> {
        // It may have finished, or have started its next batch.
        self.collect(suspect.worker, now, out);
        let worker_slot = self.workers.slots.get_mut(suspect.worker)?;
        if !worker_slot.is_busy() {
            return None;
        }
        let is_same = |hang_timer: &&mut HangTimer| hang_timer.since == suspect.since;
        let hang_timer = worker_slot.hang_timer.as_mut().filter(is_same)?;
        hang_timer.add_sample(threads, at);
        if !hang_timer.is_expired(at) {
            return None;
        }
        worker_slot.is_hung = true;
        self.counters.worker_hangs_total += 1;
        Some(HangReport {
            used: Duration::from_nanos(hang_timer.used(at).0),
            excused: Duration::from_nanos(hang_timer.excused.0),
        })
    }
}

#[cfg(test)]
mod tests;
