//! Gain and cost of deferring a queue, in closed form.
//!
//! **Problem.** W workers serve a queue whose batches of b rows take l(b) = alpha b + beta, each
//! request within the objective L. How many rows per second are served in time if batches are
//! deferred, and how many if they are dispatched as soon as a worker is free?
//!
//! **Approach.** Equations (1) and (2) of Symphony (section 3.3). Deferred batches start on the
//! workers one after the other, so a request waits at most l(b) / W for the next start: (1 + 1/W)
//! l(b) <= L, and W b / l(b) rows per second are served. Eager batches start whenever a worker is
//! free, and a request may have to wait for a whole batch: 2 l(b) <= L (the paper's bound without
//! coordination, section 5.3).
//!
//! At a rate of lambda rows per second a deferred batch collects rows until the first one must be
//! dispatched: l(b) + b / lambda <= L. An eager batch has one request while workers are free, and
//! otherwise the b required by equation (2): W b / l(b) = lambda.
//!
//! A window, the longest time that a request waits for others, bounds both: b <= lambda window at a
//! rate of lambda, which at the highest rate W b / l(b) is l(b) <= W window. Larger eager batches
//! still form while all workers are busy.
//!
//! **Limits.** The queue is assumed to have all workers to itself, and arrivals to be even. Eager
//! batches on a shared queue serve more than the bound: the gain is an upper bound of measured
//! gains (`simulator/tests/acceptance.rs`).

use crate::Nanos;
use crate::deadlines::Cost;

/// Cost of a request before and after its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrontCost {
    /// Cpu time of the front end per request.
    pub per_request: Nanos,
    /// Threads of the front end.
    pub threads: usize,
}

impl FrontCost {
    /// Capacity of the front end in requests per second.
    #[must_use]
    pub fn requests_per_second(&self) -> f64 {
        self.threads.max(1) as f64 * 1e9 / self.per_request.0.max(1) as f64
    }
}

/// A queue, its load and its servers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueueingModel {
    /// Cost of a batch, with a safety margin: determines the number of rows per batch.
    pub cost: Cost,
    /// Mean cost of a batch: determines the number of batches per worker.
    pub mean_cost: Cost,
    /// From arrival to deadline.
    pub objective: Nanos,
    /// Number of workers present.
    pub workers: usize,
    /// Most rows of a batch.
    pub rows_max: u64,
    /// Longest wait of a request in a deferred batch; `None`: bounded by the objective only.
    pub window: Option<Nanos>,
    /// Arrival rate, rows per second.
    pub rate: f64,
    /// Mean rows per request, at least 1.
    pub rows_per_request: f64,
    /// The front end; `None` if its cost is zero or not measured.
    pub front: Option<FrontCost>,
}

/// Results for both ways of serving a queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecast {
    /// Rows of the largest deferred batches, by equation (1).
    pub deferred_rows: u64,
    /// Rows of the largest eager batches.
    pub eager_rows: u64,
    /// Goodput of deferred batches, rows per second, by equation (2).
    pub deferred_goodput: f64,
    /// Goodput of eager batches, rows per second.
    pub eager_goodput: f64,
    /// The front end sustains no more than `eager_goodput`.
    pub is_front_limit: bool,
    /// Rows that a deferred batch collects at the current rate.
    pub gathered_rows: u64,
    /// Additional idle workers due to deferring at the current rate.
    pub idle_workers_gain: f64,
    /// Increase of the median latency at the current rate.
    pub p50_cost: Nanos,
    /// Number of workers that eager batches of `eager_rows` keep busy at the current rate.
    pub eager_work: f64,
}

/// The most rows whose batch, collected at `rate` rows per second, meets the objective: the largest
/// b with l(b) + b / rate <= objective; 0 if not even one does.
#[must_use]
pub fn gathered_rows(cost: &Cost, objective: Nanos, rate: f64) -> u64 {
    if rate.is_nan() || rate <= 0.0 {
        return 0;
    }
    let per_row = cost.alpha_ns() + 1e9 / rate;
    // A small addition, so that an exact quotient is not rounded down. A negative float becomes 0.
    ((objective.0 as f64 - cost.beta_ns()) / per_row + 1e-9) as u64
}

impl Forecast {
    /// Computes both ways for this queue.
    #[must_use]
    pub fn of(model: &QueueingModel) -> Self {
        let QueueingModel {
            cost,
            mean_cost,
            objective,
            rate,
            ..
        } = *model;
        let request = model.rows_per_request.max(1.0);
        // A request is not split, and a batch is no larger than its bound.
        let bounded = |rows: u64| rows.min(model.rows_max).max(request as u64).max(1);
        let workers = model.workers.max(1) as u64;
        let window = model.window.unwrap_or(Nanos::MAX);
        let staggered = Nanos(objective.0 / (workers + 1) * workers)
            .min(Nanos(window.0.saturating_mul(workers)));
        let eager_rows = bounded(cost.rows_within(Nanos(objective.0 / 2)));
        // While all workers are busy, the window does not end a wait.
        let deferred_rows = bounded(cost.rows_within(staggered)).max(eager_rows);
        let seconds = |rows: f64| (mean_cost.alpha_ns() * rows + mean_cost.beta_ns()) * 1e-9;
        let served = |rows: u64| workers as f64 * rows as f64 / seconds(rows as f64);
        let front = model.front.map(|front| front.requests_per_second());
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
        // The first request waits until frontrun, the last one does not wait.
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

    /// Relative gain in goodput of deferred over eager batches.
    #[must_use]
    pub fn goodput_gain(&self) -> f64 {
        (self.deferred_goodput / self.eager_goodput - 1.0).max(0.0)
    }
}

#[cfg(test)]
mod tests;
