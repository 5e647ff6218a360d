//! The reduced integer program, as the net of `solve` and as a method of its own.
//!
//! **Problem.** Prove that a value is the best, or find the better one. **Approach.** The program
//! of `deal` instead of that of the article: `x[w,c]` threads of a worker on a cpu and `m[w,c]` its
//! main; ranks do not appear (`label` finds them). Pairs are counted in domains: where closeness is
//! to be small, by the tangents of x(x-1)/2, where it is to be large, by steps that must be taken
//! in order. Workers are alike, so their mains are asked to be in order. Rules: (3) bounds x[w,c],
//! (8) and (8+) their sums, (12) and (12+) count the domains that hold ceil(WT/units) threads and a
//! main, all loosened as far as the construction had to (`relax`); (2) is what `label` needs.
//! **Proof sketch.** Every mapping that keeps the rules gives such x and m with the same value, and
//! the reverse holds by `label`; tangents and ordered steps are exact at integers. **Limits.** As
//! the net, up to [`REDUCED_VARIABLES_MAX`] integer variables and for [`REDUCED_SECONDS_MAX`];
//! alone, up to [`REDUCED_ALONE_VARIABLES_MAX`] and for the caller's seconds. Both start from the
//! construction; alone, there so always is an answer. The relaxation is that of the construction,
//! not proven smallest.

mod model;

use good_lp::Variable;

use crate::check::report;
use crate::deal::{Deal, deal};
use crate::domains::Domains;
use crate::error::validate;
use crate::improve::{Allowed, Search};
use crate::limits::{REDUCED_ALONE_VARIABLES_MAX, REDUCED_SECONDS_MAX, REDUCED_VARIABLES_MAX};
use crate::method::engine::{self, ENGINE, Failure, Program, run, run_microlp};
use crate::method::farthest;
use crate::name::name;
use crate::volumes::volumes;
use crate::{Certificate, CheckReport, Method, MethodError, Problem, Proof, Solution};
use model::{Model, size};

/// What the program found.
pub(crate) struct Found {
    pub(crate) deal: Deal,
    pub(crate) proven: bool,
}

/// Solves the program if it is small enough: the net of `solve`.
pub(crate) fn solve_reduced(domains: &Domains, allowed: &Allowed) -> Option<Found> {
    if size(domains) > REDUCED_VARIABLES_MAX {
        return None;
    }
    let model = Model::of(domains, allowed);
    let start = in_order(deal(domains, &volumes(domains)));
    let (found, deal) = run_model(model, &start, |program, wanted, start| {
        run_microlp(program, wanted, start, REDUCED_SECONDS_MAX)
    })
    .ok()?;
    Some(Found {
        deal: deal?,
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
    let start = in_order(deal(&domains, &volumes));
    let mut bound = farthest(problem);
    let mut best = (Search::of(&domains, &allowed, &start).objective(), start);
    let model = Model::of(&domains, &allowed);
    let solved = run_model(model, &best.1, |program, wanted, start| {
        run(program, wanted, start, seconds)
    });
    match solved {
        Ok((found, deal)) => {
            // the program leaves out what everything far apart would be worth
            let constant = domains.objective(0, 0);
            bound = found.bound.map_or(bound, |proven| proven + constant);
            if let Some(deal) = deal {
                let search = Search::of(&domains, &allowed, &deal);
                if search.is_valid() && search.objective() > best.0 {
                    best = (search.objective(), deal);
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
    let mapping = name(problem, &domains, &best.1);
    let CheckReport { objective, relaxed } = report(problem, &mapping);
    let certificate = Certificate::of(objective, (bound, Proof::Search), relaxed);
    Ok(Solution {
        mapping,
        certificate,
    })
}

/// What the engine says, and the deal that its values are.
fn run_model(
    model: Model<'_>,
    start: &Deal,
    run: impl FnOnce(Program, &[Variable], &[(Variable, f64)]) -> Result<engine::Found, Failure>,
) -> Result<(engine::Found, Option<Deal>), Failure> {
    let start = model.start(start);
    let (workers, cpus) = (model.threads.len(), model.threads[0].len());
    let wanted: Vec<_> = model
        .threads
        .iter()
        .chain(&model.mains)
        .flatten()
        .copied()
        .collect();
    let found = run(model.program(), &wanted, &start)?;
    let (threads, mains) = found.values.split_at(workers * cpus);
    let rows = threads.chunks(cpus).zip(mains.chunks(cpus));
    let deal = deal_of(rows);
    Ok((found, deal))
}

/// The deal of a solution: a row of threads and a row of mains for every worker.
fn deal_of<'a>(rows: impl Iterator<Item = (&'a [f64], &'a [f64])>) -> Option<Deal> {
    let whole = |value: f64| value.round().max(0.0) as usize;
    let mut deal = Deal {
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
        deal.mains.push(main as u16);
        deal.peers.push(peers);
    }
    Some(deal)
}

/// The deal with its mains in order, as the program asks for.
fn in_order(deal: Deal) -> Deal {
    let mut rows: Vec<(u16, Vec<u16>)> = deal.mains.into_iter().zip(deal.peers).collect();
    rows.sort();
    let (mains, peers) = rows.into_iter().unzip();
    Deal { mains, peers }
}
