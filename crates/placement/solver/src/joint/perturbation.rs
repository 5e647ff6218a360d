//! Perturbation, to leave a local optimum: a few random exchanges, where cores differ in speed also
//! shifts (loads leave more choice there), then repair and local search again.
//!
//! As in `perturbation` for one deployment: every intermediate state is valid, a worse result is
//! undone, the random seed is fixed. If every thread runs already and may stay, nothing is
//! perturbed: only moves that gain one by one are proposed.

use albacore_values::XorShift64;

use super::local_search::{LocalSearch, apply_move, evaluate};
use super::repair::repair;
use super::search_state::{SearchState, Step};
use crate::WorkBudget;
use crate::limits::{JOINT_PERTURBATION_WORK_MAX, PERTURBATION_TRIES_MAX, PERTURBATIONS_MAX};

/// Minimized lexicographically: violation, negated value after cost of moves, negated number of
/// unmoved threads.
fn key(search: &SearchState<'_>) -> (i64, i64, i64) {
    let net_value = search.value + search.move_cost * search.unmoved;
    (search.violation(), -net_value, -search.unmoved)
}

/// Tries to reach `goal` from the local optimum of `local_search`; leaves the best state found in
/// `search`.
pub(super) fn perturb(
    search: &mut SearchState<'_>,
    local_search: &mut LocalSearch,
    goal: i64,
    budget: &mut WorkBudget,
) {
    let threads = search.threads.len();
    let work = (threads + search.instance.cpus) * search.instance.cpus;
    let rounds = PERTURBATIONS_MAX.min(JOINT_PERTURBATION_WORK_MAX / work.max(1));
    let mut best = key(search);
    let mut random = XorShift64::new(0x9e37_79b9_7f4a_7c15);
    for round in 0..rounds {
        if (search.violation() == 0 && search.value >= goal)
            || budget.spend(25 * search.instance.cpus)
        {
            return;
        }
        search.undo_log.clear();
        for _ in 0..2 + round % 4 {
            random_move(search, &mut random);
        }
        repair(search, budget);
        local_search.mark_touched(search, &search.undo_log);
        local_search.climb_from_queue(search, goal, budget);
        let after = key(search);
        if after <= best {
            best = after;
        } else {
            local_search.mark_touched(search, &search.undo_log);
            let undone = search.undo();
            local_search.mark_touched(search, &undone);
        }
        local_search.clear_queue();
    }
}

/// Makes a random move that does not increase the violation of the rules on mains.
fn random_move(search: &mut SearchState<'_>, random: &mut XorShift64) {
    let threads = search.threads.len();
    let shifts = !search.instance.fill_order.is_uniform();
    for _ in 0..PERTURBATION_TRIES_MAX {
        let first = random.below(threads);
        let step = match shifts && random.below(2) == 0 {
            true => Step::Shift(first, random.below(search.instance.cpus)),
            false => Step::Exchange(first, random.below(threads)),
        };
        if evaluate(search, step).is_some_and(|(violation, _)| violation <= 0) {
            return apply_move(search, step);
        }
    }
}
