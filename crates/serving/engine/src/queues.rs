//! The queues of the scheduler, one per model and output class, and the learned costs of their
//! batches.
//!
//! Contributions cost about a hundred times as much as predictions. In a common queue predictions
//! would wait for contributions (head-of-line blocking), and the cost of a mixed batch would be
//! unpredictable. With separate queues each class has its own costs, and the scheduler compares
//! their deadlines.

use std::time::Duration;

use albacore_batching::deadlines::{CostEstimate, CostLearner};
use albacore_batching::{Nanos, Profile, QueueIndex, Scheduler, Slo};

use super::{Kind, KindSet};
use crate::admission::Admission;
use crate::limits::SLOTS_MAX;

/// Output classes: predictions, contributions, interactions.
pub(super) const CLASSES: usize = 3;

/// Number of queues of all slots.
pub(super) const QUEUES_MAX: usize = SLOTS_MAX * CLASSES;

/// Batches before the learned costs of a queue are used: the first ones may be slow by chance.
const SAMPLES_MIN: u64 = 8;

/// Replaces [`SAMPLES_MIN`] once batches took [`PROFILE_UPDATE_TIME`] in total: until costs are
/// used, every request is admitted.
const LONG_SAMPLES_MIN: u64 = 3;

/// The learned costs are passed to the scheduler after this many more batches.
const PROFILE_UPDATE_PERIOD: u64 = 16;

/// They are passed earlier after batches that took this long in total: if one batch takes 100 ms,
/// admission based on costs of 16 batches ago would be wrong for seconds.
const PROFILE_UPDATE_TIME: Nanos = Nanos(10_000_000);

/// Percentile of an objective; 99 without one.
pub(super) fn percentile_of(objective: Option<Slo>) -> f64 {
    objective.map_or(99.0, |objective| objective.percentile)
}

/// Latency of requests whose most expensive output is of this kind.
pub(super) fn latency_of(slo: &Slo, kind: Kind) -> Duration {
    let own = match kind {
        Kind::Contribs => slo.contribs,
        Kind::Interactions => slo.interactions,
        Kind::Value | Kind::Margin | Kind::Leaf => None,
    };
    own.unwrap_or(slo.latency)
}

/// Learned costs and objective of one queue.
#[derive(Debug)]
struct LearnedQueue {
    learner: CostLearner,
    /// Rows of the largest observed batch.
    largest: usize,
    /// Total time of batches since the costs were last passed to the scheduler.
    unreported_time: Nanos,
    /// Total time of all batches.
    total_time: Nanos,
    objective: Option<Slo>,
    /// Selects the latency within the objective.
    kind: Kind,
}

impl LearnedQueue {
    fn new(kind: Kind, objective: Option<Slo>) -> Self {
        Self {
            learner: CostLearner::new(percentile_of(objective) / 100.0),
            largest: 0,
            unreported_time: Nanos(0),
            total_time: Nanos(0),
            objective,
            kind,
        }
    }

    /// Learns from a batch; returns whether the costs should be passed to the scheduler.
    fn observe(&mut self, rows: usize, service_time: Nanos) -> bool {
        self.learner.observe(rows as u64, service_time);
        self.largest = self.largest.max(rows);
        self.total_time = self.total_time.saturating_add(service_time);
        self.unreported_time = self.unreported_time.saturating_add(service_time);
        let samples = self.learner.estimate().map_or(0, |known| known.samples);
        let is_due = samples == SAMPLES_MIN
            || samples.is_multiple_of(PROFILE_UPDATE_PERIOD)
            || self.unreported_time >= PROFILE_UPDATE_TIME;
        if is_due {
            self.unreported_time = Nanos(0);
        }
        is_due
    }

    fn profile(&self) -> Profile {
        let estimate = self.learner.estimate();
        let samples_min = match self.total_time >= PROFILE_UPDATE_TIME {
            true => LONG_SAMPLES_MIN,
            false => SAMPLES_MIN,
        };
        let trusted = estimate.filter(|estimate| estimate.samples >= samples_min);
        Profile {
            cost: trusted.map(|estimate| estimate.safe),
            mean_cost: trusted.map(|estimate| estimate.line),
            objective: self.objective.map(|slo| latency_of(&slo, self.kind).into()),
        }
    }
}

/// The most expensive kind of each class.
const COSTLIEST: [Kind; CLASSES] = [Kind::Value, Kind::Contribs, Kind::Interactions];

pub(super) fn queues_of(slot: usize) -> impl Iterator<Item = QueueIndex> + Clone {
    (0..CLASSES).map(move |class| QueueIndex(slot * CLASSES + class))
}

