//! How running workers come to hold the images that batches may name, and no others.
//!
//! **Problem.** Models come and go while requests run. A worker may be dispatched a batch only if
//! it has every image that the batch names; opening one takes it a while; it may die at any time;
//! and an image that cannot be opened must change nothing.
//!
//! **Approach.** A new image is first a candidate: no request can name it. Workers are held one at
//! a time (they end their batch and get no other), told by orders what to close and open, and
//! welcomed back. When every worker that serves has the candidate it is promoted, in one step of
//! the state: requests from then on get it, those before keep theirs. A worker that starts has
//! nothing; it serves once it has what is promoted.
//!
//! **Proof sketch.** A worker is present to the scheduler only between a welcome, where it has
//! every promoted image, and its next hold or death. An image is promoted only when all welcomed
//! workers have it, and closed only when no request names it. So no batch names an image that its
//! worker lacks. Each pass of [`State::tend`] welcomes or holds one more worker or leaves nothing
//! to do.
//!
//! **Limits.** One candidate at a time. With one worker, requests wait while it opens an image.

use std::sync::Arc;

use albacore_batching::{Event, Nanos, WorkerIndex};
use albacore_os::Exit;
use tokio::sync::oneshot;

use super::model::Edition;
use super::state::{Outbox, Phase, Seat, State};
use crate::limits::{CLOSES_MAX, OPEN_DEATHS_MAX};
use crate::orders::{EditionId, Orders};
use crate::ring::{Ring, SegmentState};

/// Whether a candidate was promoted, or why not.
pub(super) type Installed = Result<(), String>;

/// An edition that waits until every worker has it.
#[derive(Debug)]
pub(super) struct Candidate {
    edition: Arc<Edition>,
    reply: oneshot::Sender<Installed>,
    /// Workers that died while they opened it.
    deaths: u32,
}

impl State {
    /// Makes an edition the candidate. The caller proposes one at a time.
    pub(super) fn propose(
        &mut self,
        edition: Arc<Edition>,
        reply: oneshot::Sender<Installed>,
        out: &mut Outbox,
    ) {
        self.reject("another one came", out);
        self.candidate = Some(Candidate {
            edition,
            reply,
            deaths: 0,
        });
        self.is_untended = true;
    }

    /// Gives the candidate up; the workers that have it close it.
    pub(super) fn reject(&mut self, reason: &str, out: &mut Outbox) {
        if let Some(candidate) = self.candidate.take() {
            out.installed
                .push((candidate.reply, Err(reason.to_owned())));
            self.is_untended = true;
        }
    }

    /// Brings every worker nearer to having what it should. Called after each change of the state,
    /// and cheap while there is nothing to do.
    pub(super) fn tend(&mut self, now: Nanos, out: &mut Outbox) {
        if self.phase >= Phase::Stopping {
            // The doorbells say so, and must go on saying so.
            return;
        }
        // bound: each pass but the last welcomes or holds a worker, or promotes the candidate.
        while std::mem::take(&mut self.is_untended) {
            for worker in 0..self.seats.len() {
                self.greet(worker, now, out);
            }
            self.promote_if_known(out);
            let is_busy = |seat: &Seat| seat.is_held || seat.orders.is_some();
            if self.seats.iter().any(|seat| seat.is_ready && is_busy(seat)) {
                continue;
            }
            let stale = (0..self.seats.len())
                .find(|&worker| self.seats[worker].is_ready && self.orders_for(worker).is_some());
            if let Some(worker) = stale {
                self.seats[worker].is_held = true;
                self.is_untended = true;
                let worker = WorkerIndex(worker);
                self.step(Event::WorkerHeld { worker }, now, out);
            }
        }
    }

    /// Gives an idle worker that does not serve its next orders, or lets it serve.
    fn greet(&mut self, worker: usize, now: Nanos, out: &mut Outbox) {
        let Some(seat) = self.seats.get(worker) else {
            return;
        };
        let is_up = seat.life.as_ref().is_some_and(|life| life.ring.is_ready());
        let is_idle = seat.orders.is_none() && seat.batch.is_none();
        if !is_up || !is_idle || self.scheduler.is_present(WorkerIndex(worker)) {
            return;
        }
        if let Some((orders, edition)) = self.orders_for(worker) {
            self.order(worker, orders, edition.as_deref());
            self.seats[worker].expect_opened(now);
            return;
        }
        let seat = &mut self.seats[worker];
        seat.is_ready = true;
        seat.is_held = false;
        seat.failures = 0;
        out.is_changed = true;
        self.is_untended = true;
        let worker = WorkerIndex(worker);
        self.step(Event::WorkerReady { worker }, now, out);
    }

