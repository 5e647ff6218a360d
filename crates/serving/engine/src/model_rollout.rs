//! Rollout of models: makes sure that running workers have opened every image that batches may use.
//!
//! **Problem.** Models are installed and removed while requests run. A worker may get a batch only
//! if it has opened every image that the batch uses; opening an image takes time; a worker may
//! crash at any time; and an image that cannot be opened must have no effect.
//!
//! **Approach.** A new image is first a candidate, which no request can use. Workers are held one
//! at a time (they finish their batch and get no other), get a command to close and open images,
//! and become ready again. When every serving worker has opened the candidate it is promoted, in
//! one step of the state: later requests get it, earlier ones keep their revision. A worker that
//! starts has no image; it serves once it has opened all promoted ones.
//!
//! **Proof sketch.** A worker is present to the scheduler only from the time it becomes ready, when
//! it has every promoted image, to its next hold or loss. An image is promoted only when all
//! present workers have it, and closed only when no request uses it. So no batch uses an image that
//! its worker lacks. Each pass of [`State::advance_rollout`] readies or holds one more worker, or
//! leaves nothing to do.
//!
//! **Limits.** One candidate at a time. With one worker, requests wait while it opens an image.

use std::sync::Arc;

use albacore_batching::{Event, Nanos, WorkerIndex};
use albacore_os::Exit;
use albacore_worker::{RevisionId, Ring, SegmentState, WorkerCommand};
use tokio::sync::oneshot;

use super::candidate::{CandidateRevision, Installed};
use super::image::PlacedImage;
use super::model::ModelRevision;
use super::state::{EnginePhase, Outbox, State, WorkerSlot};
use crate::limits::{CLOSES_MAX, OPEN_CRASHES_MAX};

impl State {
    /// Makes a revision the candidate. The caller must propose one at a time.
    pub(super) fn propose(
        &mut self,
        revision: Arc<ModelRevision>,
        reply: oneshot::Sender<Installed>,
        out: &mut Outbox,
    ) {
        self.reject("another model is being installed", out);
        self.rollout.candidate = Some(CandidateRevision {
            revision,
            reply,
            crashes: 0,
        });
        self.rollout.is_pending = true;
    }

    /// Rejects the candidate; workers that have opened it close it.
    pub(super) fn reject(&mut self, reason: &str, out: &mut Outbox) {
        if let Some(candidate) = self.rollout.candidate.take() {
            out.installed
                .push((candidate.reply, Err(reason.to_owned())));
            self.rollout.is_pending = true;
        }
    }

    /// Advances the rollout as far as possible. Called after each change of the state; cheap if
    /// there is nothing to do.
    pub(super) fn advance_rollout(&mut self, now: Nanos, out: &mut Outbox) {
        if self.phase >= EnginePhase::Stopping {
            // The doorbells contain the stop signal, which must not be overwritten.
            return;
        }
        // bound: each pass but the last readies or holds a worker, or promotes the candidate.
        while std::mem::take(&mut self.rollout.is_pending) {
            for worker in 0..self.workers.slots.len() {
                self.advance_worker(worker, now, out);
            }
            self.promote_if_open_everywhere(out);
            let is_busy =
                |worker_slot: &WorkerSlot| worker_slot.is_held || worker_slot.command.is_some();
            if self
                .workers
                .slots
                .iter()
                .any(|worker_slot| worker_slot.is_ready && is_busy(worker_slot))
            {
                continue;
            }
            let stale = (0..self.workers.slots.len()).find(|&worker| {
                self.workers.slots[worker].is_ready && self.next_command(worker).is_some()
            });
            if let Some(worker) = stale {
                self.workers.slots[worker].is_held = true;
                self.rollout.is_pending = true;
                let worker = WorkerIndex::at(worker);
                self.step(Event::WorkerHeld { worker }, now, out);
            }
        }
    }

