//! From a problem to a certified mapping: volumes, assignment, search, bound, labels.
//!
//! **Problem.** The best mapping there is, or the best that can be found in time, with what is
//! known of its quality. **Approach.** A mapping in force that meets the bound is the answer
//! (`incumbent`). Else construct: workers end to end down the tree (`hierarchical_construction`),
//! or greedily (`volumes`, `assignment`). Where value and bound differ, `search_driver` runs local
//! search, tightens the bound by Lagrangian relaxation, anneals counts and threads, and enumerates
//! a tiny problem or solves the reduced program of a small one. A mapping in force stays unless
//! something better was found; only then the assignment is brought close to it
//! (`move_minimization`) and labeled (`labeling`). Cores of different speed are left to the solver
//! of several deployments. **Proof sketch.** Optimal is claimed only where value and bound meet, or
//! where the program was solved to its end and its answer was counted again; the certificate says
//! which of them it was ([`ProvenBound`]). **Limits.** The caller's budget is asked between steps;
//! once it is spent, the rest is construction without choices, O(W (T + C log C)). Every search has
//! a limit of its own, too. Compact with several L3 caches and volumes that leave a remainder is
//! where value and bound most often differ. Ties: no thread moves if the mapping in force is as
//! good; where it is not, moves are few but not proven fewest. Without one, workers of low number
//! contend least for cores (`worker_order`), else labels are the smallest of the assignment found,
//! not of all assignments of equal value.

use albacore_mapping::report;

use crate::error::validate;
use crate::joint::solve_one;
use crate::single::allowed::Allowed;
use crate::single::bound::upper_bound;
use crate::single::domains::Domains;
use crate::single::incumbent::Incumbent;
use crate::single::labeling::label;
use crate::single::move_minimization::minimize_moves;
use crate::single::search_driver::{SearchDriver, start};
use crate::single::volumes::volumes_in_budget;
use crate::worker_order::in_dispatch_order;
use crate::{
    Certificate, CheckReport, JointProblem, Mapping, Problem, ProblemError, Proof, ProvenBound,
    Solution, WorkBudget,
};

/// The best mapping that can be found within the budget; whatever it is, the
/// answer is valid and its gap to the bound is honest.
///
/// # Errors
/// The problem is outside the limits or its distances fall with the level.
pub fn solve(problem: &Problem, budget: &mut WorkBudget) -> Result<Solution, ProblemError> {
    solve_with_stage(problem, budget).map(|(solution, _)| solution)
}

/// As [`solve()`], for a mapping in force that an earlier search left unproven: the long searches
/// are repeated, as this budget is larger than that of the search before.
///
/// # Errors
/// As [`solve()`].
pub fn improve(problem: &Problem, budget: &mut WorkBudget) -> Result<Solution, ProblemError> {
    search(problem, Effort::Whole, budget).map(|(solution, _)| solution)
}

/// The step of [`solve()`] that an answer came from, in their order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Stage {
    /// The mapping in force was kept.
    KeptCurrent,
    /// The first construction; nothing better was found, or needed.
    Constructed,
    /// Exchanges and shifts that each gain.
    LocalSearch,
    /// A search that accepts losses on its way: annealing of counts or of threads, or perturbation.
    Annealed,
    /// Enumeration of a tiny problem found it or proved it optimal.
    Enumerated,
    /// The reduced integer program found it or proved it optimal.
    Reduced,
}

/// [`solve()`], and the step that the answer came from: for tables.
///
/// # Errors
/// As [`solve()`].
pub fn solve_with_stage(
    problem: &Problem,
    budget: &mut WorkBudget,
) -> Result<(Solution, Stage), ProblemError> {
    search(problem, Effort::Needed, budget)
}

/// Whether what an earlier search did is done again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effort {
    /// Not where the mapping in force is as good as a local search finds.
    Needed,
    Whole,
}

fn search(
    problem: &Problem,
    effort: Effort,
    budget: &mut WorkBudget,
) -> Result<(Solution, Stage), ProblemError> {
    validate(problem)?;
    if !problem.topology.is_uniform() {
        return Ok(solve_at_different_speeds(problem, effort, budget));
    }
    let domains = Domains::of(problem);
    let incumbent = Incumbent::of(problem, &domains);
    if let Some(incumbent) = incumbent.as_ref().filter(|incumbent| incumbent.is_strict()) {
        let bound = upper_bound(&domains, &Allowed::strict(&domains));
        if incumbent.objective >= bound {
            return Ok((incumbent.solution(counted(bound)), Stage::KeptCurrent));
        }
    }
    let volumes = volumes_in_budget(&domains, budget);
    let allowed = Allowed::by(&domains, &volumes);
    let bound = upper_bound(&domains, &allowed);
    let incumbent = incumbent.filter(|incumbent| incumbent.is_within(&domains, &allowed));
    if let Some(incumbent) = incumbent
        .as_ref()
        .filter(|incumbent| incumbent.objective >= bound)
    {
        return Ok((incumbent.solution(counted(bound)), Stage::KeptCurrent));
    }
    let (start, stage) = start(&domains, &allowed, &volumes, bound, budget);
    let searched = incumbent.as_ref().filter(|_| effort == Effort::Needed);
    let in_force = searched.map(|incumbent| incumbent.objective);
    let mut driver = SearchDriver {
        best: start,
        upper: counted(bound),
        stage,
    };
    driver.run(in_force, budget);
    let SearchDriver {
        best, upper, stage, ..
    } = driver;
    let value = best.objective();
    if let Some(incumbent) = incumbent.filter(|incumbent| incumbent.objective >= value) {
        let incumbent = incumbent.solution(upper);
        return Ok((incumbent, Stage::KeptCurrent));
    }
    let assignment = match &problem.current {
        Some(now) => {
            let assignment = best.assignment();
            minimize_moves(problem, &domains, &allowed, now, &assignment, budget)
        }
        None => best.assignment(),
    };
    let mut mapping = label(problem, &domains, &assignment);
    if problem.current.is_none() {
        mapping = in_dispatch_order(&problem.topology, mapping);
    }
    Ok((certified(problem, mapping, upper), stage))
}

/// Cores of different speed: what the solver of several deployments finds for one. Its search from
/// a mapping in force is local, so more effort begins anew.
fn solve_at_different_speeds(
    problem: &Problem,
    effort: Effort,
    budget: &mut WorkBudget,
) -> (Solution, Stage) {
    let mut joint = JointProblem::of_one(problem);
    if effort == Effort::Whole {
        joint.deployments[0].current = None;
    }
    let (mapping, certificate) = solve_one(&joint, budget);
    let stage = match problem.current.as_ref() == Some(&mapping) {
        true => Stage::KeptCurrent,
        false => Stage::LocalSearch,
    };
    let solution = Solution {
        mapping,
        certificate,
    };
    (solution, stage)
}

fn counted(bound: i64) -> ProvenBound {
    ProvenBound {
        bound,
        proof: Proof::Bound,
    }
}

/// A mapping with what can be counted of it.
fn certified(problem: &Problem, mapping: Mapping, upper: ProvenBound) -> Solution {
    let CheckReport { objective, relaxed } = report(problem, &mapping);
    let certificate = Certificate::of(objective, upper, relaxed);
    Solution {
        mapping,
        certificate,
    }
}
