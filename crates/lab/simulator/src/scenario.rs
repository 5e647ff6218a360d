//! Description of a simulation.

use albacore_batching::deadlines::{Cost, Delays, Release};
use albacore_batching::{Nanos, Prefer};

use crate::arrivals::{Arrival, ArrivalProcess, Popularity};
use crate::drop_rule::{DropRule, Target};
use crate::scenario_scheduler::{QueueRules, ReleaseRule};

/// A model: its cost profile and its objective.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    pub name: String,
    /// Cost of a batch.
    pub cost: Cost,
    /// Time from arrival to deadline.
    pub objective: Nanos,
}

/// Policy for dispatching batches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Policy {
    /// From frontrun on, or `early` before it.
    Deferred,
    /// Chosen for each queue by [`albacore_batching::auto`].
    Auto(Prefer),
    Eager,
    /// Once the oldest request has waited this long.
    Timeout(Wait),
}

/// Policy for dropping requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DropPolicy {
    Rule(DropRule),
    /// The window rule with the target chosen by `auto`; [`Target::Own`] under other policies.
    Auto,
}

impl DropPolicy {
    /// The window rule with a fixed target.
    #[must_use]
    pub fn window(target: Target) -> Self {
        Self::Rule(DropRule::Window { target })
    }
}

/// A time, absolute or relative to the objective.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wait {
    Fixed(Nanos),
    /// This share of the objective.
    Share(f64),
}

/// Source of the requests.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    Drawn {
        /// Distribution of interarrival times.
        process: ArrivalProcess,
        /// Distribution of the rate over the models.
        popularity: Popularity,
        /// Requests per second of all models.
        rate: f64,
        /// Number of measured requests.
        requests: u64,
    },
    /// Closed-loop clients.
    Closed {
        clients: u32,
        /// Mean think time between a reply and the client's next request, exponentially
        /// distributed.
        think: Nanos,
        /// Distribution of the requests over the models.
        popularity: Popularity,
        /// Number of measured requests.
        requests: u64,
    },
    /// Listed in order of time; all of them are measured.
    Listed(Vec<Arrival>),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    pub workers: usize,
    pub models: Vec<Model>,
    pub source: Source,
    /// Seed of the random numbers.
    pub seed: u64,
    pub policy: Policy,
    pub drop: DropPolicy,
    /// Delays between a decision and the start of its batch.
    pub delays: Delays,
    /// Time before frontrun at which the window opens, as a share of the objective.
    pub early: f64,
    /// Time from which the policy is eager.
    pub eager_from: Option<Nanos>,
}

impl Scenario {
    /// Requests per second of each model. For listed arrivals: their mean rate; for closed-loop
    /// clients: an upper bound.
    #[must_use]
    pub fn rates(&self) -> Vec<f64> {
        match &self.source {
            Source::Drawn {
                popularity, rate, ..
            } => {
                let shares = popularity.shares(self.models.len());
                shares.into_iter().map(|share| share * rate).collect()
            }
            Source::Closed {
                clients,
                think,
                popularity,
                ..
            } => {
                let shares = popularity.shares(self.models.len());
                let alone = |(model, share): (&Model, &f64)| model.cost.of(1).0 as f64 * share;
                let answer: f64 = self.models.iter().zip(&shares).map(alone).sum();
                let rate = f64::from(*clients) * 1e9 / (think.0 as f64 + answer);
                let rate = rate.min(self.bound_of(&shares));
                shares.into_iter().map(|share| share * rate).collect()
            }
            Source::Listed(list) => {
                let span = list.last().map_or(1, |last| last.at.max(1));
                let mut rates = vec![0.0; self.models.len()];
                for arrival in list {
                    rates[arrival.model] += 1e9 / span as f64;
                }
                rates
            }
        }
    }

    /// Copy of the scenario with another rate; listed arrivals and closed-loop clients are
    /// unchanged.
    #[must_use]
    pub fn at_rate(&self, rate: f64) -> Self {
        let mut scenario = self.clone();
        if let Source::Drawn { rate: old, .. } = &mut scenario.source {
            *old = rate;
        }
        scenario
    }

    /// Copy of the scenario with batch times multiplied by `slowness`.
    pub(crate) fn slowed(&self, slowness: f64) -> Self {
        let mut scenario = self.clone();
        for Model { cost, .. } in &mut scenario.models {
            *cost = Cost::new(cost.alpha_ns() * slowness, cost.beta_ns() * slowness);
        }
        scenario
    }

    /// Preference of policy `auto`.
    pub(crate) fn prefer(&self) -> Prefer {
        match self.policy {
            Policy::Auto(prefer) => prefer,
            Policy::Deferred | Policy::Eager | Policy::Timeout(_) => Prefer::default(),
        }
    }

    /// Rules of a model's queue with `rate` requests per second.
    pub(crate) fn queue_rules(&self, model: &Model, rate: f64) -> QueueRules {
        let share = |share: f64| Nanos((model.objective.0 as f64 * share).round() as u64);
        let early = share(self.early);
        let fixed = match self.policy {
            Policy::Deferred => Some(Release::Deferred {
                early,
                window: None,
            }),
            Policy::Auto(_) => None,
            Policy::Eager => Some(Release::Eager),
            Policy::Timeout(Wait::Fixed(delay)) => Some(Release::Timeout { delay }),
            Policy::Timeout(Wait::Share(part)) => Some(Release::Timeout { delay: share(part) }),
        };
        QueueRules {
            cost: model.cost,
            objective: model.objective,
            release: fixed.map_or(ReleaseRule::Auto, ReleaseRule::Fixed),
            drop: self.drop,
            rate,
        }
    }

    /// Upper bound of the requests per second that all workers can serve, with the largest batches
    /// that meet the objectives and no gap between them: no policy reaches it.
    #[must_use]
    pub fn rate_bound(&self) -> f64 {
        match &self.source {
            Source::Drawn { popularity, .. } | Source::Closed { popularity, .. } => {
                self.bound_of(&popularity.shares(self.models.len()))
            }
            Source::Listed(_) => self.bound_of(&self.rates()),
        }
    }

    /// The same bound for models with requests in these proportions.
    fn bound_of(&self, rates: &[f64]) -> f64 {
        let sum: f64 = rates.iter().sum();
        let work = |(model, rate): (&Model, &f64)| {
            let rows = model.cost.rows_within(model.objective).max(1);
            rate / sum * model.cost.of(rows).0 as f64 * 1e-9 / rows as f64
        };
        self.workers as f64 / self.models.iter().zip(rates).map(work).sum::<f64>()
    }
}
