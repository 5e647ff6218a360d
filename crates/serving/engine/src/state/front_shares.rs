//! Fair sharing of the front's time: between models by weight, and equally between the output kinds
//! of a model.
//!
//! **Problem.** If more requests arrive than the front can read and answer, the front must reject
//! some even though the workers could serve them. A model that demands less than its share of the
//! front's time should not be affected.
//!
//! **Approach.** The work of each model is counted, regardless of the outcome of its requests, and
//! decays exponentially. While requests take more time in the front than
//! [`crate::front_time_limit`] allows, those of models that exceed their share of the work are
//! rejected; the same holds for the kinds of a model. A rejected client may send the next request
//! immediately, and rejections take as much of the front's time as short replies do: so if there
//! are many ([`ErrorRate`]), rejections and errors of a model are paced to [`ERROR_SHARE`] of the
//! front's time, by its measured cost per error, but held no longer than
//! [`crate::limits::HOLD_MAX`].
//!
//! Requests are counted and judged by [`crate::admission`] without the lock of the state; every
//! [`crate::limits::ADMISSION_PERIOD`] its counts are collected and the shares are published.
//!
//! **Limits.** Work is estimated from sizes ([`BYTES_PER_REQUEST`]); only its ratios matter.

use albacore_batching::auto::FrontCost;
use albacore_batching::{DEFAULT_WEIGHT, Nanos, QueueIndex};

use super::State;
use super::error_rate::ErrorRate;
use crate::admission::{FrontShare, WorkersShape};
use crate::limits::{BYTES_PER_REQUEST, ERROR_SHARE, FRONT_WINDOW};
use crate::queues::{CLASSES, class_of, queues_of, slot_of};

/// A model with less than this fraction of all work does not reduce the shares of others.
const ACTIVE_PART: f64 = 0.001;

#[derive(Clone, Debug)]
struct SlotWork {
    weight: u32,
    /// Work in units of requests, decayed, by output class.
    work: [f64; CLASSES],
    error_rate: ErrorRate,
}

impl SlotWork {
    fn all(&self) -> f64 {
        self.work.iter().sum()
    }
}

/// Work of the front by model slot.
#[derive(Debug, Default)]
pub(super) struct FrontShares {
    slots: Vec<SlotWork>,
    total: f64,
    decayed: Nanos,
    /// Work since [`FrontShares::take_recorded`], not decayed.
    recorded: f64,
}

impl FrontShares {
    /// Resets a slot because another model uses it now.
    pub(super) fn start_slot(&mut self, slot: usize) {
        let unused = SlotWork {
            weight: DEFAULT_WEIGHT,
            work: [0.0; CLASSES],
            error_rate: ErrorRate::default(),
        };
        if self.slots.len() <= slot {
            self.slots.resize(slot + 1, unused.clone());
        }
        self.slots[slot] = unused;
    }

    pub(super) fn set_weight(&mut self, slot: usize, weight: u32) {
        if let Some(of) = self.slots.get_mut(slot) {
            of.weight = weight.max(1);
        }
    }

    /// Records requests of a queue that the front has read, and bytes that it has read or will
    /// write.
    pub(super) fn record(&mut self, queue: QueueIndex, requests: u64, bytes: usize, now: Nanos) {
        let age = now.saturating_sub(self.decayed);
        // A hundredth of the window changes no share noticeably.
        if age.0 >= FRONT_WINDOW.0 / 100 {
            let decay = (-(age.0 as f64) / FRONT_WINDOW.0 as f64).exp();
            let work = self.slots.iter_mut().flat_map(|of| &mut of.work);
            work.for_each(|work| *work *= decay);
            self.total = self.slots.iter().map(SlotWork::all).sum();
            self.decayed = now;
        }
        if let Some(of) = self.slots.get_mut(slot_of(queue)) {
            let work = requests as f64 + bytes as f64 / BYTES_PER_REQUEST as f64;
            of.work[class_of(queue)] += work;
            self.total += work;
            self.recorded += work;
        }
    }

    /// Returns the work since the last call, in units of requests without rows and results.
    pub(super) fn take_recorded(&mut self) -> f64 {
        std::mem::take(&mut self.recorded)
    }

    /// Records requests of a model with unknown outputs; they are attributed to the class with most
    /// work.
    fn record_unread(&mut self, slot: usize, requests: u64, now: Nanos) {
        let Some(of) = self.slots.get(slot) else {
            return;
        };
        let most = queues_of(slot).max_by(|&a, &b| {
            let work = |queue| of.work[class_of(queue)];
            work(a).total_cmp(&work(b))
        });
        if let Some(queue) = most {
            self.record(queue, requests, 0, now);
        }
    }

