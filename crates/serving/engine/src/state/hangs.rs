//! Which workers hang: they have a batch, or command, or are to come up, and take far longer than
//! that takes.
//!
//! **Problem.** A worker that is stopped, loops, or waits for what never comes is not dead: nobody
//! tells the front. Its batch must run elsewhere, and it must be gone before its memory is used
//! again, for it may wake at any time. A worker whose cpu others use looks the same by the clock.
//!
//! **Approach.** Each batch gets a hang_timer when it is dispatched: some times what such batches
//! take, twice that each time that it runs again, so that a batch which is only slower than
//! anything known is done in the end. Once half of it is over the worker is suspect, and what the
//! scheduler says of its threads is read at each look. Time in which one of its threads waited for
//! a cpu, or in the kernel for a page, is not counted: a worker that loops runs, one that is
//! stopped or waits for what never comes does neither. Nor is time in which the thread that looks
//! was itself kept waiting: then the machine stood still. Who outlives its hang_timer is killed; all
//! else is as with any death: the batch runs again, and one that hangs again and again is to blame.
//!
//! **Bounds.** A worker that is stopped is found after its hang_timer and three looks. One that loops
//! on a share s of a cpu is found after half its hang_timer and half divided by s. One that gets no
//! cpu at all for [`HANG_STARVED_MAX`] is judged by the clock: its batch may find a better cpu.
//!
//! **Limits.** Until the costs of a queue are known the hang_timer is long. Time that a hypervisor
//! takes from a running thread counts as used. Where the kernel does not count waiting times, the
//! clock alone counts.

use std::sync::Arc;
use std::time::Duration;

use albacore_batching::{Nanos, QueueIndex};
use albacore_os::ThreadTimes;

use super::{Outbox, State, WorkerSlot};
use crate::limits::{
    HANG_FACTOR, HANG_STARVED_MAX, HANG_TIMEOUT_DEFAULT, HANG_TIMEOUT_MIN, INSTALL_DEADLINE,
    STARTUP_DEADLINE,
};

/// How long a worker may be at what it does.
#[derive(Debug)]
pub(super) struct HangTimer {
    since: Nanos,
    lasts: Nanos,
    /// Time since then that does not count.
    excused: Nanos,
    /// What was last read of the threads; `None` while the worker is not suspect.
    reading: Option<ThreadSample>,
}

#[derive(Debug)]
struct ThreadSample {
    at: Nanos,
    /// When a thread was last seen to have run.
    ran: Nanos,
    /// For how long the thread that looks was kept waiting since.
    stalled: Nanos,
    threads: Vec<ThreadTimes>,
}

/// A worker that takes long.
#[derive(Debug)]
pub(in super::super) struct Suspect {
    pub(in super::super) worker: usize,
    /// Since when it is at what it does.
    since: Nanos,
}

/// How long a worker was at what it did, when that was too long.
#[derive(Debug, PartialEq, Eq)]
pub(in super::super) struct HangReport {
    /// Time that it could use.
    pub(in super::super) used: Duration,
    /// Time in which it had no cpu.
    pub(in super::super) excused: Duration,
}

impl HangTimer {
    pub(super) fn new(since: Nanos, lasts: Duration) -> Self {
        Self {
            since,
            lasts: nanos(lasts),
            excused: Nanos(0),
            reading: None,
        }
    }

    fn used(&self, now: Nanos) -> Nanos {
        now.saturating_sub(self.since).saturating_sub(self.excused)
    }

    fn is_suspect(&self, now: Nanos) -> bool {
        self.reading.is_some() || self.used(now).0 > self.lasts.0 / 2
    }

    fn is_over(&self, now: Nanos) -> bool {
        self.used(now) > self.lasts
    }

    /// The thread that looks was itself kept waiting.
    fn stall(&mut self, stalled: Nanos) {
        let time = match &mut self.reading {
            Some(reading) => &mut reading.stalled,
            None => &mut self.excused,
        };
        *time = time.saturating_add(stalled);
    }

    /// Takes in what the scheduler says of the threads; `None` if it says nothing.
    fn read(&mut self, threads: Option<Vec<ThreadTimes>>, at: Nanos) {
        let before = self.reading.take();
        let stalled = before.as_ref().map_or(Nanos(0), |before| before.stalled);
        let Some(threads) = threads else {
            self.excused = self.excused.saturating_add(stalled);
            return;
        };
        let mut ran = at;
        if before.is_none() {
            // However late the first look came, it has half of its hang_timer from here on.
            let late = self.used(at).0.saturating_sub(self.lasts.0 / 2);
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
                .saturating_sub(change.untold);
            if at.saturating_sub(ran) > nanos(HANG_STARVED_MAX) {
                self.excused = Nanos(0);
            }
        }
        self.reading = Some(ThreadSample {
            at,
            ran,
            stalled: Nanos(0),
            threads,
        });
    }
}

