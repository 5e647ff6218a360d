//! Solves joint problems: from a problem to certified mappings.
//!
//! The steps are described at the head of `joint`. Mappings in force that keep all rules and meet
//! the bound are recognized as the answer before a search is set up. A gap that search and counts
//! leave open is closed by enumeration if the problem is tiny, or by the integer program if it is
//! small and nothing runs yet (`reduced`). **Proof sketch.** Optimality is claimed only if the
//! value meets the bound, if every placement was enumerated, or if the program was solved to the
//! end and its answer was recounted. A local search starts from the mappings in force as far as the
//! rules allow; if, once moves are counted with ranks, its result is not worth its moves, that
//! start is the answer. **Limits.** The budget is checked between steps of the search; balancing,
//! assignment and ranks are always completed: 6 ms for 3,200 threads on 256 cpus, some 30 ms for
//! the most threads that are accepted. Without a budget the number of rounds of `perturbation`
//! limits the search. With running threads the search is local: few moves and a good value, not
//! proven optimal except on tiny problems or if the counts prove it.

use super::alone::solve_single;
use super::assignment::assign;
use super::bound::upper_bound;
use super::enumerate::{Key, RuleExcess, enumerate, sorted_loads};
use super::error::validate;
use super::instance::{CORE, Instance, NO_CPU, Tenant, pairs};
use super::labeling::{keeps_rank_cap, label};
use super::local_search::LocalSearch;
use super::move_bound::least_moves;
use super::perturbation::perturb;
use super::reduced::{FoundThreads, Start, is_small, keeps_caps, solve_reduced};
use super::repair::repair;
use super::rules::Rules;
use super::search_state::SearchState;
use super::volumes::{JointVolumes, balance};
use crate::limits::{FIRST_PLACEMENT_STEPS, FROZEN_COST, REDUCED_STEPS};
use crate::worker_order::order_new;
use crate::{
    Certificate, JointError, JointProblem, JointSolution, Mapping, Proof, ProvenBound, Relaxation,
    WorkBudget,
};

/// Returns the best mappings for all deployments together that are found within the budget.
/// Regardless of the budget, the answer is valid and its bound holds.
///
/// # Errors
/// A deployment, an obstacle or the machine is outside the limits.
pub fn solve_joint(
    problem: &JointProblem,
    budget: &mut WorkBudget,
) -> Result<JointSolution, JointError> {
    validate(problem)?;
    let instance = Instance::of(problem);
    if let [one] = &problem.deployments[..]
        && instance.fill_order.is_uniform()
        && instance.obstacles.iter().all(|&weight| weight == 0)
        && let Some(alone) = problem.single_problem(one)
    {
        return solve_single(problem, &instance, &alone, budget);
    }
    Ok(solve_instance(problem, &instance, budget))
}

/// The mapping of the only deployment of a problem that was validated as a problem of one.
pub(crate) fn solve_one(problem: &JointProblem, budget: &mut WorkBudget) -> (Mapping, Certificate) {
    let mut solution = solve_instance(problem, &Instance::of(problem), budget);
    (solution.mappings.swap_remove(0), solution.certificate)
}

fn solve_instance(
    problem: &JointProblem,
    instance: &Instance,
    budget: &mut WorkBudget,
) -> JointSolution {
    // work that is done regardless of the budget
    budget.spend(FIRST_PLACEMENT_STEPS * instance.slots * instance.cpus);
    let rules = Rules::of(instance);
    let volume = balance(instance);
    let (best, bounds) = keep_current(instance, &rules, &volume)
        .unwrap_or_else(|| search_best(instance, &rules, &volume, budget));
    answer(problem, instance, best, bounds)
}

/// Bounds of an answer.
struct Bounds {
    upper: ProvenBound,
    /// Lower bound on the moves of any answer that is as good.
    moved_least: u32,
}

