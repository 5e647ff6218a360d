//! State of the worker processes: their batches, completions and losses.

use std::sync::Arc;

use albacore_batching::{Event, Nanos, QueueIndex, WorkerIndex};
use albacore_os::{Channel, Exit};
use albacore_worker::{RevisionId, Ring, SegmentState, WorkerCommand};

use super::hangs::HangTimer;
use super::requests::PartEnd;
use super::{Outbox, State, WorkerMemory};
use crate::limits::{
    COMPLETION_POLL_PERIOD, CRASH_BLAME, HANG_BLAME, KILL_BLAME, RESPAWNS_AT_ONCE,
};
use crate::queues::slot_of;
use crate::{Kind, RequestFailure};

/// Signal number of SIGKILL.
const SIGKILL: i32 = 9;

/// Connections of the front to one incarnation of a worker.
#[derive(Debug)]
pub(crate) struct Incarnation {
    pub(crate) ring: Ring,
    /// Channel of the commands.
    pub(crate) channel: Channel,
}

/// A batch as it was dispatched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunningBatch {
    pub(super) dispatched: Nanos,
    pub(super) rows: usize,
    pub(super) queue: QueueIndex,
    /// The most expensive kind of its requests.
    pub(super) kind: Kind,
    /// It is not a replay: its duration is a sample of the costs of such batches.
    pub(super) is_first: bool,
    /// Every request is for the model's current revision, whose costs are learned.
    pub(super) is_current: bool,
}

/// A worker index and the state of its process, across all incarnations.
#[derive(Debug, Default)]
pub(crate) struct WorkerSlot {
    /// `None` between two incarnations.
    pub(crate) incarnation: Option<Arc<Incarnation>>,
    /// Whether it serves, or served in this incarnation before it was held.
    pub(crate) is_ready: bool,
    /// Whether it gets no batch until it has executed its command.
    pub(crate) is_held: bool,
    /// Sequence number of the last batch or command.
    pub(crate) sequence: u32,
    pub(crate) batch: Option<RunningBatch>,
    /// Keys of the batch's request parts, in the order of its segments.
    pub(super) members: Vec<u64>,
    /// The command that was sent and is not executed yet.
    pub(crate) command: Option<WorkerCommand>,
    /// Whether another front started it: until it is attached, it writes into the memory of that
    /// front.
    pub(crate) needs_attach: bool,
    /// Revisions opened by this incarnation.
    pub(crate) open_revisions: Vec<RevisionId>,
    pub(crate) memory: WorkerMemory,
    /// Consecutive incarnations that exited before they were ready.
    pub(crate) failures: u32,
    /// Exit status of the last incarnation, or why none could be started.
    pub(super) last_exit: String,
    pub(super) hang_timer: Option<HangTimer>,
    /// Whether it hangs, and will be killed.
    pub(super) is_hung: bool,
}

#[derive(Debug)]
pub(crate) struct WorkerPool {
    /// By worker index.
    pub(crate) slots: Vec<WorkerSlot>,
    /// Compute threads of each worker.
    pub(super) threads: usize,
    /// Number of cpus that this process may use.
    pub(super) cpus: usize,
    /// When the rings of all workers were last checked for finished batches.
    polled_at: Nanos,
}

impl WorkerPool {
    pub(super) fn new(workers: usize, threads: usize) -> Self {
        Self {
            slots: (0..workers).map(|_| WorkerSlot::default()).collect(),
            threads,
            cpus: usize::MAX,
            polled_at: Nanos(0),
        }
    }

    pub(crate) fn set_cpus(&mut self, cpus: usize) {
        self.cpus = cpus.max(1);
    }

    /// Number of workers that serve.
    pub(crate) fn ready(&self) -> usize {
        self.slots.iter().filter(|slot| slot.is_ready).count()
    }

    /// The most consecutive failed starts of one worker, and the last exit status.
    pub(crate) fn most_failed_start(&self) -> (u32, &str) {
        let worst = self.slots.iter().max_by_key(|slot| slot.failures);
        worst.map_or((0, ""), |slot| (slot.failures, &slot.last_exit))
    }

    /// Whether workers remain to be taken over from another front.
    pub(crate) fn has_unattached(&self) -> bool {
        self.slots.iter().any(|slot| slot.needs_attach)
    }

    /// Exit status of the last incarnation of a worker.
    pub(crate) fn last_exit(&self, worker: usize) -> &str {
        self.slots.get(worker).map_or("", |slot| &slot.last_exit)
    }

