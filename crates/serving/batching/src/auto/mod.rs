//! The policy `auto`: decides which queues are deferred, from measured costs and arrivals.
//!
//! **Problem.** Deferred batches are larger: they sustain a higher rate and leave workers idle in
//! proportion to the load, but requests wait for most of their objective. Eager batches minimize
//! latency.
//!
//! **Approach.** [`Forecast`] computes both. A queue with bursty arrivals is eager: the closed
//! forms hold for even arrivals, and bursts make large batches without waiting. Of the other
//! queues, [`Prefer::IdleWorkers`] defers all. [`Prefer::ShortWaits`] defers a queue if that gains
//! at least `GAIN_MIN` of goodput, and only while the measured load of all queues exceeds what
//! eager batches sustain. The drop rule targets the deferred batch size if the gain is that large,
//! and otherwise the eager one, which leaves more slack for random variation.
//!
//! Decisions are made every `DECISION_PERIOD`, and a queue changes at most every `CHANGE_PERIOD`;
//! every threshold has a lower one for the way back (hysteresis). Clients that wait for a reply
//! before they send the next request send less while deferred, which removes the load that caused
//! the deferral: a deferral that ends within `FAILED_WITHIN` is not tried again for `RETRY_MIN`,
//! and for twice as long each further time.
//!
//! **Limits.** Gains are computed as if each queue had all workers to itself.

mod arrivals;
mod choice;
mod forecast;

pub use choice::{Choice, ChoiceReason, Prefer};
pub use forecast::{Forecast, FrontCost, QueueingModel, gathered_rows};

use crate::deadlines::{Cost, Release};
use crate::{Nanos, QueueIndex};
use arrivals::ArrivalMeter;

const SECOND: u64 = 1_000_000_000;

/// How often decisions are made.
const DECISION_PERIOD: Nanos = Nanos(SECOND);

/// Minimum time between changes of the choice for a queue.
const CHANGE_PERIOD: Nanos = Nanos(5 * SECOND);

/// Hysteresis: a threshold at which a state begins, and the lower one at which it ends.
struct HysteresisThresholds {
    begin: f64,
    end: f64,
}

impl HysteresisThresholds {
    fn holds(&self, value: f64, held: bool) -> bool {
        value >= if held { self.end } else { self.begin }
    }
}

/// Minimum gain in goodput, by the closed forms, that justifies deferring: below it, eager batches
/// of a shared queue measured as good as deferred ones or better.
const GAIN_MIN: HysteresisThresholds = HysteresisThresholds {
    begin: 0.12,
    end: 0.1,
};

/// The load, as a fraction of what eager batches sustain, above which short waits are given up.
const LOAD_MIN: HysteresisThresholds = HysteresisThresholds {
    begin: 1.0,
    end: 0.9,
};

/// Arrivals with a larger index of dispersion are bursty.
const DISPERSION_MAX: HysteresisThresholds = HysteresisThresholds {
    begin: 4.0,
    end: 3.0,
};

/// A deferral that ends sooner has failed.
const FAILED_WITHIN: Nanos = Nanos(30 * SECOND);

/// How long it is not tried again: initially, and at most.
const RETRY_MIN: Nanos = Nanos(60 * SECOND);
const RETRY_MAX: Nanos = Nanos(960 * SECOND);

/// How long before frontrun a deferred window opens, as one part in this many of the objective:
/// timers and wakeups take time, and a window of one alpha may be too short for a worker to become
/// free in it.
const EARLY_PART: u64 = 20;

/// Release rule of deferred queues with this objective; `window` bounds the wait.
#[must_use]
pub fn deferred(objective: Nanos, window: Option<Nanos>) -> Release {
    let early = Nanos(objective.0 / EARLY_PART);
    Release::Deferred { early, window }
}

/// Known properties of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueProperties {
    /// Cost of a batch, with a safety margin; `None` while unknown.
    pub cost: Option<Cost>,
    /// Mean cost of a batch.
    pub mean_cost: Option<Cost>,
    /// From arrival to deadline; `None` for requests without a deadline.
    pub objective: Option<Nanos>,
    /// The preference; `None` for a queue with another policy, which only counts as load.
    pub prefer: Option<Prefer>,
    /// Most rows of a batch.
    pub rows_max: u64,
    /// Longest wait of a request in a deferred batch.
    pub window: Option<Nanos>,
}