/// The mappings in force, if they keep all rules and meet the bound.
fn keep_current(
    instance: &Instance,
    rules: &Rules,
    volume: &JointVolumes,
) -> Option<(Placement, Bounds)> {
    let keeps_ranks = |tenant: &Tenant| keeps_rank_cap(tenant, &tenant.current_cpus);
    if !volume.is_unchanged(instance) || !instance.tenants.iter().all(keeps_ranks) {
        return None;
    }
    let current_cpus = instance
        .tenants
        .iter()
        .flat_map(|tenant| &tenant.current_cpus);
    let places: Vec<u16> = current_cpus.copied().collect();
    let (excess, value) = counted(instance, rules, &volume.loads, &places);
    if excess != RuleExcess::default() || value < upper_bound(instance, rules, volume, excess) {
        return None;
    }
    let key = (excess, -value, 0);
    let best = Placement { key, value, places };
    let upper = ProvenBound {
        bound: value,
        proof: Proof::Bound,
    };
    let bounds = Bounds {
        upper,
        moved_least: 0,
    };
    Some((best, bounds))
}

/// Excess over the rules on mains and value of a placement with these loads.
pub(super) fn counted(
    instance: &Instance,
    rules: &Rules,
    loads: &[u32],
    places: &[u16],
) -> (RuleExcess, i64) {
    let mut mains = vec![0; instance.cpus];
    let mut core_mains = vec![0; instance.counts[CORE]];
    let (mut first, mut value) = (0, 0);
    for tenant in &instance.tenants {
        let places = &places[first..first + tenant.slots()];
        first += tenant.slots();
        value += worker_distances(instance, tenant, places);
        for main in places.iter().step_by(tenant.threads) {
            let main = usize::from(*main);
            mains[main] += 1;
            core_mains[instance.core(main)] += 1;
        }
    }
    let cores = instance.core_loads(loads);
    let excess = rules.excess(instance, (loads, &mains), (&cores, &core_mains));
    (excess, value + mains_distance(instance, &mains))
}

/// The best placement that is found by search.
fn search_best(
    instance: &Instance,
    rules: &Rules,
    volume: &JointVolumes,
    budget: &mut WorkBudget,
) -> (Placement, Bounds) {
    let mut search = first_placement(instance, rules, volume, budget);
    // ranks may cost moves that the search does not foresee: its start may then be the better
    // answer
    let start = instance.has_running().then(|| Snapshot::of(&search));
    let excess = search.excess();
    let goal = upper_bound(instance, rules, volume, excess);
    find_best(&mut search, goal, budget);
    let found = Snapshot::of(&search);
    drop(search);
    let mut best = found.labeled(instance);
    if let Some(start) = start.filter(|start| start.value != found.value) {
        let before = start.labeled(instance);
        if before.key <= best.key {
            best = before;
        }
    }
    let (mut bound, mut proof) = (goal, Proof::Bound);
    if best.key.0 != excess {
        bound = upper_bound(instance, rules, volume, best.key.0);
    }
    let mut moved_least = least_moves(instance, rules, volume, best.key.0);
    // the bound covers placements with at most this excess; others may have less
    let is_proven =
        best.key.0 == RuleExcess::default() && best.value >= bound && best.key.2 == moved_least;
    let tiny = if is_proven {
        None
    } else {
        enumerate(instance, rules, &volume.loads, budget)
    };
    let is_enumerated = tiny.as_ref().is_some_and(|tiny| tiny.complete);
    if let Some(tiny) = tiny {
        if let Some((key, places)) = tiny.best.filter(|(key, _)| *key < best.key) {
            if key.0 != best.key.0 {
                bound = upper_bound(instance, rules, volume, key.0);
                moved_least = least_moves(instance, rules, volume, key.0);
            }
            best = Placement::from(instance, key, places);
        }
        if tiny.complete {
            moved_least = best.key.2;
        }
        if let Some((_, most)) = tiny.most_value.filter(|_| tiny.complete) {
            // a bound that counting alone has met remains the proof
            if most != bound {
                (bound, proof) = (most, Proof::Search);
            }
        }
    }
    if best.value < bound
        && !is_enumerated
        && is_small(instance)
        && !budget.spend(REDUCED_STEPS)
        && let Some((found, proven)) = reduced(instance, rules, volume, &best)
    {
        if found.key < best.key {
            best = found;
        }
        if proven {
            (bound, proof) = (best.value, Proof::Search);
        }
    }
    let bounds = Bounds {
        upper: ProvenBound { bound, proof },
        moved_least,
    };
    (best, bounds)
}

