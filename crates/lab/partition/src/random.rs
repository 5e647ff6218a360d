//! The article's baseline: the best feasible one of random partitions.

use albacore_random::SplitMix64;

use crate::check::check;
use crate::problem::Problem;

/// Draws random partitions while `may_go_on` returns true and returns the best feasible one, if
/// any.
pub fn best_random(
    problem: &Problem,
    seed: u64,
    may_go_on: &mut dyn FnMut() -> bool,
) -> Option<Vec<usize>> {
    let mut random = SplitMix64::new(seed);
    let mut best: Option<(f64, Vec<usize>)> = None;
    while may_go_on() {
        let places: Vec<usize> = problem
            .models
            .iter()
            .map(|_| random.below(problem.clusters))
            .collect();
        if let Ok(measure) = check(problem, &places)
            && best
                .as_ref()
                .is_none_or(|(least, _)| measure.objective < *least)
        {
            best = Some((measure.objective, places));
        }
    }
    best.map(|(_, places)| places)
}
