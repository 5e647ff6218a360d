//! From a problem to a certified mapping: volumes, deal, exchanges, bound, ranks.
//!
//! **Problem.** The best mapping there is, or the best that can be had in time, with what is known of
//! its quality. **Approach.** A mapping in force that meets the bound is the answer. Else construct:
//! workers end to end down the tree (`descend`), or dealt greedily (`volumes`, `deal`). Where value
//! and bound differ: climb (`improve`), lower the bound by prices (`bound`, `prices`), anneal in
//! counts (`descend`, `anneal`) and in threads (`wander`), shake (`shake`), and solve the reduced
//! program if it is small (`reduced`). A mapping in force stays unless something better was found;
//! only then a deal is brought close to it (`settle`) and named (`name`). **Proof sketch.** Optimal
//! is said only where value and bound meet, or where the program was solved to its end and its answer
//! was counted again; which of them it was goes into the certificate (`Limit`). **Limits.** The
//! caller's budget is asked between steps; once it is spent, the rest is construction without choices,
//! O(W (T + C log C)). Every search has a bound of its own too.
//! Compact with several L3 caches and volumes that leave a remainder is where value and bound most
//! often stay apart. Ties: no thread moves if the mapping in force is as good; where it is not, moves
//! are few but not proven fewest, and names are the smallest of the deal found, not of all deals of
//! equal value.

use crate::bound::{tightened, upper_bound};
use crate::check::report;
use crate::deal::{Deal, deal_within};
use crate::descend::descend;
use crate::domains::Domains;
use crate::error::validate;
use crate::improve::{Allowed, Search};
use crate::limits::{CLIMB_WORK_MAX, DESCENTS, WANDER_MOVES_MAX};
use crate::name::name;
use crate::reduced::{Found, solve_reduced};
use crate::settle::settle;
use crate::shake::shake;
use crate::volumes::volumes_within;
use crate::wander::wander;
use crate::{
    Certificate, CheckReport, Mapping, Problem, ProblemError, Proof, Relaxation, Solution, check,
};

/// What nothing exceeds, and how that is known: the proof if a value meets it.
#[derive(Clone, Copy)]
struct Limit {
    bound: i64,
    proof: Proof,
}

impl Limit {
    /// The lower of the two; as it was where both are the same.
    fn lowered(self, bound: i64, proof: Proof) -> Self {
        if bound < self.bound {
            Self { bound, proof }
        } else {
            self
        }
    }
}

/// The best mapping that can be found before `out_of_budget` says true; whatever it says, the
/// answer is valid and its gap to the bound is honest.
///
/// # Errors
/// The problem is outside the limits or its distances fall with the level.
pub fn solve(
    problem: &Problem,
    out_of_budget: &mut dyn FnMut() -> bool,
) -> Result<Solution, ProblemError> {
    validate(problem)?;
    let domains = Domains::of(problem);
    let volumes = volumes_within(&domains, out_of_budget);
    let allowed = Allowed::by(&domains, &volumes);
    let bound = upper_bound(&domains, &allowed);
    let settled = settled(problem, &domains, &allowed);
    if let Some(kept) = settled
        .as_ref()
        .filter(|kept| kept.certificate.objective >= bound)
    {
        let proof = Proof::Bound;
        return Ok(certified(kept, Limit { bound, proof }));
    }
    let plain = descend(&domains, &allowed, 0, out_of_budget)
        .and_then(|mut plain| (plain.repair() && plain.is_valid()).then_some(plain));
    let mut search = match plain {
        Some(plain) if plain.objective() >= bound => plain,
        plain => {
            let dealt = deal_within(&domains, &volumes, out_of_budget);
            let greedy = Search::of(&domains, &allowed, &dealt);
            plain
                .filter(|plain| plain.objective() > greedy.objective())
                .unwrap_or(greedy)
        }
    };
    let limit = pursue(&mut search, bound, out_of_budget);
    let (value, deal, limit) = prove(&domains, &search, limit, out_of_budget);
    let kept = settled.filter(|kept| kept.certificate.objective >= value);
    let found = || {
        let deal = match &problem.current {
            Some(now) => settle(problem, (&domains, &allowed), now, &deal, out_of_budget),
            None => deal,
        };
        measured(problem, name(problem, &domains, &deal))
    };
    Ok(certified(&kept.unwrap_or_else(found), limit))
}

/// The mapping in force, if it answers this problem and breaks no rule by more than it must.
fn settled(problem: &Problem, domains: &Domains, allowed: &Allowed) -> Option<Solution> {
    let current = problem.current.as_ref()?;
    let report = match kept_value(problem, domains, allowed, current) {
        Some(objective) => CheckReport {
            objective,
            relaxed: Vec::new(),
        },
        None => check(problem, current).ok()?,
    };
    let CheckReport { objective, relaxed } = report;
    let must = allowed.amounts(domains);
    let keeps = |relaxed: &Relaxation| {
        must.iter()
            .any(|(rule, amount)| relaxed.rule == *rule && relaxed.amount <= *amount)
    };
    let keeps_all = relaxed.iter().all(keeps);
    let certificate = Certificate::of(objective, (i64::MAX, Proof::None), relaxed);
    keeps_all.then(|| Solution {
        mapping: current.clone(),
        certificate,
    })
}