/// What happened to the threads of a worker between two readings.
#[derive(Debug, PartialEq, Eq)]
struct ThreadActivity {
    has_run: bool,
    /// For how long the worker could do nothing, because one of its threads had no cpu: any other
    /// may wait for that one.
    waited: Nanos,
    /// By how much more a thread ran than there was time: the kernel had not told it before.
    untold: Nanos,
}

impl ThreadActivity {
    fn between(before: &ThreadSample, threads: &[ThreadTimes], at: Nanos) -> Self {
        let time = at.saturating_sub(before.at);
        let mut change = Self {
            has_run: false,
            waited: Nanos(0),
            untold: Nanos(0),
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
                // It waits now, which is added to its waiting time only afterwards.
                b'R' | b'D' => time.saturating_sub(ran),
                _ => of(|thread| thread.waiting_nanos).min(time),
            };
            change.has_run |= ran.0 > 0;
            change.waited = change.waited.max(waited);
            change.untold = change.untold.max(ran.saturating_sub(time));
        }
        change
    }
}

fn nanos(time: Duration) -> Nanos {
    Nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

impl WorkerSlot {
    /// PartialResults that its worker begins to open images, or to come up.
    pub(in super::super) fn start_open_timer(&mut self, now: Nanos) {
        self.hang_timer = Some(HangTimer::new(now, INSTALL_DEADLINE));
    }

    pub(super) fn start_startup_timer(&mut self, now: Nanos) {
        self.hang_timer = Some(HangTimer::new(now, STARTUP_DEADLINE));
    }

    fn is_at_work(&self) -> bool {
        let is_at_work = self.batch.is_some() || self.command.is_some() || !self.is_ready;
        self.incarnation.is_some() && is_at_work && !self.is_hung
    }
}

impl State {
    /// The hang_timer with a batch that is dispatched now and was so often before.
    pub(super) fn hang_timer(
        &self,
        queue: QueueIndex,
        rows: usize,
        losses: u32,
        now: Nanos,
    ) -> HangTimer {
        let base = match self.queues.longest(queue, rows, &self.scheduler) {
            None => nanos(HANG_TIMEOUT_DEFAULT),
            Some(longest) => {
                let longest = longest.0.saturating_mul(HANG_FACTOR);
                nanos(HANG_TIMEOUT_MIN).max(Nanos(longest))
            }
        };
        let lasts = base.0.saturating_mul(1 << losses.min(16));
        HangTimer::new(now, Duration::from_nanos(lasts))
    }

    /// The workers whose threads are to be read: [`State::check_suspect`] follows. `stalled` is how much
    /// later than planned this look comes.
    pub(in super::super) fn suspects(
        &mut self,
        stalled: Nanos,
        now: Nanos,
        out: &mut Outbox,
    ) -> Vec<Suspect> {
        // What is done is not hung, though nobody has looked at it yet.
        self.collect_all(now, out);
        let mut suspects = Vec::new();
        for (worker, worker_slot) in self.worker_slots.iter_mut().enumerate() {
            if !worker_slot.is_at_work() {
                continue;
            }
            let Some(hang_timer) = &mut worker_slot.hang_timer else {
                continue;
            };
            hang_timer.stall(stalled);
            if !hang_timer.is_suspect(now) {
                continue;
            }
            let since = hang_timer.since;
            suspects.push(Suspect { worker, since });
            // The thread that handed over its batch may have no cpu to wake it on.
            if let Some(incarnation) = &worker_slot.incarnation
                && !incarnation.ring.is_begun(worker_slot.sequence)
            {
                out.wakes.push(Arc::clone(incarnation));
            }
        }
        suspects
    }

    /// Whether a suspect hangs, by what was read `at` this time of its threads; `None` where that
    /// cannot be read. Who hangs is said to once.
    pub(in super::super) fn check_suspect(
        &mut self,
        suspect: &Suspect,
        (threads, at): (Option<Vec<ThreadTimes>>, Nanos),
        now: Nanos,
        out: &mut Outbox,
    ) -> Option<HangReport> {
        // It may be done, or at its next batch.
        self.collect(suspect.worker, now, out);
        let worker_slot = self.worker_slots.get_mut(suspect.worker)?;
        if !worker_slot.is_at_work() {
            return None;
        }
        let is_same = |hang_timer: &&mut HangTimer| hang_timer.since == suspect.since;
        let hang_timer = worker_slot.hang_timer.as_mut().filter(is_same)?;
        hang_timer.read(threads, at);
        if !hang_timer.is_over(at) {
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
