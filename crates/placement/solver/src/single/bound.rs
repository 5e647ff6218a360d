//! Upper bounds of the objective, from counts alone and by Lagrangian relaxation.
//!
//! **Problem.** Without an upper bound, the quality of a value is unknown. **Approach.** The
//! objective is a constant minus the closeness of the mains, minus (scatter) or plus (compact) the
//! closeness within workers. The two are bounded separately. Within workers there are two bounds: W
//! times what one worker could reach alone on the machine; and what the volumes allow for all of
//! them together, level by level. **Proof sketch.** (a) Placing one item at a time where it adds
//! least closeness minimizes a sum of convex functions of nested counts, so nothing is less close
//! than [`spread`]. (b) In a domain of volume n where a worker can have at most k threads, the sum
//! over workers of x(x-1)/2 is greatest if as many workers as possible have k (convexity), and
//! least if all have n/W, rounded. (c) The volumes of a level's domains sum to WT, and each is
//! within the range that the rules on cpus and cores allow; the best such volumes result from a
//! dynamic program over domains and threads (compact, where the function of (b) is not convex in n)
//! or from a greedy choice (scatter, where it is). A bound on every level bounds their sum.
//! **Limits.** The bound ignores which worker gets which threads, and whether mains may be where
//! the best volumes need them, so it can be above every mapping.

use crate::single::allowed::Allowed;
use crate::single::capacities::{Capacity, capacities, pairs_if_filled, pairs_if_filled_with_main};
use crate::single::domain_classes::{FullMainLimit, LevelGroup, classes, peers_beside_main};
use crate::single::domains::{CORE, Domains, LEVELS, pairs};
use crate::single::lagrangian_bound::{Dimensions, minimize_dual};
use crate::single::local_search::Search;
use crate::single::spread::{spread, zero_counts};
use crate::single::volumes::main_limits;
use crate::{Mode, WorkBudget};

/// The value of a search's assignment on the levels of a group.
fn value_of_group(search: &Search<'_>, group: LevelGroup) -> i64 {
    let (within, mains) = (search.closeness(), search.closeness_of_mains());
    let level = |level: usize| search.sign * within[level] - mains[level];
    group.levels().map(level).sum()
}

/// A bound that is at most `bound`, by Lagrangian relaxation in every group of levels; the value of
/// the assignment of `search` is the target of the dual.
pub(crate) fn lagrangian_bound(search: &Search<'_>, bound: i64, budget: &mut WorkBudget) -> i64 {
    if search.objective() >= bound {
        return bound;
    }
    let domains = search.domains;
    // each level alone, the outermost first: it is most of the objective
    let mut alone = [0i64; LEVELS];
    for level in (0..domains.levels).rev() {
        let group = LevelGroup {
            inner: level,
            outer: level,
        };
        alone[level] = bound_of_group(search, group, budget);
    }
    // the best bound on all levels up to `outer`: each alone, or all as one group; groups between
    // these two hardly ever help
    let mut up_to = 0i64;
    for (outer, alone) in alone.into_iter().enumerate() {
        up_to = up_to.saturating_add(alone);
        let gains = (0..=outer).filter(|&level| domains.gain[level] > 0).count();
        if gains > 1 && !budget.is_exhausted() {
            let all = LevelGroup { inner: 0, outer };
            up_to = up_to.min(bound_of_group(search, all, budget));
        }
    }
    bound.min(domains.objective(0, 0).saturating_add(up_to))
}

/// A bound on the value of all workers on the levels of a group.
fn bound_of_group(search: &Search<'_>, group: LevelGroup, budget: &mut WorkBudget) -> i64 {
    let (domains, allowed) = (search.domains, &search.allowed);
    let classes = classes(domains, allowed, group).classes;
    let goal = value_of_group(search, group);
    minimize_dual(&classes, dimensions(domains, allowed), goal, budget)
}

fn dimensions(domains: &Domains, allowed: &Allowed) -> Dimensions {
    let limits = FullMainLimit::both(domains, allowed);
    Dimensions {
        workers: domains.workers as i64,
        threads: domains.threads,
        full_main_limits: limits.map(|limit| limit.map(|limit| limit.count)),
        peers_beside_main: peers_beside_main(domains, allowed),
    }
}

/// Upper bound of all mappings within `allowed`.
pub(crate) fn upper_bound(domains: &Domains, allowed: &Allowed) -> i64 {
    let within = match domains.mode {
        Mode::Scatter => least_closeness(domains, allowed),
        Mode::Compact => most_closeness(domains, allowed),
    };
    domains.objective(least_closeness_of_mains(domains, allowed), within)
}

fn closeness(domains: &Domains, counts: &[Vec<u32>; LEVELS]) -> i64 {
    let level = |level: usize| counts[level].iter().map(|&x| pairs(x)).sum::<i64>();
    (0..domains.levels)
        .map(|l| domains.gain[l] * level(l))
        .sum()
}

fn least_closeness_of_mains(domains: &Domains, allowed: &Allowed) -> i64 {
    let (_, most) = main_limits(domains);
    let mut counts = zero_counts(domains);
    spread(domains, &mut counts, domains.workers, &|on_cpu, on_core| {
        on_cpu < most && on_core < allowed.core_mains
    });
    closeness(domains, &counts)
}

