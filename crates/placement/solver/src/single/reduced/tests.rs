//! The reduced program alone against the enumeration of small problems.

use super::solve_within;
use crate::Mode;
use crate::enumerated::{best_of_all, every_problem, every_problem_of_two_nodes};
use crate::single::allowed::Allowed;
use crate::single::domains::Domains;
use crate::single::local_search::Search;
use crate::single::volumes::volumes;

/// Far above the time of the slowest of these programs on a busy machine.
const SECONDS: f64 = 60.0;

#[test]
fn every_small_problem_is_solved_as_by_going_through_all_mappings() {
    for mode in [Mode::Scatter, Mode::Compact] {
        let of_two_nodes = every_problem_of_two_nodes(4, 6, mode);
        for problem in every_problem(5, 6, mode).into_iter().chain(of_two_nodes) {
            let domains = Domains::of(&problem);
            let allowed = Allowed::by(&domains, &volumes(&domains));
            let found = solve_within(&domains, &allowed, SECONDS).unwrap();
            let search = Search::of(&domains, &allowed, &found.assignment);
            assert!(search.is_valid() && found.proven, "{problem:?}");
            assert_eq!(search.objective(), best_of_all(&problem).1, "{problem:?}");
        }
    }
}
