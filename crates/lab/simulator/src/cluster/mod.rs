//! Pods behind routers, and how near they come to one scheduler over all workers.
//!
//! **Problem.** A pod schedules its own workers; whoever sends the requests decides which pod gets
//! which one, and knows less. What is lost by that, and what is gained by a hop more?
//!
//! **Approach.** Each pod is the scheduler of [`run`](crate::run()) with queues and workers of its
//! own. Under [`Routing::Central`] one scheduler has the workers of all pods, and every batch
//! starts a hop later: that is Symphony as published, and the reference.
//!
//! **Limits.** That scheduler knows one cost of a batch. So with pods of several speeds there is
//! one for the pods of each speed, and a request goes to the one with the fewest open requests for
//! its capacity. A client's way to a pod costs nothing, as all have it; batches take exactly what
//! their profile says times the slowness of their pod; front ends cost nothing.

mod events;
mod pods;
mod requests;
mod routing;
mod run;
#[cfg(test)]
mod tests;

use albacore_batching::Nanos;

pub use self::routing::Routing;

use self::run::Run;
use crate::goodput::{HOPELESS, highest_rate};
use crate::measure::Figures;
use crate::scenario::{Scenario, Source};

#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    /// One pod: its workers, models and rules. The arrivals are those of all pods together.
    pub pod: Scenario,
    /// For each pod how many times as long as in the models' profiles its batches take; not empty,
    /// each above 0.
    pub slowness: Vec<f64>,
    pub routing: Routing,
    /// What it costs to pass one machine more, there and back.
    pub hop: Nanos,
    /// A pod that cannot meet a request's deadline forwards it, once, to a pod that reported that
    /// it can. Means nothing under [`Routing::Central`].
    pub is_forwarding: bool,
    pub failures: Option<Failures>,
    /// Clients or proxies that route without seeing each other's requests; at least 1.
    pub routers: usize,
    /// How often pods report their load and capacity; above 0.
    pub report_every: Nanos,
    /// How often weights are computed from reports; above 0.
    pub weigh_every: Nanos,
    /// How long a pod must have reported before it has a weight of its own.
    pub blackout: Nanos,
}

/// A pod, drawn at random, dies with what it accepted, and comes back empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failures {
    /// From one failure to the next; above 0.
    pub every: Nanos,
    /// From a failure to the pod's return.
    pub down: Nanos,
    /// When clients, routers and peers notice either.
    pub notice: Nanos,
    /// Clients send a request that a failure lost once more.
    pub is_retried: bool,
}

/// The figures of a run. `figures.offered` is the sum of `in_time`, `late`, `refused` and `lost`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClusterFigures {
    /// Of all pods together. Queueing counts from the client's sending.
    pub figures: Figures,
    /// Median time from the client's sending to the answer, of the requests that were answered.
    pub answer_p50: Nanos,
    /// Its 99th percentile.
    pub answer_p99: Nanos,
    /// Requests that were answered within their objective.
    pub in_time: u64,
    pub late: u64,
    /// Requests that a scheduler dropped, or for which no pod was known.
    pub refused: u64,
    /// Requests that failed with a pod, and again or too late where they were sent once more.
    pub lost: u64,
    /// How often requests were forwarded.
    pub forwarded: u64,
    /// How often requests were sent once more.
    pub retried: u64,
}

impl Cluster {
    /// The cluster at another rate of all pods together.
    #[must_use]
    pub fn at_rate(&self, rate: f64) -> Self {
        Self {
            pod: self.pod.at_rate(rate),
            ..self.clone()
        }
    }

    /// Runs to the answer of the last request. `None` unless arrivals are drawn.
    #[must_use]
    pub fn run(&self) -> Option<ClusterFigures> {
        self.run_until(u64::MAX)
    }

    /// The highest rate of all pods together, in requests per second, at which the share
    /// `good_share` of every model's requests is answered in time; the scenario's rate is ignored.
    /// `progress` is called with numbers of simulated requests.
    pub fn goodput(&self, good_share: f64, progress: &mut dyn FnMut(u64)) -> f64 {
        let Source::Drawn { requests, .. } = self.pod.source else {
            return 0.0;
        };
        let allowed = 1.0 - good_share;
        let most = (requests as f64 * allowed * HOPELESS) as u64;
        highest_rate(self.rate_bound(), |rate| {
            let done = self.at_rate(rate).run_until(most);
            progress(done.map_or(0, |done| done.figures.offered));
            done.is_some_and(|done| {
                done.figures.bad <= most && done.figures.worst_model_bad_rate <= allowed
            })
        })
    }

    /// Stops early when more requests are bad.
    fn run_until(&self, bad_max: u64) -> Option<ClusterFigures> {
        matches!(self.pod.source, Source::Drawn { .. }).then(|| Run::new(self, bad_max).go())
    }

    /// What no routing reaches.
    fn rate_bound(&self) -> f64 {
        let bound = |&slowness: &f64| self.pod.slowed(slowness).rate_bound();
        self.slowness.iter().map(bound).sum()
    }
}
