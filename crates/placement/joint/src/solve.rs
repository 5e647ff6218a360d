//! From a joint problem to certified mappings.
//!
//! The steps are in the head of `joint`; what is in force, keeps all rules and meets the bound is
//! known to be the answer before a search is set up. **Proof sketch.** Optimal is said only where
//! the value meets the bound, or where every placement was looked at. A climb starts from what the
//! rules leave of the mappings in force; if it found nothing that is worth its moves once they are
//! counted with ranks, that start is the answer. **Limits.** The budget is asked between steps of
//! the search; balancing, dealing and ranks run to their end whatever it says: 6 ms for 3,200
//! threads on 256 cpus, some 30 ms for the most threads that are taken. Without a budget the rounds
//! of `shake` end it. With threads that run already the search is local: few moves and a good
//! value, not proven best except on tiny problems or where the counts say so.

use super::bound::upper_bound;
use super::climb::{Climber, mend};
use super::deal::deal;
use super::enumerate::{Breaches, Key, enumerate};
use super::error::{alone, validate};
use super::label::{keeps_rank_cap, label};
use super::moves::{homeless, least_moves};
use super::rules::Rules;
use super::search::Search;
use super::shake::shake;
use super::site::{CORE, LEVELS, NOWHERE, Party, Site};
use super::volume::{Volume, balance};
use super::{JointError, JointProblem, JointSolution};
use crate::limits::FROZEN_COST;
use albacore_mapping::{Certificate, Mapping, Problem, Proof, Relaxation, Solution, check, solve};

/// The best mappings for all deployments together that can be found before `out_of_budget` says
/// true; whatever it says, the answer is valid and its gap to the bound is honest.
///
/// # Errors
/// A deployment, an obstacle or the machine is outside the limits.
pub fn solve_joint(
    problem: &JointProblem,
    out_of_budget: &mut dyn FnMut() -> bool,
) -> Result<JointSolution, JointError> {
    validate(problem)?;
    let site = Site::of(problem);
    if let [one] = &problem.deployments[..]
        && site.obstacles.iter().all(|&weight| weight == 0)
        && let Some(alone) = alone(problem, one)
    {
        return solve_alone(problem, &site, &alone, out_of_budget);
    }
    let rules = Rules::of(problem, &site);
    let volume = balance(&site);
    let (best, limits) = settled(&site, &rules, &volume)
        .unwrap_or_else(|| sought(&site, &rules, &volume, out_of_budget));
    Ok(answer(problem, &site, best, limits))
}

/// What limits an answer: a bound and what it comes from, and the threads that must move.
type Limits = ((i64, Proof), u32);

/// What is in force, if it keeps all rules and meets the bound.
fn settled(site: &Site, rules: &Rules, volume: &Volume) -> Option<(Placement, Limits)> {
    let keeps_ranks = |party: &Party| keeps_rank_cap(party, &party.homes);
    if !volume.is_settled(site) || !site.parties.iter().all(keeps_ranks) {
        return None;
    }
    let homes = site.parties.iter().flat_map(|party| &party.homes);
    let places: Vec<u16> = homes.copied().collect();
    let mut mains = vec![0; site.cpus];
    let mut core_mains = vec![0; site.counts[CORE]];
    let of_parties = site.parties.iter().flat_map(Party::mains);
    for main in of_parties.map(usize::from) {
        mains[main] += 1;
        core_mains[site.core(main)] += 1;
    }
    let cores = site.core_loads(&volume.loads);
    let breaches = rules.breaches((&volume.loads, &mains), (&cores, &core_mains));
    let within = |party: &Party| within(site, party, &party.homes);
    let value = apart(site, &mains) + site.parties.iter().map(within).sum::<i64>();
    if breaches != [0; 3] || value < upper_bound(site, rules, volume, breaches) {
        return None;
    }
    let key = (breaches, -value, 0);
    let best = Placement { key, value, places };
    Some((best, ((value, Proof::Bound), 0)))
}

