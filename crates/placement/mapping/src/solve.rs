//! From a problem to a certified mapping: volumes, deal, exchanges, bound, ranks.
//!
//! **Problem.** The best mapping there is, or the best that can be had in time, with what is known
//! of its quality. **Approach.** A mapping in force that meets the bound is the answer (`kept`).
//! Else construct: workers end to end down the tree (`descend`), or dealt greedily (`volumes`,
//! `deal`). Where value and bound differ: climb (`improve`), lower the bound by prices (`bound`,
//! `prices`, `forks`), anneal in counts (`descend`, `anneal`), solve the reduced program if it is
//! small (`reduced`), anneal in threads (`wander`) and shake (`shake`). A mapping in force stays
//! unless something better was found; only then a deal is brought close to it (`settle`) and named
//! (`name`). **Proof sketch.** Optimal is said only where value and bound meet, or where the
//! program was solved to its end and its answer was counted again; which of them it was goes into
//! the certificate (`Limit`). **Limits.** The caller's budget is asked between steps; once it is
//! spent, the rest is construction without choices, O(W (T + C log C)). Every search has a bound of
//! its own too. Compact with several L3 caches and volumes that leave a remainder is where value
//! and bound most often stay apart. Ties: no thread moves if the mapping in force is as good; where
//! it is not, moves are few but not proven fewest, and names are the smallest of the deal found,
//! not of all deals of equal value.

use crate::bound::upper_bound;
use crate::check::report;
use crate::domains::Domains;
use crate::error::validate;
use crate::improve::Allowed;
use crate::kept::{Kept, strict};
use crate::name::name;
use crate::pursuit::{Limit, Pursuit, start};
use crate::settle::settle;
use crate::volumes::volumes_within;
use crate::{Certificate, CheckReport, Mapping, Problem, ProblemError, Proof, Solution};

/// The best mapping that can be found before `out_of_budget` says true; whatever it says, the
/// answer is valid and its gap to the bound is honest.
///
/// # Errors
/// The problem is outside the limits or its distances fall with the level.
pub fn solve(
    problem: &Problem,
    out_of_budget: &mut dyn FnMut() -> bool,
) -> Result<Solution, ProblemError> {
    solve_telling(problem, out_of_budget).map(|(solution, _)| solution)
}

/// The step that an answer came from, in the order of [`solve()`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Branch {
    /// The mapping in force was kept.
    Settled,
    /// The construction; nothing better was found, or needed.
    Constructed,
    /// Exchanges and shifts that each gain.
    Climbed,
    /// A search that accepts losses on its way: of counts, of threads, or by shakes.
    Annealed,
    /// The reduced program found it or proved it.
    Reduced,
}

/// [`solve()`], and the step that the answer came from: for tables.
///
/// # Errors
/// As [`solve()`].
pub fn solve_telling(
    problem: &Problem,
    out_of_budget: &mut dyn FnMut() -> bool,
) -> Result<(Solution, Branch), ProblemError> {
    validate(problem)?;
    let domains = Domains::of(problem);
    let kept = Kept::of(problem, &domains);
    if let Some(kept) = kept.as_ref().filter(|kept| kept.is_strict()) {
        let bound = upper_bound(&domains, &strict(&domains));
        if kept.objective >= bound {
            return Ok((kept.solution((bound, Proof::Bound)), Branch::Settled));
        }
    }
    let volumes = volumes_within(&domains, out_of_budget);
    let allowed = Allowed::by(&domains, &volumes);
    let bound = upper_bound(&domains, &allowed);
    let kept = kept.filter(|kept| kept.is_within(&domains, &allowed));
    if let Some(kept) = kept.as_ref().filter(|kept| kept.objective >= bound) {
        return Ok((kept.solution((bound, Proof::Bound)), Branch::Settled));
    }
    let (start, branch) = start(&domains, &allowed, (&volumes, bound), out_of_budget);
    let in_force = kept.as_ref().map(|kept| kept.objective);
    let mut pursuit = Pursuit {
        best: start,
        limit: Limit {
            bound,
            proof: Proof::Bound,
        },
        branch,
        bargained: Vec::new(),
    };
    pursuit.run(in_force, out_of_budget);
    let Pursuit {
        best,
        limit,
        branch,
        ..
    } = pursuit;
    let value = best.objective();
    if let Some(kept) = kept.filter(|kept| kept.objective >= value) {
        let kept = kept.solution((limit.bound, limit.proof));
        return Ok((kept, Branch::Settled));
    }
    let deal = match &problem.current {
        Some(now) => {
            let deal = best.deal();
            settle(problem, (&domains, &allowed), now, &deal, out_of_budget)
        }
        None => best.deal(),
    };
    let mapping = name(problem, &domains, &deal);
    Ok((certified(problem, mapping, limit), branch))
}

/// A mapping with what can be counted of it.
fn certified(problem: &Problem, mapping: Mapping, limit: Limit) -> Solution {
    let CheckReport { objective, relaxed } = report(problem, &mapping);
    let certificate = Certificate::of(objective, (limit.bound, limit.proof), relaxed);
    Solution {
        mapping,
        certificate,
    }
}