    /// Records rejections and other errors of a model; `cost` is that of an error.
    fn record_errors(&mut self, slot: usize, errors: u64, cost: Option<FrontCost>, now: Nanos) {
        let share = self.share(slot);
        if let Some((of, cost)) = self.slots.get_mut(slot).zip(cost) {
            of.error_rate.record(errors, share, cost, now);
        }
    }

    /// A model's share of the front's time by weight.
    fn share(&self, slot: usize) -> f64 {
        let weight = |at: usize, of: &SlotWork| match at == slot || self.is_active(of.all()) {
            true => f64::from(of.weight),
            false => 0.0,
        };
        let slots = self.slots.iter().enumerate();
        let all: f64 = slots.map(|(at, of)| weight(at, of)).sum();
        let own = self.slots.get(slot).map_or(0.0, |of| f64::from(of.weight));
        own / all.max(1.0)
    }

    fn is_active(&self, work: f64) -> bool {
        work > ACTIVE_PART * self.total
    }

    /// Whether requests of a queue use less than its share, an equal part of that of its model. A
    /// queue without competitors never does.
    fn is_within_share(&self, queue: QueueIndex) -> bool {
        let Some(of) = self.slots.get(slot_of(queue)) else {
            return false;
        };
        let classes = of.work.iter().enumerate();
        let active = classes
            .filter(|&(class, &work)| class == class_of(queue) || self.is_active(work))
            .count();
        let share = self.share(slot_of(queue)) / active as f64;
        share < 1.0 && of.work[class_of(queue)] < share * self.total
    }

    /// Whether a request of a model with unknown outputs may be for a queue within its share.
    fn may_be_within_share(&self, slot: usize) -> bool {
        let work = |queue| {
            let of = self.slots.get(slot);
            of.map_or(0.0, |of| of.work[class_of(queue)])
        };
        let active = queues_of(slot).filter(|&queue| self.is_active(work(queue)));
        let any = active.clone().next().is_some();
        !any || active.clone().any(|queue| self.is_within_share(queue))
    }

    fn are_errors_held(&self, slot: usize) -> bool {
        let of = self.slots.get(slot);
        of.is_some_and(|of| of.error_rate.are_held())
    }

    /// The values that admission reads about a model; `cost` is that of an error.
    fn front_share(&self, slot: usize, cost: Option<FrontCost>) -> FrontShare {
        let mut queues = queues_of(slot);
        FrontShare {
            within_share: std::array::from_fn(|_| {
                queues.next().is_some_and(|it| self.is_within_share(it))
            }),
            may_be_within_share: self.may_be_within_share(slot),
            error_period: cost.filter(|_| self.are_errors_held(slot)).map(|cost| {
                let per_second = cost.requests_per_second() * ERROR_SHARE * self.share(slot);
                Nanos((1e9 / per_second.max(1.0)) as u64)
            }),
        }
    }
}

impl State {
    /// Collects the counts of admission.
    pub(crate) fn take_admission_counts(&mut self, now: Nanos) {
        for slot in 0..self.catalog.slots() {
            let counts = self.admission.take_counts(slot);
            let mut requests = counts.unread;
            let errors = counts.errors();
            let cost = self.front_cost.error_cost();
            self.front_shares.record_errors(slot, errors, cost, now);
            if counts.unread > 0 {
                self.front_shares.record_unread(slot, counts.unread, now);
            }
            for (queue, of) in queues_of(slot).zip(counts.requests) {
                if of > 0 {
                    self.front_shares.record(queue, of, 0, now);
                    requests += of;
                }
            }
            self.front_cost.count(requests);
            for (kind, count) in counts.shed {
                self.counters.count_shed(slot, kind, count, now);
            }
        }
    }

    /// Publishes the shares for admission, if due.
    pub(crate) fn refresh_admission(&mut self, now: Nanos) {
        if !self.admission.is_due(now) {
            return;
        }
        self.admission.set_refreshed(now);
        self.take_admission_counts(now);
        self.admission.front_time_limit.adapt(now);
        self.scheduler.refresh(now);
        let cost = self.front_cost.error_cost();
        for slot in 0..self.catalog.slots() {
            let share = self.front_shares.front_share(slot, cost);
            self.admission.publish_share(slot, &share);
        }
        self.admission.publish_workers(WorkersShape {
            ready: self.workers.ready(),
            is_crash_looping: self.workers.is_crash_looping(),
            nanos_per_row: self.counters.nanos_per_row(),
        });
    }
}

#[cfg(test)]
mod tests;