#[derive(Clone, Debug)]
struct AutoQueue {
    arrivals: ArrivalMeter,
    choice: Choice,
    is_worthwhile: bool,
    is_bursty: bool,
    /// The choice last reported by [`AutoPolicy::take_changed`].
    reported: Option<bool>,
    /// When the choice last changed.
    changed: Option<Nanos>,
    /// Earliest time of the next deferral, and the length of the next such pause.
    retry_at: Nanos,
    retry_after: Nanos,
}

impl Default for AutoQueue {
    fn default() -> Self {
        Self {
            arrivals: ArrivalMeter::new(None),
            choice: Choice::default(),
            is_worthwhile: false,
            is_bursty: false,
            reported: None,
            changed: None,
            retry_at: Nanos(0),
            retry_after: RETRY_MIN,
        }
    }
}

/// Conditions common to all queues.
#[derive(Clone, Copy)]
struct Conditions {
    load: f64,
    now: Nanos,
}

/// The choices for all queues of a scheduler.
#[derive(Clone, Debug, Default)]
pub struct AutoPolicy {
    queues: Vec<AutoQueue>,
    front: Option<FrontCost>,
    next: Nanos,
}

impl AutoPolicy {
    pub fn add_queue(&mut self) {
        self.queues.push(AutoQueue::default());
    }

    /// Sets the measured cost of the front end.
    pub fn set_front_cost(&mut self, front: Option<FrontCost>) {
        self.front = front;
    }

    /// Discards the statistics of a queue that is used for something else now.
    pub fn reset(&mut self, queue: QueueIndex) {
        if let Some(queue) = self.queues.get_mut(queue.0) {
            *queue = AutoQueue::default();
        }
    }

    /// The choice for a queue; eager while nothing is known of it.
    #[must_use]
    pub fn choice(&self, queue: QueueIndex) -> Choice {
        let queue = self.queues.get(queue.0);
        queue.map(|queue| queue.choice).unwrap_or_default()
    }

    /// The queues whose choice has changed since the last call, except those of which nothing is
    /// known yet.
    pub fn take_changed(&mut self) -> impl Iterator<Item = QueueIndex> {
        let queues = self.queues.iter_mut().enumerate();
        queues.filter_map(|(index, queue)| {
            let Choice {
                is_deferred,
                reason,
                ..
            } = queue.choice;
            let is_changed = reason != ChoiceReason::Unknown && queue.reported != Some(is_deferred);
            is_changed.then(|| {
                queue.reported = Some(is_deferred);
                QueueIndex(index)
            })
        })
    }

    /// Records an arrival.
    pub fn arrived(&mut self, queue: QueueIndex, rows: u64, now: Nanos) {
        if let Some(queue) = self.queues.get_mut(queue.0) {
            queue.arrivals.arrived(rows, now);
        }
    }

    /// Whether [`AutoPolicy::decide`] is due.
    #[must_use]
    pub fn is_due(&self, now: Nanos) -> bool {
        now >= self.next
    }

    /// Makes a decision due, without regard to the last change, because the policy of a queue has
    /// changed.
    pub fn make_due(&mut self, queue: QueueIndex) {
        self.next = Nanos(0);
        if let Some(queue) = self.queues.get_mut(queue.0) {
            queue.changed = None;
        }
    }

    /// Decides for all queues; `facts` are in queue order.
    pub fn decide(&mut self, facts: &[QueueProperties], workers: usize, now: Nanos) {
        self.next = now.saturating_add(DECISION_PERIOD);
        let front = self.front;
        let mut work = 0.0;
        for (queue, facts) in self.queues.iter_mut().zip(facts) {
            queue.measure(facts, now);
            queue.choice.forecast = queue.forecast(facts, workers, front);
            work += queue.choice.forecast.map_or(0.0, |known| known.eager_work);
        }
        let load = work / workers.max(1) as f64;
        let conditions = Conditions { load, now };
        for (queue, facts) in self.queues.iter_mut().zip(facts) {
            if let Some(prefer) = facts.prefer {
                queue.decide(prefer, conditions);
            }
        }
    }
}

