//! The reduced integer program, which proves small problems.
//!
//! **Problem.** Prove that a value is the best, or find the better one. **Approach.** The program
//! of `assignment` instead of that of the article: `x[w,c]` threads of a worker on a cpu and
//! `m[w,c]` its main; ranks do not appear (`rank_coloring` finds them). Pairs are counted in
//! domains: where closeness is to be small, by the tangents of x(x-1)/2, where it is to be large,
//! by steps that must be taken in order. Workers are alike, so their mains are asked to be in
//! order. Rules: (3) bounds x[w,c], (8) and (8+) their sums, (12) and (12+) count the domains that
//! hold ceil(WT/units) threads and a main, all loosened as far as the construction had to
//! (`relaxation`); (2) is what `rank_coloring` needs. **Proof sketch.** Every mapping that keeps
//! the rules gives such x and m with the same value, and the reverse holds by `rank_coloring`;
//! tangents and ordered steps are exact at integers. Values are whole numbers, so microlp is asked
//! for a gap below one clock cycle: with `|objective| <= magnitude`, a relative gap of 0.9 /
//! magnitude is an absolute one below 0.9. It computes with floats, so its bound is rounded down
//! with a millionth to spare. **Limits.** Up to [`REDUCED_VARIABLES_MAX`] integer variables, for
//! [`REDUCED_SECONDS_MAX`], from the construction. The relaxation is that of the construction, not
//! proven smallest.

mod model;
#[cfg(test)]
mod tests;

use good_lp::solvers::microlp::microlp;
use good_lp::{Solution, SolverModel, WithInitialSolution, WithMipGap, WithTimeLimit};

use crate::limits::{REDUCED_SECONDS_MAX, REDUCED_VARIABLES_MAX};
use crate::single::allowed::Allowed;
use crate::single::assignment::{Assignment, assign};
use crate::single::domains::Domains;
use crate::single::volumes::volumes;
use model::{Model, size};

/// Asked of microlp in cycles: below 1, where nothing whole lies between value and bound.
const GAP: f64 = 0.9;

/// What the program found.
pub(crate) struct Found {
    pub(crate) assignment: Assignment,
    pub(crate) proven: bool,
}

/// Whether the program is small enough to be solved.
pub(crate) fn is_small(domains: &Domains) -> bool {
    size(domains) <= REDUCED_VARIABLES_MAX
}

/// Solves the program of a small problem.
pub(crate) fn solve_reduced(domains: &Domains, allowed: &Allowed) -> Option<Found> {
    solve_within(domains, allowed, REDUCED_SECONDS_MAX)
}

fn solve_within(domains: &Domains, allowed: &Allowed, seconds: f64) -> Option<Found> {
    let model = Model::of(domains, allowed);
    let start = model.start(&in_order(assign(domains, &volumes(domains))));
    let gap = (GAP / model.magnitude().max(1.0)) as f32;
    let mut program = model.variables.maximise(model.objective).using(microlp);
    for constraint in model.constraints {
        program.add_constraint(constraint);
    }
    let program = program
        .with_initial_solution(start)
        .with_time_limit(seconds);
    let solution = program.with_mip_gap(gap).ok()?.solve().ok()?;
    let values = |row: &Vec<_>| row.iter().map(|&cell| solution.value(cell)).collect();
    let threads: Vec<Vec<f64>> = model.threads.iter().map(values).collect();
    let mains: Vec<Vec<f64>> = model.mains.iter().map(values).collect();
    let solution = solution.into_inner();
    let bound = solution
        .stats()
        .best_bound
        .filter(|bound| bound.is_finite());
    let whole = |bound: f64| (bound + 1e-6 * bound.abs().max(1.0)).floor();
    Some(Found {
        assignment: assignment_of(&threads, &mains)?,
        proven: bound.is_some_and(|bound| whole(bound) <= solution.objective().round()),
    })
}

/// The assignment of a solution: a row of threads and a row of mains for every worker.
fn assignment_of(threads: &[Vec<f64>], mains: &[Vec<f64>]) -> Option<Assignment> {
    let whole = |value: f64| value.round().max(0.0) as usize;
    let mut assignment = Assignment {
        mains: Vec::new(),
        peers: Vec::new(),
    };
    for (threads, mains) in threads.iter().zip(mains) {
        let main = mains.iter().position(|&main| whole(main) > 0)?;
        let mut peers: Vec<u16> = Vec::new();
        for (cpu, &thread) in threads.iter().enumerate() {
            let here = whole(thread).checked_sub(usize::from(cpu == main))?;
            peers.extend(std::iter::repeat_n(cpu as u16, here));
        }
        assignment.mains.push(main as u16);
        assignment.peers.push(peers);
    }
    Some(assignment)
}

/// The assignment with its mains in order, as the program asks for.
fn in_order(assignment: Assignment) -> Assignment {
    let mut rows: Vec<(u16, Vec<u16>)> =
        assignment.mains.into_iter().zip(assignment.peers).collect();
    rows.sort();
    let (mains, peers) = rows.into_iter().unzip();
    Assignment { mains, peers }
}
