//! The article's baseline: the best feasible one of random partitions.

use albacore_random::SplitMix64;

use crate::check::check;
use crate::problem::Problem;

/// Draws random partitions while `has_budget` returns true and returns the best feasible one, if
/// any.
pub fn best_random(
    problem: &Problem,
    seed: u64,
    has_budget: &mut dyn FnMut() -> bool,
) -> Option<Vec<usize>> {
    let mut random = SplitMix64::new(seed);
    let mut best: Option<(f64, Vec<usize>)> = None;
    while has_budget() {
        let assignment: Vec<usize> = problem
            .models
            .iter()
            .map(|_| random.below(problem.clusters))
            .collect();
        if let Ok(measure) = check(problem, &assignment)
            && best
                .as_ref()
                .is_none_or(|(least, _)| measure.objective < *least)
        {
            best = Some((measure.objective, assignment));
        }
    }
    best.map(|(_, assignment)| assignment)
}
