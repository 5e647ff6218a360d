//! Spreads the rows of one request over idle workers.
//!
//! **Problem.** The threads of one worker share a batch; other workers may be idle meanwhile.
//!
//! **Approach.** A request that arrives while workers are idle is cut into as many parts, as one
//! that is larger than a batch is: each part is a batch of its own, with its own worker, replay and
//! blame. By the learned cost l(b) = alpha b + beta, k parts take alpha b / k + beta, and k - 1
//! times beta more of the workers' time in all. That is done where it is little: at most one part
//! in [`SPREAD_COST_SHARE`] of the time of one batch, which makes the request at least k / 1.1
//! times as fast. What parts really take is learned like all batches, so that where workers hinder
//! each other beta grows and parts become fewer.
//!
//! **Limits.** Only rows are divided. A rule that holds batches back joins the parts again.

use albacore_batching::QueueIndex;
use albacore_batching::deadlines::Cost;

use super::State;
use crate::cpus::threads_for_one;
use crate::limits::{SPREAD_COST_SHARE, SPREAD_TIME_MIN};
use crate::queues::slot_of;

impl State {
    /// Most rows of a part of a request that arrives now.
    pub(super) fn part_rows_max(&self, queue: QueueIndex, rows: usize) -> usize {
        let rows_max = self.dispatcher.batch_rows_max;
        let is_bounded = |slot: usize| self.batch_threads.get(slot).copied().flatten().is_some();
        let Some(cost) = self.scheduler.profile(queue).cost else {
            return rows_max;
        };
        // A model whose threads are bounded is not to use those of other workers either.
        if is_bounded(slot_of(queue)) {
            return rows_max;
        }
        let workers = self.workers_with_cpus().min(workers_for(&cost, rows));
        rows_max.min(rows.div_ceil(workers.max(1)))
    }

    /// Idle workers that can compute beside the busy ones and each other with as many threads as
    /// one of them alone.
    fn workers_with_cpus(&self) -> usize {
        let (busy, pool) = (self.scheduler.busy_workers(), &self.workers);
        if pool.cpus == usize::MAX {
            // How many cpus there are is not known.
            return 1;
        }
        let threads = |workers: usize| threads_for_one(pool.cpus, busy + workers, pool.threads);
        let has_cpus = |workers: &usize| {
            threads(*workers) == threads(1)
                && (busy + workers).saturating_mul(threads(1)) <= pool.cpus
        };
        let idle = self.scheduler.idle_workers();
        (2..=idle).take_while(has_cpus).last().unwrap_or(1)
    }
}

/// Among how many workers the rows of a request are divided, if they are idle.
fn workers_for(cost: &Cost, rows: usize) -> usize {
    let alone = cost.of(rows as u64).0;
    if alone < SPREAD_TIME_MIN.as_nanos() as u64 {
        return 1;
    }
    let dispatch = (cost.beta_ns() as u64).max(1);
    let more = usize::try_from(alone / SPREAD_COST_SHARE / dispatch).unwrap_or(usize::MAX);
    more.saturating_add(1).min(rows.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(row_micros: f64, dispatch_micros: f64) -> Cost {
        Cost::new(row_micros * 1e3, dispatch_micros * 1e3)
    }

    #[test]
    fn a_request_is_divided_as_far_as_dispatches_cost_little() {
        // 100 rows of 100 us and 50 us for a dispatch: a tenth of 10 ms pays for 20 more.
        assert_eq!(workers_for(&cost(100.0, 50.0), 100), 21);
        assert_eq!(workers_for(&cost(100.0, 0.0), 7), 1, "it takes 0.7 ms");
        assert_eq!(workers_for(&cost(500.0, 0.0), 7), 7, "a row each");
        assert_eq!(workers_for(&cost(100.0, 5000.0), 100), 1);
        assert_eq!(workers_for(&cost(0.0, 5000.0), 0), 1);
    }

    proptest::proptest! {
        #[test]
        fn a_divided_request_is_faster_nearly_by_the_number_of_workers(
            row in 0.01..1000.0f64, dispatch in 0.0..1000.0f64, rows in 1..5000usize,
        ) {
            let cost = cost(row, dispatch);
            let workers = workers_for(&cost, rows);
            proptest::prop_assert!((1..=rows).contains(&workers));
            if rows.is_multiple_of(workers) {
                let (alone, part) = (cost.of(rows as u64).0, cost.of((rows / workers) as u64).0);
                let factor = alone as f64 / part as f64;
                proptest::prop_assert!(factor >= workers as f64 / 1.1 - 1e-3, "{workers}: {factor}");
            }
        }
    }
}