/// The best that is found by search.
fn sought(
    site: &Site,
    rules: &Rules,
    volume: &Volume,
    out_of_budget: &mut dyn FnMut() -> bool,
) -> (Placement, Limits) {
    let mut search = dealt(site, rules, volume, out_of_budget);
    // ranks may cost moves that a climb does not foresee: then its start may be the better answer
    let is_joined = site.parties.iter().any(|party| party.is_running);
    let start = is_joined.then(|| Sketch::of(&search));
    let breaches = search.breaches();
    let goal = upper_bound(site, rules, volume, breaches);
    find_best(&mut search, goal, out_of_budget);
    let found = Sketch::of(&search);
    drop(search);
    let mut best = found.labeled(site);
    if let Some(start) = start.filter(|start| start.value != found.value) {
        let before = start.labeled(site);
        if before.key <= best.key {
            best = before;
        }
    }
    let (mut bound, mut proof) = (goal, Proof::Bound);
    if best.key.0 != breaches {
        bound = upper_bound(site, rules, volume, best.key.0);
    }
    let mut moved_least = least_moves(site, rules, volume, best.key.0);
    let is_settled = best.value >= bound && best.key.2 == moved_least;
    let tiny = if is_settled {
        None
    } else {
        enumerate(site, rules, &volume.loads, out_of_budget)
    };
    if let Some(tiny) = tiny {
        if let Some((key, places)) = tiny.best.filter(|(key, _)| *key < best.key) {
            best = Placement::from(site, key, places);
        }
        if tiny.complete {
            moved_least = best.key.2;
        }
        if let Some((_, most)) = tiny.most_value.filter(|_| tiny.complete) {
            // a bound that was met by counting alone stays the proof
            if most != bound {
                (bound, proof) = (most, Proof::Search);
            }
        }
    }
    (best, ((bound, proof), moved_least))
}

/// A first placement. Where it crowds mains, another that is led by cores may not.
fn dealt<'a>(
    site: &'a Site,
    rules: &'a Rules,
    volume: &Volume,
    out_of_budget: &mut dyn FnMut() -> bool,
) -> Search<'a> {
    let mut search = Search::new(site, rules, volume);
    deal(&mut search, volume, false);
    mend(&mut search, out_of_budget);
    if search.crowd() > 0 && !out_of_budget() {
        let mut other = Search::new(site, rules, volume);
        deal(&mut other, volume, true);
        mend(&mut other, out_of_budget);
        if other.breaches() < search.breaches() {
            return other;
        }
    }
    search
}

/// Climbs and shakes: first the newcomers alone, as if moving anybody else cost more than it could
/// gain, then all, so that each move of a thread that runs pays beside the best without it.
fn find_best(search: &mut Search<'_>, goal: i64, out_of_budget: &mut dyn FnMut() -> bool) {
    let runs_on = search.kept == search.threads.len() as i64 && search.breach() == 0;
    let is_joined = search.site.parties.iter().any(|party| party.is_running);
    if runs_on {
        Climber::new(search).climb(search, goal, out_of_budget);
        return;
    }
    let move_cost = search.move_cost;
    let passes = if is_joined {
        &[FROZEN_COST, move_cost][..]
    } else {
        &[move_cost]
    };
    for &cost in passes {
        search.move_cost = cost;
        let mut climber = Climber::new(search);
        climber.climb(search, goal, out_of_budget);
        shake(search, &mut climber, goal, out_of_budget);
    }
}

/// Everybody's cpu, with ranks.
struct Placement {
    key: Key,
    value: i64,
    /// Position of every slot, party by party.
    places: Vec<u16>,
}

/// A state of the search without its tables.
struct Sketch {
    breaches: Breaches,
    value: i64,
    /// Cpu of each thread, worker by worker, the main first.
    threads: Vec<u16>,
}

impl Sketch {
    fn of(search: &Search<'_>) -> Self {
        Self {
            breaches: search.breaches(),
            value: search.value,
            threads: search.threads.iter().map(|thread| thread.cpu).collect(),
        }
    }

    fn labeled(&self, site: &Site) -> Placement {
        let mut places = Vec::with_capacity(site.slots);
        for party in &site.parties {
            let own = &self.threads[places.len()..][..party.slots()];
            places.extend(label(party, own));
        }
        let moved = moved(site, &places);
        let worth = self.value - site.move_cost * i64::from(moved);
        Placement {
            key: (self.breaches, -worth, moved),
            value: self.value,
            places,
        }
    }
}

impl Placement {
    fn from(site: &Site, key: Key, places: Vec<u16>) -> Self {
        Self {
            value: site.move_cost * i64::from(key.2) - key.1,
            key,
            places,
        }
    }
}

/// Slots of mappings in force that have another cpu.
fn moved(site: &Site, places: &[u16]) -> u32 {
    let homes = site
        .parties
        .iter()
        .flat_map(|party| party.had_cpu.iter().zip(&party.homes));
    let differs = |((had_cpu, home), place): ((&bool, &u16), &u16)| *had_cpu && home != place;
    homes.zip(places).filter(|&slot| differs(slot)).count() as u32
}

/// What the parties that have a valid mapping in force gain among themselves.
fn gained(site: &Site, places: &[u16]) -> i64 {
    let mut values = [0; 2];
    let mut mains = [vec![0; site.cpus], vec![0; site.cpus]];
    let mut first = 0;
    for party in &site.parties {
        let after = &places[first..first + party.slots()];
        first += party.slots();
        if !party.is_running || party.homes.contains(&NOWHERE) {
            continue;
        }
        for ((value, mains), places) in values
            .iter_mut()
            .zip(&mut mains)
            .zip([&party.homes[..], after])
        {
            *value += within(site, party, places);
            for worker in places.chunks(party.threads) {
                mains[usize::from(worker[0])] += 1;
            }
        }
    }
    values[1] + apart(site, &mains[1]) - values[0] - apart(site, &mains[0])
}

