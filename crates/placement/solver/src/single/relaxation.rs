//! The smallest relaxation: volumes that violate the core rules and (12) as little as possible.
//!
//! **Problem.** Where cores differ in their usable cpus, or the rules contradict each other, some
//! right-hand side has to be relaxed, by the smallest amount. **Approach.** Starting from the
//! constructed volumes, move a thread and a main, alone, together or in opposite directions,
//! between two cpus as long as the excess over the rules decreases, compared lexicographically in
//! the order (8+), mains-per-core, (12), (12+). Equivalent cpus (same threads and mains on
//! equivalent cores) are tried once. **Proof sketch.** The excess only decreases, so the search
//! terminates; (8) and the conditions of `assignment` and `rank_coloring` hold in every state. On
//! equal cores the construction is already minimal and nothing is found. **Limits.** The search
//! ends with its budget. It is local: minimal on every tiny problem that was compared with brute
//! force, not proven minimal for unequal cores.

use std::collections::BTreeMap;

use crate::WorkBudget;
use crate::limits::RELAXATION_STEPS_MAX;
use crate::single::domains::{CORE, Domains};
use crate::single::volumes::Volumes;

/// Excess of (8+), its sum over cores, excess of mains-per-core, of (12), of (12+).
type Excess = [u32; 5];

/// The sum over cores guides the search to a smaller (8+); after that, it has the lowest priority.
fn sum_last([excess, sum, mains, full, full_cores]: Excess) -> Excess {
    [excess, mains, full, full_cores, sum]
}

/// Reduces the excess of `volumes` over the rules.
pub(crate) fn reduce_excess(domains: &Domains, volumes: &mut Volumes, budget: &mut WorkBudget) {
    for order in [|excess: Excess| excess, sum_last] {
        let mut least = order(excess(domains, volumes));
        for _ in 0..RELAXATION_STEPS_MAX {
            if least == Excess::default() || budget.is_exhausted() {
                return;
            }
            match better(domains, volumes, least, order, budget) {
                Some((excess, next)) => (least, *volumes) = (excess, next),
                None => break,
            }
        }
    }
}

fn better(
    domains: &Domains,
    volumes: &Volumes,
    least: Excess,
    order: fn(Excess) -> Excess,
    budget: &mut WorkBudget,
) -> Option<(Excess, Volumes)> {
    let candidates = distinct_cpus(domains, volumes);
    let mut trial = volumes.clone();
    let mut best = (least, None);
    for &from in &candidates {
        if budget.spend(8 * candidates.len() * domains.cpus) {
            break;
        }
        for &to in &candidates {
            for step in [(0, 1), (1, 0), (1, 1), (1, -1)] {
                if !may_move(domains, &trial, (from, to), step) {
                    continue;
                }
                carry(&mut trial, (from, to), step);
                let excess = order(excess(domains, &trial));
                carry(&mut trial, (to, from), step);
                if excess < best.0 {
                    best = (excess, Some(((from, to), step)));
                }
            }
        }
    }
    let (ends, step) = best.1?;
    carry(&mut trial, ends, step);
    Some((best.0, trial))
}

/// Whether so many threads and mains may move from one cpu to another: both cpus must stay
/// feasible.
fn may_move(
    domains: &Domains,
    volumes: &Volumes,
    (from, to): (usize, usize),
    (threads, mains): (i32, i32),
) -> bool {
    let (lower, upper) = domains.rules.cpu_volume;
    let peers = domains.rules.rank_cap * (domains.threads as u32 - 1);
    let holds = |cpu: usize, threads: i32, mains: i32| {
        let n = volumes.threads[cpu].checked_add_signed(threads);
        let m = volumes.mains[cpu].checked_add_signed(mains);
        let (Some(n), Some(m)) = (n, m) else {
            return false;
        };
        let ranks = m <= domains.rules.rank_cap && m <= n && n - m <= peers;
        (lower..=upper).contains(&n) && ranks
    };
    from != to && holds(from, -threads, -mains) && holds(to, threads, mains)
}

fn carry(volumes: &mut Volumes, (from, to): (usize, usize), (threads, mains): (i32, i32)) {
    for (cpu, threads, mains) in [(from, -threads, -mains), (to, threads, mains)] {
        volumes.threads[cpu] = volumes.threads[cpu].saturating_add_signed(threads);
        volumes.mains[cpu] = volumes.mains[cpu].saturating_add_signed(mains);
    }
}

/// The first cpus of every kind, on the same core and on others.
fn distinct_cpus(domains: &Domains, volumes: &Volumes) -> Vec<usize> {
    let of = |cpu: usize| (volumes.threads[cpu], volumes.mains[cpu]);
    let mut kinds: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    for core in 0..domains.count(CORE) {
        let mut look: Vec<(u32, u32)> = domains.members(CORE, core).map(of).collect();
        look.sort_unstable();
        for cpu in domains.members(CORE, core) {
            let seen = kinds.entry((look.clone(), of(cpu))).or_default();
            let beside = seen
                .iter()
                .filter(|&&other| domains.core(other) == core)
                .count();
            if seen.len() < 2 || (seen.len() < 4 && beside == 0) {
                seen.push(cpu);
            }
        }
    }
    kinds.into_values().flatten().collect()
}

fn excess(domains: &Domains, volumes: &Volumes) -> Excess {
    let (lower, upper) = domains.rules.core_volume;
    let mut excess = Excess::default();
    let (mut full, mut full_cores) = (0, 0);
    for core in 0..domains.count(CORE) {
        let members = domains.members(CORE, core);
        let threads: u32 = volumes.threads[members.clone()].iter().sum();
        let mains: u32 = volumes.mains[members.clone()].iter().sum();
        let off = lower
            .saturating_sub(threads)
            .max(threads.saturating_sub(upper));
        excess[0] = excess[0].max(off);
        excess[1] += off;
        excess[2] = excess[2].max(mains.saturating_sub(domains.rules.core_mains));
        full_cores += u32::from(threads >= upper && mains > 0);
        for cpu in members {
            let at_top = volumes.threads[cpu] >= domains.rules.cpu_volume.1;
            full += u32::from(at_top && volumes.mains[cpu] > 0);
        }
    }
    excess[3] = domains
        .rules
        .full_main_cpus
        .map_or(0, |most| full.saturating_sub(most));
    excess[4] = domains
        .rules
        .full_main_cores
        .map_or(0, |most| full_cores.saturating_sub(most));
    excess
}
