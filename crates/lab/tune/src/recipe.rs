//! Steps of the recipe with their results: one process and thread, more threads, more processes,
//! larger batches, the batching window. The first three were measured; batches and window are
//! simulated, and measured if they are promising.

use albacore_api::BatchingPolicy;

use crate::Context;
use crate::calibration::{Costs, Step};
use crate::prediction::Predicted;
use crate::race::Race;
use crate::ranking::Ranking;

/// All steps.
pub(crate) fn finish(
    context: &Context<'_>,
    costs: &Costs,
    ranking: &Ranking,
    race: &Race,
) -> Vec<Step> {
    let mut steps = costs.steps.clone();
    let winner = &race.arms[race.winner].configuration;
    let size = (winner.workers, winner.threads, winner.front_threads);
    let same = ranking.predicted.iter().filter(|of| {
        let of = &of.configuration;
        (of.workers, of.threads, of.front_threads) == size
    });
    let same: Vec<&Predicted> = same.collect();
    steps.extend(larger_batches(context, &same));
    steps.extend(window(&same));
    steps
}

/// Batches grow until their mean reaches the maximum, or the latency reaches the objective.
fn larger_batches(context: &Context<'_>, same: &[&Predicted]) -> Vec<Step> {
    let objective = context.deployment.objective.as_secs_f64() * 1e3;
    let auto = same
        .iter()
        .filter(|of| of.configuration.policy == BatchingPolicy::Auto);
    let mut auto: Vec<&&Predicted> = auto.collect();
    auto.sort_by_key(|of| of.configuration.max_rows);
    let describe = |of: &&&Predicted| {
        let max_rows = of.configuration.max_rows;
        let what = if of.batch_rows >= 0.9 * f64::from(max_rows) {
            "batches are full: larger ones may carry more"
        } else if of.p99_ms >= 0.8 * objective {
            "the objective limits the batches, not their size"
        } else {
            "batches are not full: larger ones change nothing"
        };
        Step {
            step: "larger batches",
            tried: format!("at most {max_rows} rows"),
            showed: format!(
                "simulated: {:.0} requests/s, batches of {:.1} rows, p99 {:.2} ms; {what}",
                of.goodput, of.batch_rows, of.p99_ms
            ),
        }
    };
    auto.iter().map(describe).collect()
}

fn window(same: &[&Predicted]) -> Vec<Step> {
    let best = |policy: BatchingPolicy| {
        let of_policy = same.iter().filter(|of| of.configuration.policy == policy);
        of_policy.max_by(|a, b| a.goodput.total_cmp(&b.goodput))
    };
    let policies = [
        BatchingPolicy::Eager,
        BatchingPolicy::Deferred,
        BatchingPolicy::Timeout,
    ];
    let describe = |of: &&Predicted| Step {
        step: "batching window",
        tried: match of.configuration.max_delay {
            Some(delay) => format!("Timeout after {delay}"),
            None => format!("{:?}", of.configuration.policy),
        },
        showed: format!(
            "simulated: {:.0} requests/s, batches of {:.1} rows, p99 {:.2} ms",
            of.goodput, of.batch_rows, of.p99_ms
        ),
    };
    policies
        .into_iter()
        .filter_map(best)
        .map(describe)
        .collect()
}