    /// What a worker should close and open next; `None` if it has what it should. One that does not
    /// serve yet is not asked to open the candidate: if that kills it, it should have served.
    fn orders_for(&self, worker: usize) -> Option<(Orders, Option<Arc<Edition>>)> {
        let seat = self.seats.get(worker)?;
        let candidate = self.candidate.as_ref().map(|candidate| &candidate.edition);
        let candidate = candidate.filter(|_| seat.is_ready);
        let wanted = || self.catalog.held().chain(candidate);
        let opens = wanted().find(|edition| !seat.has.contains(&edition.id));
        let is_wanted = |id: &EditionId| wanted().any(|edition| edition.id == *id);
        let closes = seat.has.iter().filter(|id| !is_wanted(id)).copied();
        let closes: Vec<EditionId> = closes.take(CLOSES_MAX).collect();
        if opens.is_none() && closes.is_empty() {
            return None;
        }
        let orders = Orders {
            opens: opens.map(|edition| (edition.id, edition.info.kinds().bits())),
            closes,
        };
        Some((orders, opens.map(Arc::clone)))
    }

    fn order(&mut self, worker: usize, orders: Orders, edition: Option<&Edition>) {
        use std::os::fd::AsFd as _;
        let seat = &mut self.seats[worker];
        let Some(life) = &seat.life else { return };
        let image = edition.map(|edition| edition.image.as_fd());
        if let Err(error) = life.channel.send(&orders.encode(), image) {
            // A worker that is gone is missed soon; one that lives says that no orders came.
            tracing::debug!(worker, %error, "a worker cannot be told its models");
        }
        seat.sequence = Ring::next_sequence(seat.sequence);
        seat.orders = Some(orders);
        life.ring.submit_orders(seat.sequence);
    }

    /// Takes in what became of orders, if a worker is done with them.
    pub(super) fn collect_orders(&mut self, worker: usize, out: &mut Outbox) {
        let Some(seat) = self.seats.get_mut(worker) else {
            return;
        };
        let Some(life) = &seat.life else { return };
        let is_done = life.ring.is_finished(seat.sequence);
        let Some(orders) = seat.orders.take_if(|_| is_done) else {
            return;
        };
        self.is_untended = true;
        let is_followed = life.ring.state(0) == SegmentState::Done;
        let opened = orders.opens.map(|(id, _)| id);
        seat.has.retain(|id| !orders.closes.contains(id));
        if is_followed {
            seat.has.extend(opened);
            return;
        }
        let reason = life.ring.reason();
        if self.is_candidate(opened) {
            self.reject(&format!("worker {worker} cannot open it: {reason}"), out);
            return;
        }
        tracing::error!(worker, %reason, "a worker cannot open a model and is started again");
        let seat = &mut self.seats[worker];
        // It counts as a failed start, so that it does not happen again and again at once.
        seat.is_ready = false;
        // Nothing more is said to it: the doorbell must stay as it is.
        if let Some(life) = seat.life.take() {
            life.ring.stop();
        }
    }

    /// A worker died: if it was opening the candidate, that may be why.
    pub(super) fn blame_candidate(&mut self, orders: &Orders, exit: Exit, out: &mut Outbox) {
        if !self.is_candidate(orders.opens.map(|(id, _)| id)) {
            return;
        }
        let Some(candidate) = &mut self.candidate else {
            return;
        };
        candidate.deaths += 1;
        let deaths = candidate.deaths;
        if deaths >= OPEN_DEATHS_MAX {
            let reason = format!("{deaths} workers died while they opened it, last with {exit}");
            self.reject(&reason, out);
        }
    }

    fn is_candidate(&self, id: Option<EditionId>) -> bool {
        let candidate = self.candidate.as_ref();
        candidate.is_some_and(|candidate| Some(candidate.edition.id) == id)
    }

    /// Promotes the candidate once every worker that serves has it. While none serves nothing is
    /// known of it: it may be what ended them.
    fn promote_if_known(&mut self, out: &mut Outbox) {
        let Some(candidate) = &self.candidate else {
            return;
        };
        let id = candidate.edition.id;
        let mut serving = self.seats.iter().filter(|seat| seat.is_ready).peekable();
        if serving.peek().is_some() && serving.all(|seat| seat.has.contains(&id)) {
            self.promote(out);
        }
    }

    /// Promotes the candidate: for an engine that starts, whose workers open it before they serve.
    pub(super) fn promote(&mut self, out: &mut Outbox) {
        let Some(Candidate { edition, reply, .. }) = self.candidate.take() else {
            return;
        };
        self.is_untended = true;
        out.is_changed = true;
        let slot = edition.slot;
        let installed = if self.catalog.promote(edition) {
            self.forget_costs(slot);
            Ok(())
        } else {
            Err("it is not wanted any more".to_owned())
        };
        out.installed.push((reply, installed));
    }
}

#[cfg(test)]
mod tests;