impl AutoQueue {
    fn measure(&mut self, facts: &QueueProperties, now: Nanos) {
        self.arrivals.set_objective(facts.objective);
        self.arrivals.advance(now);
        self.choice.dispersion = self.arrivals.dispersion();
        self.is_bursty = DISPERSION_MAX.holds(self.choice.dispersion, self.is_bursty);
    }

    fn forecast(
        &self,
        facts: &QueueProperties,
        workers: usize,
        front: Option<FrontCost>,
    ) -> Option<Forecast> {
        let rate = self.arrivals.rows_per_second();
        (rate > 0.0).then_some(())?;
        Some(Forecast::of(&QueueingModel {
            cost: facts.cost?,
            mean_cost: facts.mean_cost?,
            objective: facts.objective?,
            workers,
            rows_max: facts.rows_max,
            window: facts.window,
            rate,
            rows_per_request: self.arrivals.rows_per_request(),
            front,
        }))
    }

    fn decide(&mut self, prefer: Prefer, conditions: Conditions) {
        let Conditions { load, now, .. } = conditions;
        self.choice.load = load;
        let Some(forecast) = self.choice.forecast else {
            // No arrivals, or no costs yet: only the reason changes.
            if !self.choice.is_deferred {
                self.choice.reason = ChoiceReason::Unknown;
            }
            return;
        };
        self.is_worthwhile = GAIN_MIN.holds(forecast.goodput_gain(), self.is_worthwhile);
        let (is_deferred, reason) = self.desired_choice(prefer, conditions);
        let is_change = is_deferred != self.choice.is_deferred;
        let may_change = |changed: Nanos| now.saturating_sub(changed) >= CHANGE_PERIOD;
        if !is_change {
            self.choice.reason = reason;
        } else if self.changed.is_none_or(may_change) {
            self.change(is_deferred, reason, now);
        }
        self.choice.target_rows = Some(match self.choice.is_deferred && self.is_worthwhile {
            true => forecast.gathered_rows,
            false => forecast.eager_rows,
        });
    }

    /// The wanted choice, and its reason.
    fn desired_choice(&self, prefer: Prefer, conditions: Conditions) -> (bool, ChoiceReason) {
        let is_deferred = self.choice.is_deferred;
        if self.is_bursty {
            return (false, ChoiceReason::Bursts);
        }
        match prefer {
            Prefer::IdleWorkers => (true, ChoiceReason::IdleWorkersPreferred),
            Prefer::ShortWaits if !self.is_worthwhile => (false, ChoiceReason::SmallGain),
            Prefer::ShortWaits if conditions.now < self.retry_at => {
                (false, ChoiceReason::ClientsWait)
            }
            Prefer::ShortWaits if LOAD_MIN.holds(conditions.load, is_deferred) => {
                (true, ChoiceReason::Overload)
            }
            Prefer::ShortWaits => (false, ChoiceReason::LowLoad),
        }
    }

    fn change(&mut self, is_deferred: bool, reason: ChoiceReason, now: Nanos) {
        if self.choice.reason == ChoiceReason::Overload && reason == ChoiceReason::LowLoad {
            let since = self.changed.unwrap_or(now);
            self.retry_after = match now.saturating_sub(since) < FAILED_WITHIN {
                true => {
                    self.retry_at = now.saturating_add(self.retry_after);
                    Nanos(self.retry_after.0 * 2).min(RETRY_MAX)
                }
                false => RETRY_MIN,
            };
        }
        self.changed = Some(now);
        (self.choice.is_deferred, self.choice.reason) = (is_deferred, reason);
    }
}

impl Choice {
    /// Release rule of a queue with this objective; `window` bounds the wait while deferred.
    #[must_use]
    pub fn release(&self, objective: Nanos, window: Option<Nanos>) -> Release {
        match self.is_deferred {
            true => deferred(objective, window),
            false => Release::Eager,
        }
    }

    /// The batch size that the drop rule targets: without a forecast, the largest batch that takes
    /// half of the objective.
    #[must_use]
    pub fn target_rows(&self, cost: &Cost, objective: Nanos) -> u64 {
        let half = || cost.rows_within(Nanos(objective.0 / 2));
        self.target_rows.unwrap_or_else(half).max(1)
    }
}

#[cfg(test)]
mod tests;
