//! Shares of the front's time: between models by weight, between the kinds of output of one
//! equally.
//!
//! **Problem.** Where more requests arrive than the front can read and answer, some must be refused
//! by it although the workers could serve them. A model that asks for less than its share of the
//! front's time should not notice.
//!
//! **Approach.** The work of each model is counted, whatever becomes of its requests, and decays.
//! While the front is overloaded requests of models that take more than their share of the work are
//! refused, and likewise of its kinds. A client that is refused may send the next request at once,
//! and refusals take as much of the front's time as answers do where these are short: so refusals
//! and errors of a model leave at a bounded pace, [`ERROR_SHARE`] of the front's time by its
//! measured cost for a request, but never later than [`HOLD_MAX`].
//!
//! **Limits.** Work is estimated from sizes ([`BYTES_PER_REQUEST`]); only its ratios count.

use std::time::Duration;

use albacore_batching::auto::FrontCost;
use albacore_batching::{DEFAULT_WEIGHT, Nanos, QueueIndex};

use super::State;
use crate::limits::{BYTES_PER_REQUEST, ERROR_SHARE, ERRORS_AT_ONCE, FRONT_WINDOW, HOLD_MAX};
use crate::queues::{CLASSES, class_of, queues_of, slot_of};

/// A model with less than this part of all work does not reduce the shares of others.
const ACTIVE_PART: f64 = 0.001;

#[derive(Clone, Debug)]
struct SlotWork {
    weight: u32,
    /// In requests, decayed, by class of outputs.
    work: [f64; CLASSES],
    /// When the next error may leave.
    next_error: Nanos,
}

impl SlotWork {
    fn all(&self) -> f64 {
        self.work.iter().sum()
    }
}

/// The work of the front by slot of a model.
#[derive(Debug, Default)]
pub(super) struct FrontShares {
    slots: Vec<SlotWork>,
    total: f64,
    decayed: Nanos,
}

