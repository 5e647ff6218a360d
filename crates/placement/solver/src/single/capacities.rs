//! Capacities of domains, and the number of pairs of threads if domains are filled one after the
//! other or evenly.

use crate::single::allowed::Allowed;
use crate::single::domains::{CORE, Domains, pairs};
use crate::single::volumes::main_limits;

/// Range of the number of threads in a domain.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(crate) struct Capacity {
    pub(crate) least: u32,
    pub(crate) most: u32,
    /// Most threads of one worker.
    pub(crate) per_worker: u32,
    /// Most threads and mains together if no cpu is full and holds a main.
    pub(crate) with_mains: u32,
}

/// The capacities of a level's domains.
pub(crate) fn capacities(domains: &Domains, allowed: &Allowed, level: usize) -> Vec<Capacity> {
    let (lower, upper) = domains.rules.cpu_volume;
    let threads = domains.threads as u32;
    if level < CORE {
        let cpu = Capacity {
            least: lower,
            most: upper,
            per_worker: domains.rules.worker_cap.min(upper).min(threads),
            with_mains: upper,
        };
        return vec![cpu; domains.cpus];
    }
    let mut capacities = vec![Capacity::default(); domains.count(level)];
    for core in 0..domains.count(CORE) {
        let members = domains.members(CORE, core);
        let size = members.len() as u32;
        let capacity = &mut capacities[domains.domain(level, members.start)];
        let most = (size * upper).min(allowed.core_volume.1);
        capacity.least += (size * lower).max(allowed.core_volume.0.min(most));
        capacity.most += most;
        capacity.with_mains += size * upper;
        capacity.per_worker += (size * domains.rules.worker_cap).min(most);
    }
    for capacity in &mut capacities {
        capacity.per_worker = capacity.per_worker.min(threads);
    }
    capacities
}

/// Most mains in a domain.
pub(crate) fn main_capacity(
    domains: &Domains,
    allowed: &Allowed,
    level: usize,
    domain: usize,
) -> u32 {
    let (_, of_cpu) = main_limits(domains);
    if level < CORE {
        return of_cpu;
    }
    let members = domains.members(level, domain);
    let cores = domains.core(members.start)..=domains.core(members.end - 1);
    cores
        .map(|core| (of_cpu * domains.members(CORE, core).len() as u32).min(allowed.core_mains))
        .sum::<u32>()
        .min(domains.workers as u32)
}

/// Pairs within domains that are filled one after the other.
pub(crate) fn pairs_if_filled(caps: &[u32], threads: u32) -> i64 {
    let mut left = threads;
    let mut sum = 0;
    for &cap in caps {
        let here = cap.min(left);
        left -= here;
        sum += pairs(here);
    }
    sum
}

/// The same if one of the threads is a main on a core with at most `below` of them: at best, the
/// main takes the smallest core from the peers.
pub(crate) fn pairs_if_filled_with_main(caps: &[u32], threads: u32, below: u32) -> i64 {
    let whole = pairs_if_filled(caps, threads);
    (1..=below.min(threads))
        .map(|here| pairs(here) + pairs_if_filled(&caps[..caps.len() - 1], threads - here))
        .max()
        .map_or(whole, |with_main| with_main.min(whole))
}

/// Pairs within domains that are filled evenly; `caps` are in descending order.
pub(crate) fn pairs_if_even(caps: &[u32], threads: u32) -> i64 {
    let mut left = threads;
    let mut sum = 0;
    for (at, &cap) in caps.iter().enumerate().rev() {
        // the smallest first: it takes its share, at most its cap
        let here = cap.min(left / (at as u32 + 1));
        left -= here;
        sum += pairs(here);
    }
    sum
}