    /// Sends the next command to an idle worker that does not serve, or lets it serve.
    fn advance_worker(&mut self, worker: usize, now: Nanos, out: &mut Outbox) {
        let Some(worker_slot) = self.workers.slots.get(worker) else {
            return;
        };
        let is_up = worker_slot
            .incarnation
            .as_ref()
            .is_some_and(|incarnation| incarnation.ring.is_ready());
        let is_idle = worker_slot.command.is_none() && worker_slot.batch.is_none();
        if !is_up || !is_idle || self.scheduler.is_present(WorkerIndex::at(worker)) {
            return;
        }
        if self.workers.slots[worker].needs_attach {
            return self.attach_worker(worker, now, out);
        }
        if let Some((command, image)) = self.next_command(worker) {
            self.send_command(worker, command, image.as_deref());
            self.workers.slots[worker].start_open_timer(now);
            return;
        }
        let worker_slot = &mut self.workers.slots[worker];
        worker_slot.is_ready = true;
        worker_slot.is_held = false;
        worker_slot.failures = 0;
        out.is_changed = true;
        self.rollout.is_pending = true;
        let worker = WorkerIndex::at(worker);
        self.step(Event::WorkerReady { worker }, now, out);
    }

    /// Attaches a worker of another front, once it has finished the work submitted by that front:
    /// its results are unused, and until then it writes into the memory of the other front.
    fn attach_worker(&mut self, worker: usize, now: Nanos, out: &mut Outbox) {
        let worker_slot = &mut self.workers.slots[worker];
        let Some(incarnation) = &worker_slot.incarnation else {
            return;
        };
        if incarnation.ring.is_idle() {
            worker_slot.sequence = Ring::next_sequence(worker_slot.sequence);
            worker_slot.command = Some(WorkerCommand::attach());
            out.attaches
                .push((Arc::clone(incarnation), worker_slot.sequence));
            worker_slot.start_open_timer(now);
        }
    }

    /// The next command to close and open images; `None` if the worker is up to date. A worker that
    /// does not serve yet is not asked to open the candidate, so that it can still serve if that
    /// crashes it. For the same reason it is not moved to node-local images and memory before it
    /// serves.
    fn next_command(&self, worker: usize) -> Option<(WorkerCommand, Option<Arc<PlacedImage>>)> {
        let worker_slot = self.workers.slots.get(worker)?;
        let candidate = self
            .rollout
            .candidate
            .as_ref()
            .map(|candidate| &candidate.revision);
        let candidate = candidate.filter(|_| worker_slot.is_ready);
        let targets = || self.catalog.retained().chain(candidate);
        let memory = &worker_slot.memory;
        let images = &self.node_images;
        let is_open = |id: RevisionId| worker_slot.open_revisions.contains(&id);
        let new = targets().find(|revision| !is_open(revision.id));
        let new = new.map(|revision| (revision, images.first_image(revision, memory)));
        let local = || {
            let mut open = self
                .catalog
                .current()
                .filter(|revision| is_open(revision.id));
            open.find_map(|revision| Some((revision, images.local_image(revision, memory)?)))
        };
        let opens = new.or_else(|| local().filter(|_| worker_slot.is_ready));
        let moves_scratch = worker_slot.is_ready && memory.scratch_target().is_some();
        let is_target = |id: &RevisionId| targets().any(|revision| revision.id == *id);
        let closes = worker_slot
            .open_revisions
            .iter()
            .filter(|id| !is_target(id))
            .copied();
        let closes: Vec<RevisionId> = closes.take(CLOSES_MAX).collect();
        if opens.is_none() && closes.is_empty() && !moves_scratch {
            return None;
        }
        let command = WorkerCommand {
            opens: opens
                .as_ref()
                .map(|(revision, _)| (revision.id, revision.info.kinds().bits())),
            closes,
            is_attach: false,
            moves_scratch,
        };
        Some((command, opens.map(|(_, image)| image)))
    }

    fn send_command(&mut self, worker: usize, command: WorkerCommand, image: Option<&PlacedImage>) {
        let worker_slot = &mut self.workers.slots[worker];
        let Some(incarnation) = &worker_slot.incarnation else {
            return;
        };
        let fds: Vec<_> = image.iter().map(|image| image.fd()).collect();
        if let Err(error) = incarnation.channel.send(&command.encode(), &fds) {
            // The exit of a worker is reported soon; a running worker reports that no command came.
            tracing::debug!(worker, %error, "a command cannot be sent to a worker");
        }
        worker_slot.memory.command_sent(&command, image);
        worker_slot.sequence = Ring::next_sequence(worker_slot.sequence);
        worker_slot.command = Some(command);
        incarnation.ring.submit_command(worker_slot.sequence);
    }