/// The placement that the integer program finds from a start, and whether it is the best of all
/// that break the rules on mains no further than the start. `None` unless counting confirms it.
fn reduced(
    instance: &Instance,
    rules: &Rules,
    volume: &JointVolumes,
    start: &Placement,
) -> Option<(Placement, bool)> {
    let from = Start {
        excess: start.key.0,
        places: &start.places,
    };
    let FoundThreads { threads, proven } = solve_reduced(instance, rules, volume, from)?;
    let mut loads = instance.obstacles.clone();
    for &cpu in &threads {
        loads[usize::from(cpu)] += 1;
    }
    let (excess, value) = counted(instance, rules, &loads, &threads);
    let mut both = excess.iter().zip(start.key.0);
    let is_confirmed = sorted_loads(instance, &loads) == sorted_loads(instance, &volume.loads)
        && both.all(|(&found, start)| found <= start)
        && value >= start.value
        && keeps_caps(instance, &threads);
    if !is_confirmed {
        return None;
    }
    let found = Snapshot {
        excess,
        value,
        threads,
    };
    Some((found.labeled(instance), proven))
}

/// A first placement. If it crowds mains, one that is guided by cores is tried as well.
pub(super) fn first_placement<'a>(
    instance: &'a Instance,
    rules: &'a Rules,
    volume: &JointVolumes,
    budget: &mut WorkBudget,
) -> SearchState<'a> {
    let mut search = SearchState::new(instance, rules, volume);
    assign(&mut search, volume, false);
    repair(&mut search, budget);
    if search.core_mains_excess() > 0 && !budget.is_exhausted() {
        let mut other = SearchState::new(instance, rules, volume);
        assign(&mut other, volume, true);
        repair(&mut other, budget);
        if other.excess() < search.excess() {
            return other;
        }
    }
    search
}

/// Local search and perturbation: first of new threads alone, as if moving any other cost more than
/// it could gain, then of all threads, so that each move of a running thread must pay compared with
/// the best placement without it.
fn find_best(search: &mut SearchState<'_>, goal: i64, budget: &mut WorkBudget) {
    let runs_on = search.unmoved == search.threads.len() as i64 && search.violation() == 0;
    if runs_on {
        LocalSearch::new(search).climb(search, goal, budget);
        return;
    }
    let move_cost = search.move_cost;
    let passes = if search.instance.has_running() {
        &[FROZEN_COST, move_cost][..]
    } else {
        &[move_cost]
    };
    for &cost in passes {
        search.move_cost = cost;
        let mut local_search = LocalSearch::new(search);
        local_search.climb(search, goal, budget);
        perturb(search, &mut local_search, goal, budget);
    }
}

/// The cpu of every slot, with ranks.
pub(super) struct Placement {
    pub(super) key: Key,
    value: i64,
    /// Position of every slot, tenant by tenant.
    pub(super) places: Vec<u16>,
}

/// A state of the search without its tables.
pub(super) struct Snapshot {
    excess: RuleExcess,
    value: i64,
    /// Cpu of each thread, worker by worker, the main first.
    threads: Vec<u16>,
}

impl Snapshot {
    pub(super) fn of(search: &SearchState<'_>) -> Self {
        Self {
            excess: search.excess(),
            value: search.value,
            threads: search.threads.iter().map(|thread| thread.cpu).collect(),
        }
    }

    pub(super) fn labeled(&self, instance: &Instance) -> Placement {
        let mut places = Vec::with_capacity(instance.slots);
        for tenant in &instance.tenants {
            let own = &self.threads[places.len()..][..tenant.slots()];
            places.extend(label(tenant, own));
        }
        let moved = moved(instance, &places);
        let net_value = self.value - instance.move_cost * i64::from(moved);
        Placement {
            key: (self.excess, -net_value, moved),
            value: self.value,
            places,
        }
    }
}

impl Placement {
    fn from(instance: &Instance, key: Key, places: Vec<u16>) -> Self {
        Self {
            value: instance.move_cost * i64::from(key.2) - key.1,
            key,
            places,
        }
    }
}

