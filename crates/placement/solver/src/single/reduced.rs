//! The reduced integer program, which proves optimality of small problems.
//!
//! **Problem.** Prove that a value is optimal, or find a better one. **Approach.** The program of
//! `assignment` instead of that of the article: `x[w,c]` threads of a worker on a cpu and `m[w,c]`
//! its main; ranks are not part of it (`rank_coloring` finds them).
//! [`integer_program`](crate::integer_program) describes how pairs are counted. Workers are
//! interchangeable, so symmetry is broken by ordering them by their mains. Rules: (3) bounds
//! x[w,c], (8) and (8+) their sums, (12) and (12+) count the domains that hold ceil(WT/units)
//! threads and a main, all relaxed as far as the construction had to (`relaxation`); (2) is the
//! condition of `rank_coloring`. **Proof sketch.** Every mapping that keeps the rules gives such x
//! and m with the same value, and conversely by `rank_coloring`. **Limits.** Up to
//! [`REDUCED_VARIABLES_MAX`] integer variables, for [`REDUCED_SECONDS_MAX`], starting from the
//! construction. The relaxation is that of the construction, not proven smallest. The program of
//! several deployments is in `joint`.

mod model;
#[cfg(test)]
mod tests;

use crate::integer_program::Solved;
use crate::limits::{REDUCED_SECONDS_MAX, REDUCED_VARIABLES_MAX};
use crate::single::allowed::Allowed;
use crate::single::assignment::{Assignment, assign};
use crate::single::domains::Domains;
use crate::single::volumes::volumes;
use model::{SingleModel, magnitude, size};

/// Result of the program.
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
    let Assignment { mains, peers } = assign(domains, &volumes(domains));
    let mut start: Vec<_> = mains.into_iter().zip(peers).collect();
    // in the order that the program requires
    start.sort();
    let program = SingleModel::of(domains, allowed);
    let Solved { workers, proven } = program.solve(&start, magnitude(domains), seconds)?;
    let (mains, peers) = workers.into_iter().unzip();
    Some(Found {
        assignment: Assignment { mains, peers },
        proven,
    })
}
