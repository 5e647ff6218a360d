//! Reduces the violation of the rules on mains, with priority over the score.

use super::local_search::{apply_move, evaluate, is_balanced_shift};
use super::search_state::{CYCLE, JointThread, SearchState, Step};
use crate::WorkBudget;
use crate::limits::FROZEN_COST;

/// Reduces the violation of the rules on mains, thread by thread: first by moves that keep every
/// thread on its current cpu, then by any.
pub(super) fn repair(search: &mut SearchState<'_>, budget: &mut WorkBudget) {
    let move_cost = search.move_cost;
    if search.instance.has_running() {
        search.move_cost = FROZEN_COST;
        repair_with(search, -FROZEN_COST * CYCLE / 2, budget);
        search.move_cost = move_cost;
    }
    repair_with(search, i64::MIN, budget);
}

/// The same by moves that change the score by at least `least`.
fn repair_with(search: &mut SearchState<'_>, least: i64, budget: &mut WorkBudget) {
    let (mut idle, mut thread) = (0, 0);
    // bound: each round over all threads but the last reduces the violation
    while search.violation() > 0 && idle < search.threads.len() {
        idle += 1;
        let cpu = usize::from(search.threads[thread].cpu);
        if search.may_violate(cpu) {
            if budget.spend(12 * search.instance.cpus) {
                return;
            }
            if let Some(step) = best_repair(search, thread, least) {
                apply_move(search, step);
                idle = 0;
            }
        }
        thread = (thread + 1) % search.threads.len();
    }
}

/// The move of a thread that reduces the violation most.
fn best_repair(search: &SearchState<'_>, thread: usize, least: i64) -> Option<Step> {
    let mut best: Option<((i64, i64), Step)> = None;
    let JointThread { main, cpu, .. } = search.threads[thread];
    let from = usize::from(cpu);
    let mut consider = |step: Step| {
        let lowers = |&(violation, score): &(i64, i64)| violation < 0 && score >= least;
        if let Some((violation, score)) = evaluate(search, step).filter(lowers) {
            let key = (violation, -score);
            if best.as_ref().is_none_or(|(before, _)| key < *before) {
                best = Some((key, step));
            }
        }
    };
    for to in (0..search.instance.cpus).filter(|&to| to != from) {
        if is_balanced_shift(search, from, to) {
            consider(Step::Shift(thread, to));
        }
        if main && search.violation_change(from, to, 1, 0) < 0 {
            for &other in &search.threads_on_cpu[to] {
                consider(Step::Exchange(thread, other as usize));
            }
        }
    }
    best.map(|(_, step)| step)
}