/// Number of slots of mappings in force whose cpu has changed.
pub(super) fn moved(instance: &Instance, places: &[u16]) -> u32 {
    let current_cpus = instance
        .tenants
        .iter()
        .flat_map(|tenant| tenant.had_cpu.iter().zip(&tenant.current_cpus));
    let differs =
        |((had_cpu, current_cpu), place): ((&bool, &u16), &u16)| *had_cpu && current_cpu != place;
    current_cpus
        .zip(places)
        .filter(|&slot| differs(slot))
        .count() as u32
}

/// Gain of the tenants that have a valid mapping in force, among themselves.
pub(super) fn gained(instance: &Instance, places: &[u16]) -> i64 {
    let mut values = [0; 2];
    let mut mains = [vec![0; instance.cpus], vec![0; instance.cpus]];
    let mut first = 0;
    for tenant in &instance.tenants {
        let after = &places[first..first + tenant.slots()];
        first += tenant.slots();
        if !tenant.is_running || tenant.current_cpus.contains(&NO_CPU) {
            continue;
        }
        for ((value, mains), places) in values
            .iter_mut()
            .zip(&mut mains)
            .zip([&tenant.current_cpus[..], after])
        {
            *value += worker_distances(instance, tenant, places);
            for worker in places.chunks(tenant.threads) {
                mains[usize::from(worker[0])] += 1;
            }
        }
    }
    values[1] + mains_distance(instance, &mains[1])
        - values[0]
        - mains_distance(instance, &mains[0])
}

/// Contribution of the pairs within the workers of a tenant to the objective.
fn worker_distances(instance: &Instance, tenant: &Tenant, places: &[u16]) -> i64 {
    let mut sum = 0;
    for worker in places.chunks(tenant.threads) {
        for (i, &a) in worker.iter().enumerate() {
            let distances = instance.distances(a.into());
            let of = |&b: &u16| i64::from(distances[usize::from(b)]);
            sum += worker[i + 1..].iter().map(of).sum::<i64>();
        }
    }
    tenant.sign * sum
}

/// Distances of all pairs of mains, `held` on each cpu: the greatest distance for all, minus the
/// gains of the domains that they share.
fn mains_distance(instance: &Instance, held: &[u32]) -> i64 {
    let mut sum = instance.machine_distance * pairs(held.iter().sum());
    for level in 0..instance.levels {
        let mut counts = vec![0u32; instance.counts[level]];
        for (cpu, &count) in held.iter().enumerate().filter(|&(_, &count)| count > 0) {
            counts[usize::from(instance.of[level][cpu])] += count;
        }
        sum -= instance.gain[level] * counts.into_iter().map(pairs).sum::<i64>();
    }
    sum
}

fn answer(
    problem: &JointProblem,
    instance: &Instance,
    best: Placement,
    bounds: Bounds,
) -> JointSolution {
    let ids = problem.topology.cpus();
    let id = |&position: &u16| ids[usize::from(position)].id;
    let mut mappings: Vec<Mapping> = Vec::new();
    mappings.resize_with(instance.tenants.len(), || Mapping {
        threads: 1,
        cpus: Vec::new(),
    });
    let mut first = 0;
    for tenant in &instance.tenants {
        let places = &best.places[first..first + tenant.slots()];
        first += tenant.slots();
        mappings[tenant.original] = Mapping {
            threads: tenant.threads as u16,
            cpus: places.iter().map(id).collect(),
        };
    }
    order_new(problem, &mut mappings);
    let relaxed = ["mains-per-core", "fast-mains", "12", "12+"]
        .into_iter()
        .zip(best.key.0);
    let relaxed: Vec<Relaxation> = relaxed
        .filter(|&(_, amount)| amount > 0)
        .map(|(rule, amount)| Relaxation { rule, amount })
        .collect();
    JointSolution {
        mappings,
        certificate: Certificate::of(best.value, bounds.upper, relaxed),
        gained: gained(instance, &best.places),
        moved: best.key.2,
        moved_least: bounds.moved_least,
    }
}
