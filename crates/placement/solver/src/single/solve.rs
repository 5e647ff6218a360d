//! Solves the problem of one deployment: volumes, assignment, search, bound, labels.
//!
//! **Problem.** The best mapping, or the best that can be found in time, with a certificate of its
//! quality. **Approach.** A mapping in force that meets the bound is the answer
//! (`current_mapping`). Otherwise construct: workers end to end down the tree
//! (`hierarchical_construction`), or greedily (`volumes`, `assignment`). If value and bound differ,
//! `search_driver` runs local search, tightens the bound by Lagrangian relaxation, anneals counts
//! and threads, and enumerates a tiny problem or solves the reduced program of a small one. A
//! mapping in force stays unless something better was found; only then the assignment is brought
//! close to it (`move_minimization`) and labeled (`labeling`). Cores of different speed are left to
//! the solver of several deployments.
//! **Proof sketch.** Optimality is claimed only if value and bound meet, or if the program was
//! solved to the end and its answer was recounted; the certificate states which ([`ProvenBound`]).
//! **Limits.** The caller's budget is checked between steps; once it is spent, the rest is
//! construction without choices, O(W (T + C log C)). Every search has its own limit as well. A gap
//! remains most often for compact with several L3 caches and volumes that leave a remainder. Ties:
//! no thread moves if the mapping in force is as good; if it is not, moves are few but not proven
//! fewest. Without one, workers of low number contend least for cores (`worker_order`), else labels
//! are the smallest of the assignment found, not of all assignments of equal value.

use albacore_mapping::report;

use crate::error::validate;
use crate::joint::solve_one;
use crate::single::allowed::Allowed;
use crate::single::bound::upper_bound;
use crate::single::current_mapping::CurrentMapping;
use crate::single::domains::Domains;
use crate::single::labeling::label;
use crate::single::move_minimization::minimize_moves;
use crate::single::search_driver::{SearchDriver, start};
use crate::single::volumes::volumes_in_budget;
use crate::worker_order::in_dispatch_order;
use crate::{
    Certificate, CheckReport, JointProblem, Mapping, Problem, ProblemError, Proof, ProvenBound,
    Solution, WorkBudget,
};

/// Returns the best mapping that is found within the budget. Regardless of the budget, the answer
/// is valid and its bound holds.
///
/// # Errors
/// The problem is outside the limits or its distances fall with the level.
pub fn solve(problem: &Problem, budget: &mut WorkBudget) -> Result<Solution, ProblemError> {
    solve_with_stage(problem, budget).map(|(solution, _)| solution)
}

/// Like [`solve()`], for a mapping in force that an earlier search left unproven: repeats the long
/// searches, because this budget is larger than that of the earlier search.
///
/// # Errors
/// As [`solve()`].
pub fn improve(problem: &Problem, budget: &mut WorkBudget) -> Result<Solution, ProblemError> {
    search(problem, Effort::Whole, budget).map(|(solution, _)| solution)
}

/// The step of [`solve()`] that produced an answer, in their order.
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

/// Like [`solve()`], and also returns the step that produced the answer: for tables.
///
/// # Errors
/// As [`solve()`].
pub fn solve_with_stage(
    problem: &Problem,
    budget: &mut WorkBudget,
) -> Result<(Solution, Stage), ProblemError> {
    search(problem, Effort::Needed, budget)
}

/// Whether the work of an earlier search is repeated.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effort {
    /// Not if the mapping in force is as good as the result of a local search.
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
    let current = CurrentMapping::of(problem, &domains);
    if let Some(current) = current.as_ref().filter(|current| current.keeps_all_rules()) {
        let bound = upper_bound(&domains, &Allowed::strict(&domains));
        if current.objective >= bound {
            return Ok((current.solution(counted(bound)), Stage::KeptCurrent));
        }
    }
    let volumes = volumes_in_budget(&domains, budget);
    let allowed = Allowed::by(&domains, &volumes);
    let bound = upper_bound(&domains, &allowed);
    let current = current.filter(|current| current.is_within(&domains, &allowed));
    if let Some(current) = current
        .as_ref()
        .filter(|current| current.objective >= bound)
    {
        return Ok((current.solution(counted(bound)), Stage::KeptCurrent));
    }
    let (start, stage) = start(&domains, &allowed, &volumes, bound, budget);
    let searched = current.as_ref().filter(|_| effort == Effort::Needed);
    let in_force = searched.map(|current| current.objective);
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
    if let Some(current) = current.filter(|current| current.objective >= value) {
        let current = current.solution(upper);
        return Ok((current, Stage::KeptCurrent));
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

/// Solves a problem on cores of different speed with the solver of several deployments. Its search
/// from a mapping in force is local, so with more effort it starts without that mapping.
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

/// A mapping with its certificate.
fn certified(problem: &Problem, mapping: Mapping, upper: ProvenBound) -> Solution {
    let CheckReport { objective, relaxed } = report(problem, &mapping);
    let certificate = Certificate::of(objective, upper, relaxed);
    Solution {
        mapping,
        certificate,
    }
}
