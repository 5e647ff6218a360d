//! The reduced integer program, as the net of `solve` and as a method of its own.
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
//! tangents and ordered steps are exact at integers. **Limits.** As the net, up to
//! [`REDUCED_VARIABLES_MAX`] integer variables and for [`REDUCED_SECONDS_MAX`]; alone, up to
//! [`REDUCED_ALONE_VARIABLES_MAX`] and for the caller's seconds. Both start from the construction;
//! alone, there so always is an answer. The relaxation is that of the construction, not proven
//! smallest.

mod model;

use good_lp::Variable;

use crate::assignment::{Assignment, assign};
use crate::check::report;
use crate::domains::Domains;
use crate::error::validate;
use crate::labeling::label;
use crate::limits::{REDUCED_ALONE_VARIABLES_MAX, REDUCED_SECONDS_MAX, REDUCED_VARIABLES_MAX};
use crate::local_search::{Allowed, Search};
use crate::method::engine::{self, ENGINE, Failure, Program, run, run_microlp};
use crate::method::farthest;
use crate::volumes::volumes;
use crate::{Certificate, CheckReport, Method, MethodError, Problem, Proof, ProvenBound, Solution};
use model::{Model, size};

/// What the program found.
pub(crate) struct Found {
    pub(crate) assignment: Assignment,
    pub(crate) proven: bool,
}

/// Solves the program if it is small enough: the net of `solve`.
pub(crate) fn solve_reduced(domains: &Domains, allowed: &Allowed) -> Option<Found> {
    if size(domains) > REDUCED_VARIABLES_MAX {
        return None;
    }
    let model = Model::of(domains, allowed);
    let start = in_order(assign(domains, &volumes(domains)));
    let (found, assignment) = run_model(model, &start, |program, subgradient, start| {
        run_microlp(program, subgradient, start, REDUCED_SECONDS_MAX)
    })
    .ok()?;
    Some(Found {
        assignment: assignment?,
        proven: found.is_proven(),
    })
}

/// Solves the program alone, whatever the construction is worth.
///
/// # Errors
/// The problem is outside the limits, the program too large, or the engine failed.
pub(crate) fn solve_reduced_alone(
    problem: &Problem,
    seconds: f64,
) -> Result<Solution, MethodError> {
    let method = Method::Reduced;
    validate(problem)?;
    let domains = Domains::of(problem);
    let (variables, most) = (size(&domains), REDUCED_ALONE_VARIABLES_MAX);
    if variables > most {
        let engine = ENGINE;
        return Err(MethodError::TooLarge {
            method,
            variables,
            most,
            engine,
        });
    }
    let volumes = volumes(&domains);
    let allowed = Allowed::by(&domains, &volumes);
    let start = in_order(assign(&domains, &volumes));
    let mut bound = farthest(problem);
    let mut best = (Search::of(&domains, &allowed, &start).objective(), start);
    let model = Model::of(&domains, &allowed);
    let solved = run_model(model, &best.1, |program, subgradient, start| {
        run(program, subgradient, start, seconds)
    });
    match solved {
        Ok((found, assignment)) => {
            // the program leaves out what everything far apart would be worth
            let constant = domains.objective(0, 0);
            bound = found.bound.map_or(bound, |proven| proven + constant);
            if let Some(assignment) = assignment {
                let search = Search::of(&domains, &allowed, &assignment);
                if search.is_valid() && search.objective() > best.0 {
                    best = (search.objective(), assignment);
                }
            }
        }
        Err(Failure::Time) => {}
        Err(Failure::Broken(message)) => {
            let engine = ENGINE;
            return Err(MethodError::Engine {
                method,
                engine,
                message,
            });
        }
    }
    let mapping = label(problem, &domains, &best.1);
    let CheckReport { objective, relaxed } = report(problem, &mapping);
    let upper = ProvenBound {
        bound,
        proof: Proof::Search,
    };
    let certificate = Certificate::of(objective, upper, relaxed);
    Ok(Solution {
        mapping,
        certificate,
    })
}

/// What the engine says, and the assignment that its values are.
fn run_model(
    model: Model<'_>,
    start: &Assignment,
    run: impl FnOnce(Program, &[Variable], &[(Variable, f64)]) -> Result<engine::Found, Failure>,
) -> Result<(engine::Found, Option<Assignment>), Failure> {
    let start = model.start(start);
    let (workers, cpus) = (model.threads.len(), model.threads[0].len());
    let subgradient: Vec<_> = model
        .threads
        .iter()
        .chain(&model.mains)
        .flatten()
        .copied()
        .collect();
    let found = run(model.program(), &subgradient, &start)?;
    let (threads, mains) = found.values.split_at(workers * cpus);
    let rows = threads.chunks(cpus).zip(mains.chunks(cpus));
    let assignment = assignment_of(rows);
    Ok((found, assignment))
}

/// The assignment of a solution: a row of threads and a row of mains for every worker.
fn assignment_of<'a>(rows: impl Iterator<Item = (&'a [f64], &'a [f64])>) -> Option<Assignment> {
    let whole = |value: f64| value.round().max(0.0) as usize;
    let mut assignment = Assignment {
        mains: Vec::new(),
        peers: Vec::new(),
    };
    for (threads, mains) in rows {
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
