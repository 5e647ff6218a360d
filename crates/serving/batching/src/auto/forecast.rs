//! What deferring a queue gains and costs, in closed form.
//!
//! **Problem.** W workers serve a queue whose batches of b rows take l(b) = alpha b + beta, each
//! request within the objective L. How many rows a second are served in time if batches are
//! deferred, and how many if they go as soon as a worker is free?
//!
//! **Approach.** The equations (1) and (2) of Symphony (section 3.3). Deferred batches start on the
//! workers one after the other, so a request waits at most l(b) / W for the next start:
//! (1 + 1/W) l(b) <= L, and W b / l(b) rows a second are served. Batches that go at once start
//! whenever a worker is free, and a request may have to wait for a whole batch: 2 l(b) <= L (the
//! paper's bound without coordination, section 5.3).
//!
//! At a rate of lambda rows a second a deferred batch gathers rows until the first has to go:
//! l(b) + b / lambda <= L. An eager batch has one request while workers are free, and otherwise the
//! b that equation (2) asks for: W b / l(b) = lambda.
//!
//! A window, the longest that a request waits for others, bounds both: b <= lambda window at a rate
//! of lambda, which at the highest rate W b / l(b) is l(b) <= W window. Eager batches
//! of more rows still form while all workers are busy.
//!
//! **Limits.** The queue is taken to have the workers alone, and arrivals to be even. Eager batches
//! on a shared queue serve more than the bound says: the gain is an upper bound of what is measured
//! (`simulator/tests/acceptance.rs`).

use crate::Nanos;
use crate::deadlines::Cost;

/// What requests cost before and after their batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrontCost {
    /// Cpu time of the front end for a request.
    pub per_request: Nanos,
    /// Threads that share it.
    pub threads: usize,
}

impl FrontCost {
    /// The most requests a second that the front end can carry.
    #[must_use]
    pub fn requests_per_second(&self) -> f64 {
        self.threads.max(1) as f64 * 1e9 / self.per_request.0.max(1) as f64
    }
}

/// A queue and who serves it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Service {
    /// What a batch costs, with the margin that keeps it in time: decides how many rows it has.
    pub cost: Cost,
    /// What a batch costs on average: decides how many batches a worker carries.
    pub mean_cost: Cost,
    /// From arrival to deadline.
    pub objective: Nanos,
    /// Workers that are present.
    pub workers: usize,
    /// Most rows of a batch.
    pub rows_max: u64,
    /// How long a request of a deferred batch waits at most; `None`: as the objective allows.
    pub window: Option<Nanos>,
    /// Rows a second that arrive.
    pub rate: f64,
    /// Mean rows of a request, at least 1.
    pub rows_per_request: f64,
    /// The front end; `None` where it costs nothing or is not measured.
    pub front: Option<FrontCost>,
}

/// Both ways of serving a queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecast {
    /// Rows of the largest batches that may be deferred, by equation (1).
    pub deferred_rows: u64,
    /// Rows of the largest eager batches.
    pub eager_rows: u64,
    /// Rows a second that deferred batches serve in time, by equation (2).
    pub deferred_goodput: f64,
    /// Rows a second that eager batches serve in time.
    pub eager_goodput: f64,
    /// The front end carries no more than `eager_goodput`.
    pub is_front_limit: bool,
    /// Rows that a deferred batch gathers at the present rate.
    pub gathered_rows: u64,
    /// Workers that deferring leaves idle at the present rate, more than eagerness does.
    pub idle_workers_gain: f64,
    /// How much later half of the requests are answered at the present rate.
    pub p50_cost: Nanos,
    /// Workers that eager batches of `eager_rows` keep busy at the present rate.
    pub eager_work: f64,
}

/// The most rows whose batch, gathered at `rate` rows a second, meets the objective: the largest b
/// with l(b) + b / rate <= objective; 0 if not even one does.
#[must_use]
pub fn gathered_rows(cost: &Cost, objective: Nanos, rate: f64) -> u64 {
    if rate.is_nan() || rate <= 0.0 {
        return 0;
    }
    let per_row = cost.alpha_ns() + 1e9 / rate;
    // Slightly more, so that an exact quotient is not lost to rounding. A negative float becomes 0.
    ((objective.0 as f64 - cost.beta_ns()) / per_row + 1e-9) as u64
}

impl Forecast {
    /// Both ways for this queue.
    #[must_use]
    pub fn of(service: &Service) -> Self {
        let Service {
            cost,
            mean_cost,
            objective,
            rate,
            ..
        } = *service;
        let request = service.rows_per_request.max(1.0);
        // A request is not split, and a batch is no larger than its bound.
        let bounded = |rows: u64| rows.min(service.rows_max).max(request as u64).max(1);
        let workers = service.workers.max(1) as u64;
        let window = service.window.unwrap_or(Nanos::MAX);
        let staggered = Nanos(objective.0 / (workers + 1) * workers)
            .min(Nanos(window.0.saturating_mul(workers)));
        let eager_rows = bounded(cost.rows_within(Nanos(objective.0 / 2)));
        // While all workers are busy a window ends no wait.
        let deferred_rows = bounded(cost.rows_within(staggered)).max(eager_rows);
        let seconds = |rows: f64| (mean_cost.alpha_ns() * rows + mean_cost.beta_ns()) * 1e-9;
        let served = |rows: u64| workers as f64 * rows as f64 / seconds(rows as f64);
        let front = service.front.map(|front| front.requests_per_second());
        let carried = front.map_or(f64::INFINITY, |requests| requests * request);

        let in_window = (rate * window.0 as f64 * 1e-9) as u64;
        let gathered_rows = gathered_rows(&cost, objective, rate).min(in_window);
        let gathered_rows = bounded(gathered_rows).min(deferred_rows);
        // The smallest eager batch with which the workers keep up: W b = lambda l(b).
        let spare = workers as f64 - rate * mean_cost.alpha_ns() * 1e-9;
        let needed = rate * mean_cost.beta_ns() * 1e-9 / spare;
        // A request may have more rows than a batch that takes half of the objective.
        let largest = request.max(eager_rows as f64);
        let eager = match spare > 0.0 {
            true => needed.clamp(request, largest),
            false => largest,
        };
        let gathered = gathered_rows as f64;
        let busy = |rows: f64| (rate * seconds(rows) / rows).min(workers as f64);
        // The first request waits until frontrun, the last does not wait.
        let requests = (gathered / request).max(1.0);
        let first_waits = objective.saturating_sub(cost.of(gathered_rows));
        let first_waits = first_waits.min(window).0 as f64 * 1e-9;
        let waits = first_waits * (requests + 1.0) / (2.0 * requests);
        let p50_cost = waits + seconds(gathered) - seconds(eager);
        Self {
            deferred_rows,
            eager_rows,
            deferred_goodput: served(deferred_rows).min(carried),
            eager_goodput: served(eager_rows).min(carried),
            is_front_limit: carried <= served(eager_rows),
            gathered_rows,
            idle_workers_gain: (busy(eager) - busy(gathered)).max(0.0),
            p50_cost: Nanos((p50_cost.max(0.0) * 1e9) as u64),
            eager_work: rate * seconds(eager_rows as f64) / eager_rows as f64,
        }
    }

    /// Rows a second that deferring serves more, as a share of what eager batches serve.
    #[must_use]
    pub fn goodput_gain(&self) -> f64 {
        (self.deferred_goodput / self.eager_goodput - 1.0).max(0.0)
    }
}

#[cfg(test)]
mod tests;
