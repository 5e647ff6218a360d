//! The queues of the scheduler: for each slot of a model one for each class of outputs, and what is
//! learned of the costs of their batches.
//!
//! Contributions cost a hundred times what predictions do. In one queue the ones would wait for the
//! others and a batch of both would cost what nobody can foresee; in queues of their own each has
//! its own costs, and the scheduler weighs their deadlines against each other.

use std::time::Duration;

use albacore_batching::deadlines::{CostEstimate, CostLearner};
use albacore_batching::{Nanos, Profile, QueueIndex, Scheduler};

use super::{Kind, KindSet, Objective};

/// Classes of outputs: predictions, contributions, interactions.
const CLASSES: usize = 3;

/// Batches after which a queue's costs are believed: before, the first ones may be slow by chance.
const SAMPLES_MIN: u64 = 8;

/// The scheduler is told what was learned after so many batches more.
const PROFILE_UPDATE_PERIOD: u64 = 16;

/// The percentile of an objective; 99 where there is none.
pub(super) fn percentile_of(objective: Option<Objective>) -> f64 {
    objective.map_or(99.0, |objective| objective.percentile)
}

/// What is known of one queue.
#[derive(Debug)]
struct QueueState {
    learner: CostLearner,
    /// Rows of the largest batch that was learned from.
    largest: usize,
    objective: Option<Objective>,
    /// Whose time of the objective it has.
    kind: Kind,
}

impl QueueState {
    fn new(kind: Kind, objective: Option<Objective>) -> Self {
        Self {
            learner: CostLearner::new(percentile_of(objective) / 100.0),
            largest: 0,
            objective,
            kind,
        }
    }

    fn profile(&self) -> Profile {
        let estimate = self.learner.estimate();
        let believed = estimate.filter(|estimate| estimate.samples >= SAMPLES_MIN);
        Profile {
            cost: believed.map(|estimate| estimate.safe),
            objective: self.objective.map(|slo| nanos(slo.latency_of(self.kind))),
        }
    }
}

fn nanos(time: Duration) -> Nanos {
    Nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// The costliest kinds of the classes.
const COSTLIEST: [Kind; CLASSES] = [Kind::Value, Kind::Contribs, Kind::Interactions];

/// The queues of a slot.
pub(super) fn queues_of(slot: usize) -> impl Iterator<Item = QueueIndex> {
    (0..CLASSES).map(move |class| QueueIndex(slot * CLASSES + class))
}

/// The queue of requests of a model for these outputs.
pub(super) fn queue_of(slot: usize, kinds: KindSet) -> QueueIndex {
    let class = match kinds.costliest() {
        Some(Kind::Interactions) => 2,
        Some(Kind::Contribs) => 1,
        Some(Kind::Leaf | Kind::Margin | Kind::Value) | None => 0,
    };
    QueueIndex(slot * CLASSES + class)
}

/// The slot of a queue.
pub(super) fn slot_of(queue: QueueIndex) -> usize {
    queue.0 / CLASSES
}

/// What is known of all queues.
#[derive(Debug, Default)]
pub(super) struct Queues(Vec<QueueState>);

impl Queues {
    /// Makes the queues of so many slots.
    pub(super) fn grow_to(&mut self, slots: usize, scheduler: &mut Scheduler) {
        // bound: the queues of each slot are made once.
        while self.0.len() < slots * CLASSES {
            let kind = COSTLIEST[self.0.len() % CLASSES];
            self.0.push(QueueState::new(kind, None));
            scheduler.add_queue();
        }
    }

    fn of_slot(&mut self, slot: usize) -> impl Iterator<Item = (QueueIndex, &mut QueueState)> {
        let queues = self.0.iter_mut().enumerate().skip(slot * CLASSES);
        queues
            .take(CLASSES)
            .map(|(queue, known)| (QueueIndex(queue), known))
    }

    /// Another objective. What was learned stays, unless it was learned for another percentile.
    pub(super) fn set_objective(
        &mut self,
        slot: usize,
        objective: Option<Objective>,
        scheduler: &mut Scheduler,
    ) {
        for (queue, known) in self.of_slot(slot) {
            match percentile_of(known.objective) == percentile_of(objective) {
                true => known.objective = objective,
                false => *known = QueueState::new(known.kind, objective),
            }
            scheduler.set_profile(queue, known.profile());
        }
    }

    /// Another edition costs something else.
    pub(super) fn forget(&mut self, slot: usize, scheduler: &mut Scheduler) {
        for (queue, known) in self.of_slot(slot) {
            *known = QueueState::new(known.kind, known.objective);
            scheduler.set_profile(queue, known.profile());
        }
    }

    /// What batches of a slot cost, by the costliest kind of their class, of the classes that were
    /// seen.
    pub(super) fn learned(&self, slot: usize) -> Vec<(Kind, CostEstimate)> {
        let known = self.0.iter().skip(slot * CLASSES).take(CLASSES);
        let learned = known.map(|known| Some((known.kind, known.learner.estimate()?)));
        learned.flatten().collect()
    }

    /// How long a batch of so many rows takes at most by what was seen; `None` while nothing is
    /// believed. What is known of small batches may say nothing of the rows of large ones: beyond
    /// the largest that was seen, it is as if more of those ran one after the other.
    pub(super) fn longest(
        &self,
        queue: QueueIndex,
        rows: usize,
        scheduler: &Scheduler,
    ) -> Option<Nanos> {
        let cost = scheduler.profile(queue).cost?;
        let largest = self.0.get(queue.0).map_or(1, |known| known.largest.max(1));
        let times = rows.div_ceil(largest).max(1) as u64;
        let one = cost.of(rows.min(largest) as u64);
        Some(Nanos(one.0.saturating_mul(times)))
    }

    /// A batch is done.
    pub(super) fn observe(
        &mut self,
        queue: QueueIndex,
        rows: usize,
        took: Nanos,
        scheduler: &mut Scheduler,
    ) {
        let Some(known) = self.0.get_mut(queue.0) else {
            return;
        };
        known.learner.observe(rows as u64, took);
        known.largest = known.largest.max(rows);
        let samples = known
            .learner
            .estimate()
            .map_or(0, |learned| learned.samples);
        if samples == SAMPLES_MIN || samples.is_multiple_of(PROFILE_UPDATE_PERIOD) {
            scheduler.set_profile(queue, known.profile());
        }
    }
}
