//! The enumeration against one of all mappings by the checker's rules.

use super::enumerate;
use crate::enumerated::{best_of_all, every_problem, every_problem_of_two_nodes};
use crate::single::allowed::Allowed;
use crate::single::assignment::assign;
use crate::single::domains::Domains;
use crate::single::local_search::Search;
use crate::single::volumes::volumes;
use crate::{Mode, WorkBudget};

#[test]
fn every_small_problem_is_solved_as_by_going_through_all_mappings() {
    for mode in [Mode::Scatter, Mode::Compact] {
        let of_two_nodes = every_problem_of_two_nodes(4, 6, mode);
        for problem in every_problem(5, 6, mode).into_iter().chain(of_two_nodes) {
            let domains = Domains::of(&problem);
            let volumes = volumes(&domains);
            let allowed = Allowed::by(&domains, &volumes);
            let start = Search::of(&domains, &allowed, &assign(&domains, &volumes));
            let better = enumerate(&start, &mut WorkBudget::unlimited()).unwrap();
            let best = better.unwrap_or(start);
            assert!(best.is_valid(), "{problem:?}");
            assert_eq!(best.objective(), best_of_all(&problem).1, "{problem:?}");
        }
    }
}

#[test]
fn a_problem_with_too_many_ways_is_not_enumerated() {
    let problems = every_problem(6, 6, Mode::Compact);
    let large = problems.iter().find(|p| p.workers == 3 && p.threads == 2);
    let mut large = large.unwrap().clone();
    large.threads = 200;
    let domains = Domains::of(&large);
    let volumes = volumes(&domains);
    let allowed = Allowed::by(&domains, &volumes);
    let start = Search::of(&domains, &allowed, &assign(&domains, &volumes));
    assert!(enumerate(&start, &mut WorkBudget::unlimited()).is_none());
}