    /// Whether no worker serves or is expected to soon, because each failed to start repeatedly.
    pub(crate) fn is_crash_looping(&self) -> bool {
        self.slots
            .iter()
            .all(|slot| !slot.is_ready && slot.failures > RESPAWNS_AT_ONCE)
    }
}

impl WorkerSlot {
    /// Whether the ring reports the running batch as finished.
    fn has_finished_batch(&self) -> bool {
        let ring = self.incarnation.as_ref().map(|current| &current.ring);
        self.batch.is_some() && ring.is_some_and(|ring| ring.is_finished(self.sequence))
    }

    /// Records the exit of the incarnation; returns the blame of its batch.
    fn end_incarnation(&mut self, exit: Exit) -> u32 {
        self.failures = if self.is_ready {
            0
        } else {
            self.failures.saturating_add(1)
        };
        self.last_exit = match self.is_hung {
            true => format!("it hung and was killed by {exit}"),
            false => exit.to_string(),
        };
        self.is_ready = false;
        self.is_held = false;
        self.needs_attach = false;
        let ended = self.incarnation.take();
        let has_begun = ended.is_some_and(|ended| ended.ring.is_started(self.sequence));
        match exit {
            _ if !has_begun => 0,
            _ if self.is_hung => HANG_BLAME,
            Exit::Signal(SIGKILL) => KILL_BLAME,
            Exit::Signal(_) | Exit::Code(_) => CRASH_BLAME,
        }
    }
}

impl State {
    /// Records that an incarnation of a worker was started.
    pub(crate) fn worker_started(
        &mut self,
        worker: usize,
        incarnation: Arc<Incarnation>,
        now: Nanos,
    ) {
        if let Some(worker_slot) = self.workers.slots.get_mut(worker) {
            worker_slot.start_startup_timer(now);
            worker_slot.is_hung = false;
            worker_slot.incarnation = Some(incarnation);
            worker_slot.sequence = 0;
            worker_slot.needs_attach = false;
            worker_slot.open_revisions.clear();
            worker_slot.memory = WorkerMemory::default();
        }
    }

    /// Records a running worker that another front started: it is attached to this front once it
    /// has finished the work submitted by that front.
    pub(crate) fn worker_adopted(
        &mut self,
        worker: usize,
        incarnation: Arc<Incarnation>,
        now: Nanos,
    ) {
        let sequence = incarnation.ring.last_sequence();
        self.worker_started(worker, incarnation, now);
        if let Some(worker_slot) = self.workers.slots.get_mut(worker) {
            worker_slot.sequence = sequence;
            worker_slot.needs_attach = true;
        }
    }

    /// Records that the process of a worker could not be started; returns its consecutive failures.
    pub(crate) fn worker_not_started(&mut self, worker: usize, cause: &str) -> u32 {
        let Some(worker_slot) = self.workers.slots.get_mut(worker) else {
            return 0;
        };
        worker_slot.failures = worker_slot.failures.saturating_add(1);
        worker_slot.last_exit = cause.to_owned();
        worker_slot.failures
    }

    /// Handles the exit of a worker process, which writes nothing more: its batch is replayed on
    /// another worker. Returns its consecutive failures.
    pub(crate) fn worker_ended(
        &mut self,
        worker: usize,
        exit: Exit,
        now: Nanos,
        out: &mut Outbox,
    ) -> u32 {
        // A batch that was finished before the exit is done.
        self.collect(worker, now, out);
        let Some(worker_slot) = self.workers.slots.get_mut(worker) else {
            return 0;
        };
        out.is_changed = true;
        let blame = worker_slot.end_incarnation(exit);
        // A worker that stopped before it started its batch is no evidence about the batch.
        let is_hung = worker_slot.is_hung && blame > 0;
        let failures = worker_slot.failures;
        let command = worker_slot.command.take();
        self.rollout.is_pending = true;
        self.return_batch(worker, out);
        if let Some(command) = command {
            self.count_candidate_crash(&command, exit, out);
        }
        let worker = WorkerIndex::at(worker);
        self.step(
            Event::WorkerLost {
                worker,
                blame,
                is_hung,
            },
            now,
            out,
        );
        failures
    }

    /// Parts of a lost batch wait again; those whose client went away are removed.
    fn return_batch(&mut self, worker: usize, out: &mut Outbox) {
        let Some(worker_slot) = self.workers.slots.get_mut(worker) else {
            return;
        };
        if worker_slot.batch.take().is_none() {
            return;
        }
        let members = std::mem::take(&mut worker_slot.members);
        for &key in &members {
            if self.requests.stop_running(key) {
                self.end_part(key, PartEnd::ClientGone, out);
            }
        }
        self.reuse_members(worker, members);
    }

