//! Simulates pods behind routers, compared with one scheduler over all workers.
//!
//! **Problem.** Each pod schedules its own workers; a router chooses the pod of each request with
//! less information. How much goodput does that cost, and how much does an additional hop gain?
//!
//! **Approach.** Each pod runs the scheduler of [`run`](crate::run()) with its own queues and
//! workers. Under [`Routing::Central`] one scheduler has the workers of all pods, and every batch
//! starts one hop later: that is Symphony as published, and the reference.
//!
//! **Limits.** The central scheduler has one cost model. So with pods of several speeds there is
//! one scheduler per speed, and a request is sent to the one with the fewest open requests relative
//! to its capacity. The network path from client to pod costs nothing, because it is the same for
//! all; batches take exactly the time of their profile multiplied by the slowness of their pod;
//! front ends cost nothing.

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
use crate::goodput::{ABORT_FACTOR, highest_rate};
use crate::measure::Figures;
use crate::scenario::{Scenario, Source};

#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    /// One pod: its workers, models and rules. The arrivals are those of all pods.
    pub pod: Scenario,
    /// Per pod, the factor by which its batches take longer than in the models' profiles; not
    /// empty, each above 0.
    pub slowness: Vec<f64>,
    pub routing: Routing,
    /// Cost of one additional hop between machines, round trip.
    pub hop: Nanos,
    /// A pod that cannot meet a request's deadline forwards it, at most once, to a pod that
    /// reported capacity. Ignored under [`Routing::Central`].
    pub is_forwarding: bool,
    pub failures: Option<Failures>,
    /// Clients or proxies that route independently of each other; at least 1.
    pub routers: usize,
    /// Interval at which pods report their load and capacity; above 0.
    pub report_every: Nanos,
    /// Interval at which weights are computed from reports; above 0.
    pub weigh_every: Nanos,
    /// Time for which a pod must have reported before its own weight is used.
    pub blackout: Nanos,
}

/// Failures: a randomly drawn pod fails with all accepted requests, and restarts empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failures {
    /// Time from one failure to the next; above 0.
    pub every: Nanos,
    /// Time from a failure to the pod's restart.
    pub down: Nanos,
    /// Delay until clients, routers and peers detect a failure or restart.
    pub notice: Nanos,
    /// Whether clients retry a request that was lost in a failure.
    pub is_retried: bool,
}

/// Figures of a run. `figures.offered` is the sum of `in_time`, `late`, `refused` and `lost`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClusterFigures {
    /// Totals over all pods. Queueing time counts from the client's send time.
    pub figures: Figures,
    /// Median time from the client's send time to the answer, over answered requests.
    pub answer_p50: Nanos,
    /// 99th percentile of the same time.
    pub answer_p99: Nanos,
    /// Requests answered within their objective.
    pub in_time: u64,
    pub late: u64,
    /// Requests dropped by a scheduler, or for which no pod was known to be up.
    pub refused: u64,
    /// Requests lost in a pod's failure; with retries, those whose retry also failed or was too
    /// late.
    pub lost: u64,
    /// Number of forwards.
    pub forwarded: u64,
    /// Number of retries.
    pub retried: u64,
}

impl Cluster {
    /// Copy of the cluster with another total rate of all pods.
    #[must_use]
    pub fn at_rate(&self, rate: f64) -> Self {
        Self {
            pod: self.pod.at_rate(rate),
            ..self.clone()
        }
    }

    /// Runs until the last request is answered. `None` unless arrivals are drawn.
    #[must_use]
    pub fn run(&self) -> Option<ClusterFigures> {
        self.run_until(u64::MAX)
    }

    /// The highest total rate of all pods, in requests per second, at which the share `good_share`
    /// of every model's requests is answered in time; the scenario's rate is ignored. `progress` is
    /// called with numbers of simulated requests.
    pub fn goodput(&self, good_share: f64, progress: &mut dyn FnMut(u64)) -> f64 {
        let Source::Drawn { requests, .. } = self.pod.source else {
            return 0.0;
        };
        let allowed = 1.0 - good_share;
        let most = (requests as f64 * allowed * ABORT_FACTOR) as u64;
        highest_rate(self.rate_bound(), |rate| {
            let done = self.at_rate(rate).run_until(most);
            progress(done.map_or(0, |done| done.figures.offered));
            done.is_some_and(|done| {
                done.figures.bad <= most && done.figures.worst_model_bad_rate <= allowed
            })
        })
    }

    /// Stops early when more than `bad_max` requests are bad.
    fn run_until(&self, bad_max: u64) -> Option<ClusterFigures> {
        matches!(self.pod.source, Source::Drawn { .. }).then(|| Run::new(self, bad_max).run())
    }

    /// Upper bound of the goodput under any routing.
    fn rate_bound(&self) -> f64 {
        let bound = |&slowness: &f64| self.pod.slowed(slowness).rate_bound();
        self.slowness.iter().map(bound).sum()
    }
}
