//! The release policy of all queues, and the profile of each queue: its costs and its objective.

use crate::Nanos;
use crate::deadlines::{Cost, DropRule, QueueParams, Release, Target};

/// When a batch is dispatched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Chosen by the scheduler: at present as soon as a worker is free.
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

/// Costs and objective of a queue. Only a queue with both has deadlines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// The cost of a batch, with a safety margin.
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

/// The objective of queues without deadlines: 73 years, so that the order of arrivals still
/// decides.
const NO_OBJECTIVE: Nanos = Nanos(1 << 61);

/// How long before frontrun a deferred window opens, as one part in so many of the objective:
/// timers and wakes take time, and no worker may become free in a window of one alpha.
const EARLY_PART: u64 = 20;

impl Policy {
    /// The parameters of a queue in the core.
    pub(crate) fn queue_params(&self, profile: &Profile, bounds: BatchBounds) -> QueueParams {
        let (Some(cost), Some(objective)) = (profile.cost, profile.objective) else {
            return self.params_without_deadlines(bounds);
        };
        let window = |target| DropRule::Window { target };
        let (release, drop) = match *self {
            // Deferring like `Policy::Auto` of the simulator gave the demo a p50 of 14 ms instead
            // of 3 ms, and was not better at any load of a live server, whose clients also count
            // what comes after the batch.
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

    /// The parameters of a queue of requests that are never late.
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