    /// Collects finished work of every worker.
    pub(crate) fn collect_all(&mut self, now: Nanos, out: &mut Outbox) {
        self.workers.polled_at = now;
        for worker in 0..self.workers.slots.len() {
            self.collect(worker, now, out);
        }
    }

    /// Collects finished batches and an expired timer without waiting for their notification. Runs
    /// at most once per [`COMPLETION_POLL_PERIOD`]: more often would only make batches smaller.
    pub(crate) fn poll_completions(&mut self, now: Nanos, out: &mut Outbox) {
        if now.saturating_sub(self.workers.polled_at).0 < COMPLETION_POLL_PERIOD.as_nanos() as u64 {
            return;
        }
        self.workers.polled_at = now;
        for worker in 0..self.workers.slots.len() {
            if self.workers.slots[worker].has_finished_batch() {
                self.collect(worker, now, out);
            }
        }
        if self.dispatcher.timer.is_some_and(|due| due <= now) {
            self.timer(now, out);
        }
    }

    /// Collects finished work of one worker: a command or a batch.
    pub(super) fn collect(&mut self, worker: usize, now: Nanos, out: &mut Outbox) {
        let Some(worker_slot) = self.workers.slots.get_mut(worker) else {
            return;
        };
        let Some(incarnation) = worker_slot.incarnation.clone() else {
            return;
        };
        // A new incarnation may be up, or a held worker may be idle.
        self.rollout.is_pending |= !worker_slot.is_ready || worker_slot.is_held;
        if worker_slot.command.is_some() {
            return self.collect_command(worker, now, out);
        }
        let is_finished = worker_slot.has_finished_batch();
        let Some(batch) = worker_slot.batch.take_if(|_| is_finished) else {
            return;
        };
        let members = std::mem::take(&mut worker_slot.members);
        let compute_nanos = self.record_batch(worker, &batch, &incarnation.ring, now);
        // One allocation, because the lock is held.
        out.ended.reserve(members.len());
        for (index, &key) in members.iter().enumerate() {
            let end = match segment_failure(&incarnation.ring, index) {
                None => PartEnd::Computed {
                    nanos: compute_nanos,
                },
                Some(failure) => PartEnd::Failed(failure),
            };
            self.end_part(key, end, out);
        }
        self.reuse_members(worker, members);
        let worker = WorkerIndex::at(worker);
        self.step(Event::BatchDone { worker }, now, out);
    }

    /// Counts a finished batch and learns its cost; returns its compute time in nanoseconds.
    fn record_batch(
        &mut self,
        worker: usize,
        batch: &RunningBatch,
        ring: &Ring,
        now: Nanos,
    ) -> u64 {
        // The compute time measured by the worker is capped at the time elapsed here.
        let elapsed = now.saturating_sub(batch.dispatched);
        let compute_nanos = ring.compute_nanos().min(elapsed.0);
        let slot = slot_of(batch.queue);
        self.counters
            .count_worker_batch(worker, batch.rows, elapsed.0);
        self.counters.count_batch(slot, batch.rows, compute_nanos);
        self.counters
            .count_work_division(slot, batch.kind, ring.work_division());
        self.inboxes.record(batch.queue, batch.rows, compute_nanos);
        let work = &self.queue_costs;
        let work = work.work_of(batch.queue, batch.rows, &self.scheduler);
        self.counters.add_work(slot, work.unwrap_or(elapsed));
        if batch.is_first && batch.is_current {
            self.queue_costs
                .observe(batch.queue, batch.rows, elapsed, &mut self.scheduler);
        }
        compute_nanos
    }

    /// Returns the vector of keys to its worker, so that the steady state does not allocate.
    fn reuse_members(&mut self, worker: usize, members: Vec<u64>) {
        if let Some(worker_slot) = self.workers.slots.get_mut(worker) {
            worker_slot.members = members;
        }
    }
}

/// Failure of a segment of a finished batch; any state but "done" is a failure.
fn segment_failure(ring: &Ring, segment: usize) -> Option<RequestFailure> {
    let reason = match ring.state(segment) {
        SegmentState::Done => return None,
        SegmentState::Failed => ring.reason(),
        SegmentState::Pending => "it was left out of its batch".to_owned(),
    };
    Some(RequestFailure::Compute { reason })
}