    /// Collects the result of a command, if the worker has executed it.
    pub(super) fn collect_command(&mut self, worker: usize, now: Nanos, out: &mut Outbox) {
        let Some(worker_slot) = self.workers.slots.get_mut(worker) else {
            return;
        };
        let Some(incarnation) = &worker_slot.incarnation else {
            return;
        };
        let is_done = incarnation.ring.is_finished(worker_slot.sequence);
        let Some(command) = worker_slot.command.take_if(|_| is_done) else {
            return;
        };
        self.rollout.is_pending = true;
        let is_executed = incarnation.ring.state(0) == SegmentState::Done;
        let opened = command.opens.map(|(id, _)| id);
        worker_slot
            .open_revisions
            .retain(|id| !command.closes.contains(id));
        if is_executed && command.is_attach {
            worker_slot.needs_attach = false;
            worker_slot.open_revisions = incarnation.ring.open_revisions();
            return;
        }
        if is_executed {
            worker_slot.memory.command_executed(&command);
            worker_slot.open_revisions.retain(|id| Some(*id) != opened);
            worker_slot.open_revisions.extend(opened);
            if command.moves_scratch {
                self.node_images.count_scratch_move();
            }
            return;
        }
        let reason = incarnation.ring.reason();
        if self.keep_current_image(worker, opened, &reason, now) {
            return;
        }
        if self.is_candidate(opened) {
            self.reject(&format!("worker {worker} cannot open it: {reason}"), out);
            return;
        }
        tracing::error!(worker, %reason, "a worker cannot execute a command and is restarted");
        let worker_slot = &mut self.workers.slots[worker];
        // This counts as a failed start, so that repeated failures are backed off.
        worker_slot.is_ready = false;
        // Nothing more may be sent to it: the doorbell must keep the stop signal.
        if let Some(incarnation) = worker_slot.incarnation.take() {
            incarnation.ring.stop();
        }
    }

    /// Counts a lost worker that was opening the candidate, because the candidate may be the cause.
    pub(super) fn count_candidate_crash(
        &mut self,
        command: &WorkerCommand,
        exit: Exit,
        out: &mut Outbox,
    ) {
        if !self.is_candidate(command.opens.map(|(id, _)| id)) {
            return;
        }
        let Some(candidate) = &mut self.rollout.candidate else {
            return;
        };
        candidate.crashes += 1;
        let crashes = candidate.crashes;
        if crashes >= OPEN_CRASHES_MAX {
            let reason =
                format!("{crashes} workers crashed while they opened it, last with {exit}");
            self.reject(&reason, out);
        }
    }

    fn is_candidate(&self, id: Option<RevisionId>) -> bool {
        let candidate = self.rollout.candidate.as_ref();
        candidate.is_some_and(|candidate| Some(candidate.revision.id) == id)
    }

    /// Promotes the candidate once every serving worker has opened it. While no worker serves it is
    /// not promoted, because it may have crashed them.
    fn promote_if_open_everywhere(&mut self, out: &mut Outbox) {
        let Some(candidate) = &self.rollout.candidate else {
            return;
        };
        let id = candidate.revision.id;
        let mut serving = self
            .workers
            .slots
            .iter()
            .filter(|worker_slot| worker_slot.is_ready)
            .peekable();
        if serving.peek().is_some()
            && serving.all(|worker_slot| worker_slot.open_revisions.contains(&id))
        {
            self.promote(out);
        }
    }

    /// Promotes the candidate immediately: used at startup, when workers open it before they serve.
    pub(super) fn promote(&mut self, out: &mut Outbox) {
        let Some(CandidateRevision {
            revision, reply, ..
        }) = self.rollout.candidate.take()
        else {
            return;
        };
        self.rollout.is_pending = true;
        out.is_changed = true;
        let slot = revision.slot;
        let installed = if self.catalog.promote(revision) {
            self.reset_costs(slot);
            Ok(())
        } else {
            Err("it was removed from the settings".to_owned())
        };
        out.installed.push((reply, installed));
    }
}

#[cfg(test)]
mod tests;