pub(super) fn first_queue(slot: usize) -> QueueIndex {
    QueueIndex(slot * CLASSES)
}

/// The queue of a model's requests for these outputs.
pub(super) fn queue_of(slot: usize, kinds: KindSet) -> QueueIndex {
    let class = match kinds.costliest() {
        Some(Kind::Interactions) => 2,
        Some(Kind::Contribs) => 1,
        Some(Kind::Leaf | Kind::Margin | Kind::Value) | None => 0,
    };
    QueueIndex(slot * CLASSES + class)
}

/// The most expensive kind of the requests of a queue.
pub(super) fn kind_of(queue: QueueIndex) -> Kind {
    COSTLIEST[class_of(queue)]
}

pub(super) fn class_of(queue: QueueIndex) -> usize {
    queue.0 % CLASSES
}

pub(super) fn slot_of(queue: QueueIndex) -> usize {
    queue.0 / CLASSES
}

/// The learned costs of all queues.
#[derive(Debug, Default)]
pub(super) struct QueueCosts(Vec<LearnedQueue>);

impl QueueCosts {
    /// Adds the queues of new slots.
    pub(super) fn grow_to(
        &mut self,
        slots: usize,
        scheduler: &mut Scheduler,
        admission: &Admission,
    ) {
        // bound: the queues of each slot are created once.
        while self.0.len() < slots * CLASSES {
            let class = self.0.len() % CLASSES;
            let queue = match class {
                0 => scheduler.add_queue(),
                _ => scheduler.add_sibling(QueueIndex(self.0.len() - class)),
            };
            if let Some(queue_admission) = scheduler.queue_admission(queue) {
                admission.add_queue(queue.0, queue_admission);
            }
            self.0.push(LearnedQueue::new(COSTLIEST[class], None));
        }
    }

    fn of_slot(&mut self, slot: usize) -> impl Iterator<Item = (QueueIndex, &mut LearnedQueue)> {
        let queues = self.0.iter_mut().enumerate().skip(slot * CLASSES);
        queues
            .take(CLASSES)
            .map(|(queue, known)| (QueueIndex(queue), known))
    }

    /// Sets the objective. The learned costs are kept unless the percentile changes.
    pub(super) fn set_objective(
        &mut self,
        slot: usize,
        objective: Option<Slo>,
        scheduler: &mut Scheduler,
    ) {
        for (queue, known) in self.of_slot(slot) {
            match percentile_of(known.objective) == percentile_of(objective) {
                true => known.objective = objective,
                false => *known = LearnedQueue::new(known.kind, objective),
            }
            scheduler.set_profile(queue, known.profile());
        }
    }

    /// Discards the learned costs because another revision has other costs.
    pub(super) fn reset(&mut self, slot: usize, scheduler: &mut Scheduler) {
        for (queue, known) in self.of_slot(slot) {
            *known = LearnedQueue::new(known.kind, known.objective);
            scheduler.set_profile(queue, known.profile());
        }
    }

    /// Learned costs of the classes of a slot that have any, by the most expensive kind of the
    /// class.
    pub(super) fn learned(&self, slot: usize) -> Vec<(Kind, CostEstimate)> {
        let known = self.0.iter().skip(slot * CLASSES).take(CLASSES);
        let learned = known.map(|known| Some((known.kind, known.learner.estimate()?)));
        learned.flatten().collect()
    }

    /// Cost of `rows` rows of a queue in batches of the size under load b: rows l(b)/b. Unlike busy
    /// time it does not depend on the actual batch sizes, so it is proportional to the load. `None`
    /// while the costs are not known.
    pub(super) fn work_of(
        &self,
        queue: QueueIndex,
        rows: usize,
        scheduler: &Scheduler,
    ) -> Option<Nanos> {
        let cost = self.0.get(queue.0)?.learner.prior_line()?;
        let full = scheduler.rows_under_load(queue);
        let of_row = cost.of(full).0 as f64 / full as f64;
        Some(Nanos((of_row * rows as f64) as u64))
    }

    /// Upper estimate of the service time of a batch; `None` while the costs are not known. The
    /// learned line is unreliable for batches larger than the observed ones: such a batch is
    /// assumed to cost as much as several of the largest one.
    pub(super) fn upper_estimate(
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

    /// Records the service time of a batch of `rows` rows.
    pub(super) fn observe(
        &mut self,
        queue: QueueIndex,
        rows: usize,
        service_time: Nanos,
        scheduler: &mut Scheduler,
    ) {
        let Some(known) = self.0.get_mut(queue.0) else {
            return;
        };
        if known.observe(rows, service_time) {
            scheduler.set_profile(queue, known.profile());
        }
    }
}

#[cfg(test)]
mod tests;
