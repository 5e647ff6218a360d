//! The release rule of all queues, and what a queue's batches cost and may take.

use crate::Nanos;
use crate::deadlines::{Cost, DropRule, QueueParams, Release, Target};

/// When a batch leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The scheduler's own choice: at present as soon as a worker is free.
    Auto,
    /// As late as the objective allows; as soon as a worker is free where no objective is known.
    Deferred,
    /// As soon as a worker is free.
    Eager,
    /// When the oldest request has waited for `delay`, or when no further request fits.
    Timeout {
        /// How long the oldest request waits.
        delay: Nanos,
    },
}

/// The release rule and the bounds of all queues. May change while the server runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchingParams {
    pub policy: Policy,
    /// Most rows of a batch; a request with more is a batch of its own.
    pub batch_rows_max: usize,
    /// Most rows that are reserved or wait.
    pub queue_rows_max: usize,
}

/// What is known of the requests of a queue. Only a queue of which both are known has deadlines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// What a batch costs, with the margin that is to be kept.
    pub cost: Option<Cost>,
    /// From arrival to deadline.
    pub objective: Option<Nanos>,
}

impl Profile {
    /// Whether requests of the queue can be late.
    #[must_use]
    pub fn has_deadlines(&self) -> bool {
        self.cost.is_some() && self.objective.is_some()
    }
}

/// The bounds of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchBounds {
    pub(crate) rows_max: u64,
    pub(crate) requests_max: usize,
}

/// The deadline of what has none: 73 years, so that the order of arrivals still decides.
const NO_OBJECTIVE: Nanos = Nanos(1 << 61);

/// How long before frontrun a deferred window opens, as one part of so many of the objective:
/// timers and wakes take their time, and a window of one alpha may see no free worker.
const EARLY_PART: u64 = 20;

impl Policy {
    /// The rules of a queue.
    pub(crate) fn queue_params(&self, profile: &Profile, bounds: BatchBounds) -> QueueParams {
        let (Some(cost), Some(objective)) = (profile.cost, profile.objective) else {
            return self.params_without_deadlines(bounds);
        };
        let window = |target| DropRule::Window { target };
        let (release, drop) = match *self {
            // Not `Release::Auto`: while it prefers idle workers the demo's p50 is 14 ms where it
            // is 3 ms without. Short waits are what `Eager` gives until requests are lost; whether
            // deferring is better then is tried, and was not yet seen to be with a live server,
            // where clients count what comes after the batch, too.
            Self::Auto => (Release::Eager, window(Target::Half)),
            Self::Deferred => {
                let early = Nanos(objective.0 / EARLY_PART);
                (Release::Deferred { early }, window(Target::Half))
            }
            Self::Eager => (Release::Eager, window(Target::Half)),
            Self::Timeout { delay } => (Release::Timeout { delay }, window(Target::Half)),
        };
        QueueParams {
            cost,
            objective,
            release,
            drop,
            rate: 0.0,
            rows_max: bounds.rows_max,
            requests_max: bounds.requests_max,
        }
    }

    /// The same for requests that are never too late.
    pub(crate) fn params_without_deadlines(&self, bounds: BatchBounds) -> QueueParams {
        QueueParams {
            cost: Cost::new(0.0, 0.0),
            objective: NO_OBJECTIVE,
            release: match *self {
                Self::Timeout { delay } => Release::Timeout { delay },
                Self::Auto | Self::Deferred | Self::Eager => Release::Eager,
            },
            drop: DropRule::Head,
            rate: 0.0,
            rows_max: bounds.rows_max,
            requests_max: bounds.requests_max,
        }
    }
}
