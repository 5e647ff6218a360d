//! Release policy of queues, objective of a model, and profile of each queue: its costs and its
//! objective.

use std::time::Duration;

use crate::auto::{self, Choice};
use crate::deadlines::{Cost, QueueParams, Release};
use crate::{Nanos, Prefer};

/// When a batch is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Deferred or eager, chosen per queue by [`crate::auto`].
    Auto(Prefer),
    /// As late as the objective allows; eager if there is no objective.
    Deferred,
    /// As soon as a worker is free.
    Eager,
    /// When the oldest request has waited for `delay`, or when no further request fits.
    Timeout {
        /// How long the oldest request waits.
        delay: Duration,
    },
}

/// Release rule and bounds of all queues. May change while the server runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchingParams {
    pub policy: Policy,
    /// Most rows of a batch; a larger request is a batch of its own.
    pub batch_rows_max: usize,
    /// Longest wait of a request in a deferred batch; `None`: bounded by its objective only.
    pub window: Option<Duration>,
    /// Most rows that are reserved or waiting.
    pub queue_rows_max: usize,
}

/// Release rule and bounds of the queues of one model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelBatching {
    pub policy: Policy,
    /// See [`BatchingParams::batch_rows_max`].
    pub batch_rows_max: usize,
    /// See [`BatchingParams::window`].
    pub window: Option<Duration>,
}

/// Latency objective of a model: at least a percentile of the replies arrive within the latency.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slo {
    /// From the arrival of a request to its reply.
    pub latency: Duration,
    /// Percent of the requests that must meet it.
    pub percentile: f64,
    /// Latency of requests for contributions; `None`: `latency`.
    pub contribs: Option<Duration>,
    /// Latency of requests for interactions; `None`: `latency`.
    pub interactions: Option<Duration>,
}

impl Slo {
    /// One latency for all kinds of output.
    #[must_use]
    pub fn uniform(latency: Duration, percentile: f64) -> Self {
        Self {
            latency,
            percentile,
            contribs: None,
            interactions: None,
        }
    }
}

/// Costs and objective of a queue. Only a queue with both has deadlines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// Cost of a batch, with a safety margin.
    pub cost: Option<Cost>,
    /// Mean cost of a batch; `None` while `cost` is.
    pub mean_cost: Option<Cost>,
    /// From arrival to deadline.
    pub objective: Option<Nanos>,
}

impl Profile {
    /// Whether requests of the queue can be late.
    #[must_use]
    pub fn has_deadlines(&self) -> bool {
        self.cost.is_some() && self.objective.is_some()
    }

    /// Bounds of batches of late requests. Such a batch takes at most half of the objective, so
    /// that it does not make requests late that arrive meanwhile.
    pub(crate) fn bounds_of_late(&self, bounds: BatchBounds) -> BatchBounds {
        let half = |(cost, objective): (Cost, Nanos)| cost.rows_within(Nanos(objective.0 / 2));
        let rows = self.cost.zip(self.objective).map_or(u64::MAX, half);
        BatchBounds {
            rows_max: bounds.rows_max.min(rows.max(1)),
            ..bounds
        }
    }
}

/// The bounds of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchBounds {
    pub(crate) rows_max: u64,
    pub(crate) requests_max: usize,
}

/// Objective of queues without deadlines: 73 years, so that requests stay in arrival order.
const NO_OBJECTIVE: Nanos = Nanos(1 << 61);

impl Default for BatchingParams {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            batch_rows_max: 1024,
            window: None,
            queue_rows_max: 65_536,
        }
    }
}

impl Default for ModelBatching {
    fn default() -> Self {
        BatchingParams::default().of_models()
    }
}

impl BatchingParams {
    /// Batching of models without batching parameters of their own.
    #[must_use]
    pub fn of_models(&self) -> ModelBatching {
        ModelBatching {
            policy: self.policy,
            batch_rows_max: self.batch_rows_max,
            window: self.window,
        }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self::Auto(Prefer::default())
    }
}

impl Policy {
    /// Name in files, messages and replies.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto(_) => "auto",
            Self::Deferred => "deferred",
            Self::Timeout { .. } => "timeout",
            Self::Eager => "eager",
        }
    }

    /// The fixed delay of `Timeout`; `None` for other policies.
    #[must_use]
    pub fn delay(self) -> Option<Duration> {
        match self {
            Self::Timeout { delay } => Some(delay),
            Self::Auto(_) | Self::Deferred | Self::Eager => None,
        }
    }

    /// The preference of `Auto`; `None` for other policies.
    #[must_use]
    pub fn prefer(self) -> Option<Prefer> {
        match self {
            Self::Auto(prefer) => Some(prefer),
            Self::Deferred | Self::Eager | Self::Timeout { .. } => None,
        }
    }

    /// Whether the policy may defer batches, so that `window` applies.
    #[must_use]
    pub fn has_window(self) -> bool {
        matches!(self, Self::Auto(_) | Self::Deferred)
    }

    /// Parameters of a queue without deadlines.
    pub(crate) fn params_without_deadlines(&self, bounds: BatchBounds) -> QueueParams {
        QueueParams {
            cost: Cost::new(0.0, 0.0),
            objective: NO_OBJECTIVE,
            release: self.delay().map_or(Release::Eager, |delay| {
                let delay = delay.into();
                Release::Timeout { delay }
            }),
            target_rows: 1,
            rows_max: bounds.rows_max,
            requests_max: bounds.requests_max,
        }
    }
}

impl ModelBatching {
    /// Parameters of a queue in the core; `choice` applies to `Auto` only.
    pub(crate) fn queue_params(
        &self,
        profile: &Profile,
        choice: &Choice,
        bounds: BatchBounds,
    ) -> QueueParams {
        let (Some(cost), Some(objective)) = (profile.cost, profile.objective) else {
            return self.policy.params_without_deadlines(bounds);
        };
        let window = self.window.map(Nanos::from);
        let release = match self.policy {
            Policy::Auto(_) => choice.release(objective, window),
            Policy::Eager => Release::Eager,
            Policy::Deferred => auto::deferred(objective, window),
            Policy::Timeout { delay } => Release::Timeout {
                delay: delay.into(),
            },
        };
        let target_rows = match self.policy {
            Policy::Auto(_) => choice.target_rows(&cost, objective),
            // The largest batch that takes at most half of the objective.
            _ => cost.rows_within(Nanos(objective.0 / 2)),
        };
        QueueParams {
            cost,
            objective,
            release,
            target_rows,
            rows_max: bounds.rows_max,
            requests_max: bounds.requests_max,
        }
    }
}