/// The value of a mapping that keeps every rule, counted in tables: the way that most re-solves go,
/// several times faster than [`check`].
fn kept_value(
    problem: &Problem,
    domains: &Domains,
    allowed: &Allowed,
    current: &Mapping,
) -> Option<i64> {
    let strict = allowed
        .amounts(domains)
        .iter()
        .all(|&(_, amount)| amount == 0);
    let threads = domains.threads;
    let whole = current.cpus.len() == domains.workers * threads;
    if !strict || !whole || current.threads != problem.threads {
        return None;
    }
    let cpus = problem.topology.cpus();
    let mut position = vec![None; usize::from(cpus.last()?.id.0) + 1];
    for (place, &original) in domains.original.iter().enumerate() {
        position[usize::from(cpus[usize::from(original)].id.0)] = Some(place as u16);
    }
    let mut of_rank = vec![0u16; domains.cpus * threads];
    let mut deal = Deal {
        mains: Vec::with_capacity(domains.workers),
        peers: Vec::with_capacity(domains.workers),
    };
    for row in current.cpus.chunks(threads) {
        let mut places = Vec::with_capacity(threads);
        for (rank, cpu) in row.iter().enumerate() {
            let place = position.get(usize::from(cpu.0)).copied().flatten()?;
            let held = &mut of_rank[usize::from(place) * threads + rank];
            *held += 1;
            if u32::from(*held) > domains.rank_cap {
                return None;
            }
            places.push(place);
        }
        deal.mains.push(places[0]);
        places.remove(0);
        deal.peers.push(places);
    }
    let search = Search::of(domains, allowed, &deal);
    search.is_valid().then(|| search.objective())
}

/// A mapping with what can be counted of it; nothing is proven yet.
fn measured(problem: &Problem, mapping: Mapping) -> Solution {
    let CheckReport { objective, relaxed } = report(problem, &mapping);
    let certificate = Certificate::of(objective, (i64::MAX, Proof::None), relaxed);
    Solution {
        mapping,
        certificate,
    }
}

fn certified(solution: &Solution, limit: Limit) -> Solution {
    let Certificate {
        objective, relaxed, ..
    } = solution.certificate.clone();
    Solution {
        mapping: solution.mapping.clone(),
        certificate: Certificate::of(objective, (limit.bound, limit.proof), relaxed),
    }
}

/// Better deals and better bounds in turn, until they meet or all means are used; what is
/// left of the counted `bound`.
fn pursue(search: &mut Search<'_>, bound: i64, out_of_budget: &mut dyn FnMut() -> bool) -> Limit {
    let counted = Limit {
        bound,
        proof: Proof::Bound,
    };
    let (domains, allowed) = (search.domains, search.allowed);
    let steps = CLIMB_WORK_MAX / (search.threads() + domains.cpus) + 1;
    climb_some(search, bound, steps, out_of_budget);
    let bound = tightened(search, bound, out_of_budget);
    let limit = counted.lowered(bound, Proof::Prices);
    for seed in DESCENTS {
        if search.objective() >= bound || out_of_budget() {
            return limit;
        }
        let Some(mut other) = descend(domains, &allowed, seed, out_of_budget) else {
            continue;
        };
        other.repair();
        if other.broken() > 0 {
            wander(&mut other, bound, WANDER_MOVES_MAX / 4, out_of_budget);
        }
        if other.is_valid() {
            climb_some(&mut other, bound, steps, out_of_budget);
            if other.objective() > search.objective() {
                *search = other;
            }
        }
    }
    if search.objective() < bound {
        wander(search, bound, WANDER_MOVES_MAX, out_of_budget);
        shake(search, bound, out_of_budget);
        let bound = tightened(search, bound, out_of_budget);
        return limit.lowered(bound, Proof::Prices);
    }
    limit
}

/// Climbs for so many steps at most.
fn climb_some(
    search: &mut Search<'_>,
    goal: i64,
    steps: usize,
    out_of_budget: &mut dyn FnMut() -> bool,
) {
    let mut taken = 0;
    search.climb(goal, &mut || {
        taken += 1;
        taken > steps || out_of_budget()
    });
}

/// The reduced program where value and bound do not meet; the better value, its deal, and the
/// limit.
fn prove(
    domains: &Domains,
    search: &Search<'_>,
    limit: Limit,
    out_of_budget: &mut dyn FnMut() -> bool,
) -> (i64, Deal, Limit) {
    let value = search.objective();
    if value >= limit.bound || out_of_budget() {
        return (value, search.deal(), limit);
    }
    let Some(Found { deal, proven }) = solve_reduced(domains, &search.allowed) else {
        return (value, search.deal(), limit);
    };
    // the program works with floats: its deal is taken only if counting confirms it, and its proof
    // only together with its deal
    let found = Search::of(domains, &search.allowed, &deal);
    let better = found.is_valid() && found.objective() > value;
    let best = if better { found.objective() } else { value };
    let limit = if proven && found.is_valid() && found.objective() == best {
        limit.lowered(best, Proof::Search)
    } else {
        limit
    };
    (best, if better { deal } else { search.deal() }, limit)
}