fn least_closeness(domains: &Domains, allowed: &Allowed) -> i64 {
    let mut counts = zero_counts(domains);
    let most_on_core = allowed.core_volume.1;
    spread(domains, &mut counts, domains.threads, &|on_cpu, on_core| {
        on_cpu < domains.rules.worker_cap && on_core < most_on_core
    });
    let alone = domains.workers as i64 * closeness(domains, &counts);
    let together: i64 = (0..domains.levels)
        .map(|level| {
            domains.gain[level] * least_of_level(domains, &capacities(domains, allowed, level))
        })
        .sum();
    alone.max(together)
}

/// Fewest pairs of threads of one worker in one domain, summed over all workers and domains of a
/// level.
fn least_of_level(domains: &Domains, capacities: &[Capacity]) -> i64 {
    let workers = domains.workers as u32;
    let mut volumes: Vec<u32> = capacities.iter().map(|capacity| capacity.least).collect();
    let least: u32 = volumes.iter().sum();
    for _ in least..workers * domains.threads as u32 {
        // the next thread adds as many pairs as its worker has there already: volume / W
        let next = (0..capacities.len())
            .filter(|&i| volumes[i] < capacities[i].most)
            .min_by_key(|&i| volumes[i] / workers);
        if let Some(next) = next {
            volumes[next] += 1;
        }
    }
    let even = |n: u32| {
        let (each, more) = (n / workers, n % workers);
        i64::from(more) * pairs(each + 1) + i64::from(workers - more) * pairs(each)
    };
    volumes.into_iter().map(even).sum()
}

/// Level by level, the smaller of what each worker could reach alone and what the volumes allow for
/// all.
fn most_closeness(domains: &Domains, allowed: &Allowed) -> i64 {
    (0..domains.levels)
        .filter(|&level| domains.gain[level] > 0)
        .map(|level| {
            let capacities = capacities(domains, allowed, level);
            let alone = most_of_workers(domains, allowed, level, &capacities);
            domains.gain[level] * alone.min(most_of_level(domains, &capacities))
        })
        .sum()
}

/// Most pairs of threads that share a worker and a domain if each worker were alone on the machine.
/// On the level of cores, all but `full_main_cores` workers have their main on a core that is
/// not full, beside few peers.
fn most_of_workers(
    domains: &Domains,
    allowed: &Allowed,
    level: usize,
    capacities: &[Capacity],
) -> i64 {
    let workers = domains.workers as i64;
    let mut caps: Vec<u32> = capacities
        .iter()
        .map(|capacity| capacity.per_worker)
        .collect();
    caps.sort_unstable_by(|a, b| b.cmp(a));
    let free = pairs_if_filled(&caps, domains.threads as u32);
    let beside_full = i64::from(allowed.full_main_cores);
    let cores = domains.count(level) == domains.count(CORE);
    if !cores || beside_full >= workers || allowed.core_mains > 1 {
        return workers * free;
    }
    let below_full = domains.rules.core_volume.1 - 1;
    let with_main = pairs_if_filled_with_main(&caps, domains.threads as u32, below_full);
    beside_full * free + (workers - beside_full) * with_main
}

/// Most pairs of threads of one worker in one domain, summed over all workers and domains of a
/// level.
fn most_of_level(domains: &Domains, capacities: &[Capacity]) -> i64 {
    const INFEASIBLE: i64 = i64::MIN / 2;
    let least: u32 = capacities.iter().map(|capacity| capacity.least).sum();
    let extras = ((domains.workers * domains.threads) as u32).saturating_sub(least) as usize;
    let mut best = vec![INFEASIBLE; extras + 1];
    best[0] = 0;
    let mut reached = 0;
    for capacity in capacities {
        let filled = |n: u32| {
            let cap = capacity.per_worker.max(1);
            i64::from(n / cap) * pairs(cap) + pairs(n % cap)
        };
        let more = (capacity.most - capacity.least.min(capacity.most)) as usize;
        let mut next = vec![INFEASIBLE; extras + 1];
        for (before, &value) in best.iter().enumerate().take(reached + 1) {
            for here in 0..=more.min(extras - before) {
                let sum = value + filled(capacity.least + here as u32);
                next[before + here] = next[before + here].max(sum);
            }
        }
        reached = (reached + more).min(extras);
        best = next;
    }
    best[extras]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::lagrangian_bound;
    use crate::WorkBudget;
    use crate::sample::problems;
    use crate::single::allowed::Allowed;
    use crate::single::assignment::assign;
    use crate::single::domains::Domains;
    use crate::single::local_search::Search;
    use crate::single::perturbation::perturb;
    use crate::single::volumes::volumes;

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 1_500, failure_persistence: None, ..ProptestConfig::default()
        })]

        #[test]
        fn no_search_exceeds_the_lagrangian_bound(problem in problems(), steps in 0..400u32) {
            let domains = Domains::of(&problem);
            let volumes = volumes(&domains);
            let allowed = Allowed::by(&domains, &volumes);
            let start = Search::of(&domains, &allowed, &assign(&domains, &volumes));
            let mut budget = WorkBudget::of_steps(u64::from(steps) * 1_000);
            let bound = lagrangian_bound(&start, i64::MAX, &mut budget);
            let mut search = start.clone();
            search.climb(i64::MAX, usize::MAX, &mut WorkBudget::unlimited());
            perturb(&mut search, i64::MAX, &mut WorkBudget::unlimited());
            let value = search.objective();
            prop_assert!(bound >= value, "{value} above {bound}");
        }
    }
}