/// What the pairs within the workers of a party add to the objective.
fn within(site: &Site, party: &Party, places: &[u16]) -> i64 {
    let mut sum = 0;
    for worker in places.chunks(party.threads) {
        for (i, &a) in worker.iter().enumerate() {
            let distances = site.distances(a.into());
            let of = |&b: &u16| i64::from(distances[usize::from(b)]);
            sum += worker[i + 1..].iter().map(of).sum::<i64>();
        }
    }
    party.sign * sum
}

/// Distances of all pairs of mains, `held` on each cpu: all of them beyond, less what the domains
/// of the tree bring them closer.
fn apart(site: &Site, held: &[u32]) -> i64 {
    let pairs = |x: u32| i64::from(x) * (i64::from(x) - 1) / 2;
    let mut sum = site.beyond * pairs(held.iter().sum());
    for level in 0..LEVELS {
        let mut counts = vec![0u32; site.counts[level]];
        for (cpu, &count) in held.iter().enumerate().filter(|&(_, &count)| count > 0) {
            counts[usize::from(site.of[level][cpu])] += count;
        }
        sum -= site.gain[level] * counts.into_iter().map(pairs).sum::<i64>();
    }
    sum
}

fn answer(problem: &JointProblem, site: &Site, best: Placement, limits: Limits) -> JointSolution {
    let ids = problem.topology.cpus();
    let id = |&position: &u16| ids[usize::from(position)].id;
    let mut mappings: Vec<Mapping> = Vec::new();
    mappings.resize_with(site.parties.len(), || Mapping {
        threads: 1,
        cpus: Vec::new(),
    });
    let mut first = 0;
    for party in &site.parties {
        let places = &best.places[first..first + party.slots()];
        first += party.slots();
        mappings[party.original] = Mapping {
            threads: party.threads as u16,
            cpus: places.iter().map(id).collect(),
        };
    }
    let relaxed = ["mains-per-core", "12", "12+"].into_iter().zip(best.key.0);
    let relaxed: Vec<Relaxation> = relaxed
        .filter(|&(_, amount)| amount > 0)
        .map(|(rule, amount)| Relaxation { rule, amount })
        .collect();
    JointSolution {
        mappings,
        certificate: Certificate::of(best.value, limits.0, relaxed),
        gained: gained(site, &best.places),
        moved: best.key.2,
        moved_least: limits.1,
    }
}

/// One deployment that has the machine to itself: the answer of [`solve`], unless it gains less
/// than it moves.
fn solve_alone(
    problem: &JointProblem,
    site: &Site,
    alone: &Problem,
    out_of_budget: &mut dyn FnMut() -> bool,
) -> Result<JointSolution, JointError> {
    let of_first = |error| JointError::Deployment {
        deployment: 0,
        error,
    };
    let mut solution = solve(alone, out_of_budget).map_err(of_first)?;
    if let Some(kept) = worth_keeping(alone, &solution, problem.move_cost) {
        solution = kept;
    }
    let positions: Vec<u16> = solution
        .mapping
        .cpus
        .iter()
        .map(|id| {
            let position = problem
                .topology
                .cpus()
                .binary_search_by_key(id, |cpu| cpu.id);
            position.map_or(NOWHERE, |position| position as u16)
        })
        .collect();
    Ok(JointSolution {
        mappings: vec![solution.mapping],
        certificate: solution.certificate,
        gained: gained(site, &positions),
        moved: moved(site, &positions),
        moved_least: homeless(site),
    })
}

/// The mapping in force, if it keeps the rules as far as the solution does and the solution gains
/// no more than its moves cost.
fn worth_keeping(problem: &Problem, solution: &Solution, move_cost: u32) -> Option<Solution> {
    let current = problem.current.as_ref().filter(|_| move_cost > 0)?;
    let report = check(problem, current).ok()?;
    let found = &solution.certificate;
    let keeps = |kept: &Relaxation| {
        let same = |r: &&Relaxation| r.rule == kept.rule;
        found
            .relaxed
            .iter()
            .find(same)
            .is_some_and(|r| kept.amount <= r.amount)
    };
    let pairs = current.cpus.iter().zip(&solution.mapping.cpus);
    let moved = pairs.filter(|(before, after)| before != after).count() as i64;
    let gain = found.objective - report.objective;
    let stays = report.relaxed.iter().all(keeps) && gain <= moved * i64::from(move_cost);
    stays.then(|| Solution {
        mapping: current.clone(),
        certificate: Certificate::of(report.objective, (found.bound, found.proof), report.relaxed),
    })
}
