//! Perturbation, to leave a local optimum: a few random moves, then local search again.
//!
//! **Problem.** Exchanges and shifts alone get stuck where only two moves together gain.
//! **Approach.** Iterated local search (Lourenco, Martin and Stuetzle 2003): some random feasible
//! moves, local search, and the result is kept unless it is worse. **Proof sketch.** Every
//! intermediate state is valid and the best is kept, so this can only help. **Limits.** Rounds are
//! bounded by [`PERTURBATIONS_MAX`] and by the work of a local search ([`PERTURBATION_WORK_MAX`]);
//! the random seed is fixed, so that equal problems have equal answers.

use albacore_values::XorShift64;

use crate::WorkBudget;
use crate::limits::{PERTURBATION_WORK_MAX, PERTURBATIONS_MAX};
use crate::single::local_search::Search;

/// Tries to reach `goal`; leaves the best assignment found in `search`.
pub(crate) fn perturb(search: &mut Search<'_>, goal: i64, budget: &mut WorkBudget) {
    let mut best = search.objective();
    let threads = search.threads();
    let rounds = PERTURBATIONS_MAX.min(PERTURBATION_WORK_MAX / (threads * threads).max(1));
    let mut random = XorShift64::new(0x9e37_79b9_7f4a_7c15);
    for round in 0..rounds {
        if best >= goal || budget.spend(30 * threads) {
            return;
        }
        let mut trial = search.clone();
        for _ in 0..2 + round % 4 {
            trial.random_feasible_move(&mut |below| random.below(below));
        }
        trial.climb(goal, usize::MAX, budget);
        let value = trial.objective();
        if value >= best {
            best = value;
            *search = trial;
        }
    }
}
