//! Detects hung workers: those whose batch, command or start takes far longer than it should.
//!
//! **Problem.** A worker that is stopped, loops, or waits forever has not exited, so the kernel
//! reports nothing. Its batch must run elsewhere, and its process must be gone before its memory is
//! reused, because it may continue at any time. By elapsed time alone it cannot be distinguished
//! from a worker whose cpu is used by others.
//!
//! **Approach.** Each batch gets a timeout when it is dispatched: a multiple of the usual time of
//! such batches, doubled each time the batch exceeds it, so that a batch which is merely slow
//! finishes in the end. Once half of the timeout has passed the worker is a suspect, and the
//! scheduler's times of its threads are sampled at each check. Time in which one of its threads
//! waited for a cpu, or in the kernel for a page, is excused: a worker that loops runs, one that is
//! stopped or waits forever does neither. Time in which the supervisor itself was delayed is
//! excused, too: then the whole machine was stalled. A worker that exceeds its timeout is killed.
//! From then on it is handled like any lost worker: the batch runs again, and a batch that hangs
//! repeatedly is to blame.
//!
//! **Bounds.** A stopped worker is found after its timeout and three checks. A worker that loops on
//! a share s of a cpu is found after half its timeout plus half its timeout divided by s. One that
//! gets no cpu at all for [`HANG_STARVED_MAX`] is judged by elapsed time: its batch may find a
//! better cpu.
//!
//! **Limits.** Until the costs of a queue are known the timeout is long. Steal time of a hypervisor
//! counts as used. Where the kernel does not count waiting times, elapsed time alone counts.

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
    /// Time since then that does not count.
    excused: Nanos,
    /// The last sample of the threads; `None` while the worker is not a suspect.
    last_sample: Option<ThreadSample>,
}

#[derive(Debug)]
struct ThreadSample {
    at: Nanos,
    /// When a thread was last seen to have run.
    ran: Nanos,
    /// For how long the supervisor was delayed since.
    stalled: Nanos,
    threads: Vec<ThreadTimes>,
}

/// A worker of which more than half of the timeout has passed.
#[derive(Debug)]
pub(in super::super) struct Suspect {
    pub(in super::super) worker: usize,
    /// When its batch, command or start began.
    since: Nanos,
}

/// The times of a worker that exceeded its timeout.
#[derive(Debug, PartialEq, Eq)]
pub(in super::super) struct HangReport {
    /// Time in which it could have run.
    pub(in super::super) used: Duration,
    /// Time in which it had no cpu.
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

    /// The supervisor was delayed by `stalled`.
    fn excuse_stall(&mut self, stalled: Nanos) {
        let time = match &mut self.last_sample {
            Some(sample) => &mut sample.stalled,
            None => &mut self.excused,
        };
        *time = time.saturating_add(stalled);
    }

    /// Takes a sample of the threads into account; `None` if they cannot be read.
    fn add_sample(&mut self, threads: Option<Vec<ThreadTimes>>, at: Nanos) {
        let before = self.last_sample.take();
        let stalled = before.as_ref().map_or(Nanos(0), |before| before.stalled);
        let Some(threads) = threads else {
            self.excused = self.excused.saturating_add(stalled);
            return;
        };
        let mut ran = at;
        if before.is_none() {
            // However late the first sample is, half of the timeout is left from here on.
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

/// What the threads of a worker did between two samples.
#[derive(Debug, PartialEq, Eq)]
struct ThreadActivity {
    has_run: bool,
    /// The longest wait of a thread for a cpu: any other thread may wait for that one.
    waited: Nanos,
    /// By how much a thread's run time exceeds the elapsed time: the kernel reported it late.
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
                // The present wait is added to its waiting time only when it ends.
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
    /// Starts the timer of a command, or of a start.
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
    /// The timer of a batch that is dispatched now after `hangs` workers were ended because of it.
    pub(super) fn hang_timer(
        &self,
        queue: QueueIndex,
        rows: usize,
        hangs: u32,
        now: Nanos,
    ) -> HangTimer {
        let base = match self.queue_costs.longest(queue, rows, &self.scheduler) {
            None => Nanos::from(HANG_TIMEOUT_DEFAULT),
            Some(longest) => {
                let longest = longest.0.saturating_mul(HANG_FACTOR);
                Nanos::from(HANG_TIMEOUT_MIN).max(Nanos(longest))
            }
        };
        let timeout = base.0.saturating_mul(1 << hangs.min(16));
        HangTimer::new(now, Duration::from_nanos(timeout))
    }

    /// The workers whose threads are to be sampled; [`State::check_suspect`] follows. `stalled` is
    /// the delay of this check.
    pub(in super::super) fn suspects(
        &mut self,
        stalled: Nanos,
        now: Nanos,
        out: &mut Outbox,
    ) -> Vec<Suspect> {
        // A finished worker is not hung, although its completion was not collected yet.
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
            // The thread that handed over the batch may have no cpu to wake the worker on.
            if let Some(incarnation) = &worker_slot.incarnation
                && !incarnation.ring.is_begun(worker_slot.sequence)
            {
                out.wakes.push(Arc::clone(incarnation));
            }
        }
        suspects
    }

    /// Whether a suspect hangs, by a sample of its threads taken `at` this time (`None`: they
    /// cannot be read). A hang is reported once.
    pub(in super::super) fn check_suspect(
        &mut self,
        suspect: &Suspect,
        threads: Option<Vec<ThreadTimes>>,
        at: Nanos,
        now: Nanos,
        out: &mut Outbox,
    ) -> Option<HangReport> {
        // It may have finished, or have begun its next batch.
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