impl FrontShares {
    /// Another model has the slot.
    pub(super) fn start_slot(&mut self, slot: usize) {
        let unused = SlotWork {
            weight: DEFAULT_WEIGHT,
            work: [0.0; CLASSES],
            next_error: Nanos(0),
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

    /// The front read a request for a queue with so many bytes, or will write them.
    pub(super) fn record(&mut self, queue: QueueIndex, requests: u32, bytes: usize, now: Nanos) {
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
            let work = f64::from(requests) + bytes as f64 / BYTES_PER_REQUEST as f64;
            of.work[class_of(queue)] += work;
            self.total += work;
        }
    }

    /// The front read a request of a model of which the outputs are not known: most likely what
    /// most of the work is for.
    fn record_unread(&mut self, slot: usize, now: Nanos) {
        let Some(of) = self.slots.get(slot) else {
            return;
        };
        let most = queues_of(slot).max_by(|&a, &b| {
            let work = |queue| of.work[class_of(queue)];
            work(a).total_cmp(&work(b))
        });
        if let Some(queue) = most {
            self.record(queue, 1, 0, now);
        }
    }

    /// The part of the front's time that is a model's by weight.
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

    /// Whether requests for a queue take less than its share: an equal part of that of its model.
    /// One that is alone never does.
    pub(super) fn is_within(&self, queue: QueueIndex) -> bool {
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

    /// Whether a request of a model of which the outputs are not known may be for a queue that is
    /// within its share.
    pub(super) fn may_be_within(&self, slot: usize) -> bool {
        let work = |queue| {
            let of = self.slots.get(slot);
            of.map_or(0.0, |of| of.work[class_of(queue)])
        };
        let active = queues_of(slot).filter(|&queue| self.is_active(work(queue)));
        let any = active.clone().next().is_some();
        !any || active.clone().any(|queue| self.is_within(queue))
    }

    /// For how long an error of a model should be held.
    fn hold(&mut self, slot: usize, cost: FrontCost, now: Nanos) -> Duration {
        let per_second = cost.requests_per_second() * ERROR_SHARE * self.share(slot);
        let Some(of) = self.slots.get_mut(slot) else {
            return Duration::ZERO;
        };
        let period = (1e9 / per_second.max(1.0)) as u64;
        let earliest = now.saturating_sub(Nanos(period * ERRORS_AT_ONCE));
        let latest = now.saturating_add(Nanos::from(HOLD_MAX));
        let leaves = of.next_error.max(earliest).saturating_add(Nanos(period));
        of.next_error = leaves.min(latest);
        Duration::from_nanos(of.next_error.saturating_sub(now).0)
    }
}

impl State {
    /// A request of this model was refused before its outputs were known.
    pub(super) fn count_unread(&mut self, slot: usize, now: Nanos) {
        self.front_cost.count();
        self.front_shares.record_unread(slot, now);
    }

    /// A request of this model ends without a result; how long its reply should be held.
    /// `is_counted`: admission has refused it.
    pub(crate) fn hold_error(&mut self, name: &str, is_counted: bool, now: Nanos) -> Duration {
        let slot = self.catalog.slot_of(name);
        if let Some(slot) = slot.filter(|_| !is_counted) {
            self.count_unread(slot, now);
        }
        match slot.zip(self.front_cost.cost()) {
            Some((slot, cost)) => self.front_shares.hold(slot, cost, now),
            None => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COST: FrontCost = FrontCost {
        per_request: Nanos(20_000),
        threads: 2,
    };

    fn shares(weights: &[u32]) -> FrontShares {
        let mut shares = FrontShares::default();
        for (slot, &weight) in weights.iter().enumerate() {
            shares.start_slot(slot);
            shares.set_weight(slot, weight);
        }
        shares
    }

    /// The queue of a model's predictions.
    const fn queue(slot: usize) -> QueueIndex {
        QueueIndex(slot * CLASSES)
    }

    #[test]
    fn a_model_is_within_its_share_by_weight_and_alone_it_never_is() {
        let mut shares = shares(&[100, 300]);
        assert!(shares.may_be_within(0), "nothing is known");
        shares.record(queue(1), 30, 0, Nanos(0));
        assert!(!shares.is_within(queue(1)), "alone");
        assert!(shares.is_within(queue(0)));
        shares.record(queue(0), 9, 0, Nanos(0));
        let within = |shares: &FrontShares| [0, 1].map(|slot| shares.is_within(queue(slot)));
        assert_eq!(within(&shares), [true, false], "9 of 39");
        shares.record(queue(0), 2, 0, Nanos(0));
        assert_eq!(within(&shares), [false, true], "11 of 41");
        shares.record(queue(1), 0, 100 * BYTES_PER_REQUEST, Nanos(0));
        assert_eq!(within(&shares), [true, false], "bytes are work, too");
        let later = Nanos(20 * FRONT_WINDOW.0);
        shares.record(queue(0), 1, 0, later);
        assert!(
            !shares.is_within(queue(0)),
            "what was long ago is forgotten"
        );
    }

    #[test]
    fn a_kind_within_its_part_of_the_share_is_not_refused_for_another_of_its_model() {
        let (few, many) = (QueueIndex(0), QueueIndex(1));
        let mut shares = shares(&[100]);
        (0..100).for_each(|_| shares.record(many, 1, 0, Nanos(0)));
        assert!(!shares.is_within(many) && !shares.may_be_within(0));
        shares.record(few, 10, 0, Nanos(0));
        assert!(shares.is_within(few) && !shares.is_within(many));
        assert!(shares.may_be_within(0), "its body has to be read");
        (0..50).for_each(|_| shares.record_unread(0, Nanos(0)));
        assert!(shares.is_within(few) && !shares.is_within(many));
        shares.record(few, 200, 0, Nanos(0));
        assert!(!shares.is_within(few) && shares.is_within(many));
    }

    #[test]
    fn errors_leave_at_their_pace_and_none_is_held_for_long() {
        let mut shares = shares(&[100, 100]);
        shares.record(queue(0), 1000, 0, Nanos(0));
        // 100,000 requests a second; a tenth of them may be errors.
        let start = 1_000_000_000;
        let mut left = Vec::new();
        for number in 0..500_u64 {
            let now = start + number * 10_000;
            let held = shares.hold(0, COST, Nanos(now));
            assert!(held <= HOLD_MAX);
            left.push(now + held.as_nanos() as u64);
        }
        // The bound on the hold is not reached in these 5 ms.
        let last = left[left.len() - 1] - start;
        let allowed = (last as f64 * 1e-9 * 100_000.0 * ERROR_SHARE) as u64 + ERRORS_AT_ONCE + 1;
        assert!(left.len() as u64 <= allowed, "{} of {allowed}", left.len());
        let few = shares.hold(1, COST, Nanos(start));
        assert_eq!(few, Duration::ZERO, "another model's errors");
    }
}
