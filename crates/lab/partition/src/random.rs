//! The article's baseline: random partitions, the best one that keeps the rules.

use crate::check::check;
use crate::problem::Problem;

/// The best of random places while `may_go_on` says so; `None` if none keeps the rules.
pub fn best_random(
    problem: &Problem,
    seed: u64,
    may_go_on: &mut dyn FnMut() -> bool,
) -> Option<Vec<usize>> {
    let mut state = seed;
    let mut next = || {
        // SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let mut best: Option<(f64, Vec<usize>)> = None;
    while may_go_on() {
        let places: Vec<usize> = problem
            .models
            .iter()
            .map(|_| ((u128::from(next()) * problem.clusters as u128) >> 64) as usize)
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
