//! From a problem to a certified mapping: volumes, deal, ranks, bound.

use crate::bound::upper_bound;
use crate::check::report;
use crate::deal::{Deal, deal};
use crate::domains::Domains;
use crate::error::validate;
use crate::improve::{Allowed, Search};
use crate::label::colour_peers;
use crate::shake::shake;
use crate::volumes::volumes;
use crate::{Certificate, Mapping, Problem, ProblemError, Solution};

/// The best mapping that can be found before `out_of_budget` says true; whatever it says, the answer is valid and its
/// gap to the bound is honest.
///
/// # Errors
/// The problem is outside the limits or its distances fall with the level.
pub fn solve(
    problem: &Problem,
    out_of_budget: &mut dyn FnMut() -> bool,
) -> Result<Solution, ProblemError> {
    validate(problem)?;
    let domains = Domains::of(problem);
    let volumes = volumes(&domains);
    let allowed = Allowed::by(&domains, &volumes);
    let bound = upper_bound(&domains, &allowed);
    let mut search = Search::of(&domains, &allowed, &deal(&domains, &volumes));
    search.climb(bound, out_of_budget);
    shake(&mut search, bound, out_of_budget);
    let mapping = label(problem, &domains, &search.deal());
    let report = report(problem, &mapping);
    let certificate = Certificate {
        objective: report.objective,
        bound,
        optimal: report.objective == bound,
        relaxed: report.relaxed,
    };
    Ok(Solution {
        mapping,
        certificate,
    })
}

/// Gives every peer a rank and every position its cpu's id.
fn label(problem: &Problem, domains: &Domains, deal: &Deal) -> Mapping {
    let edges: Vec<(u16, u16)> = deal
        .peers
        .iter()
        .enumerate()
        .flat_map(|(worker, peers)| peers.iter().map(move |&cpu| (worker as u16, cpu)))
        .collect();
    let colours = colour_peers(domains, &edges);
    let id = |position: u16| {
        let original = domains.original[usize::from(position)];
        problem.topology.cpus()[usize::from(original)].id
    };
    let mut cpus: Vec<_> = deal
        .mains
        .iter()
        .flat_map(|&main| std::iter::repeat_n(id(main), domains.threads))
        .collect();
    for (&(worker, cpu), &colour) in edges.iter().zip(&colours) {
        cpus[usize::from(worker) * domains.threads + 1 + usize::from(colour)] = id(cpu);
    }
    Mapping {
        threads: problem.threads,
        cpus,
    }
}
