//! What no mapping can exceed, from counts alone.

use crate::Mode;
use crate::domains::{CPU, Domains, LEVELS, pairs};
use crate::volumes::{main_limits, no_counts, spread};

/// No mapping that keeps the rules is above this.
pub(crate) fn upper_bound(domains: &Domains) -> i64 {
    let mains = least_closeness_of_mains(domains);
    let within = match domains.mode {
        Mode::Scatter => domains.workers as i64 * least_closeness_of_worker(domains),
        Mode::Compact => most_closeness(domains),
    };
    domains.objective(mains, within)
}

/// Closeness of things with these counts.
pub(crate) fn closeness(domains: &Domains, counts: &[Vec<u32>; LEVELS]) -> i64 {
    let level = |level: usize| counts[level].iter().map(|&x| pairs(x)).sum::<i64>();
    (0..LEVELS).map(|l| domains.gain[l] * level(l)).sum()
}

fn least_closeness_of_mains(domains: &Domains) -> i64 {
    let (_, most) = main_limits(domains);
    let mut counts = no_counts(domains);
    spread(domains, &mut counts, domains.workers, &|counts, cpu| {
        counts[CPU][cpu] < most
    });
    closeness(domains, &counts)
}

fn least_closeness_of_worker(domains: &Domains) -> i64 {
    let mut counts = no_counts(domains);
    spread(domains, &mut counts, domains.threads, &|counts, cpu| {
        counts[CPU][cpu] < domains.worker_cap
    });
    closeness(domains, &counts)
}

/// Most threads of one worker in a domain.
fn cap(domains: &Domains, level: usize, domain: usize) -> u32 {
    let cpus = domains.members(level, domain).len() as u32;
    (cpus * domains.worker_cap).min(domains.threads as u32)
}

/// Level by level, the smaller of what each worker could reach alone and what the volumes leave for all.
fn most_closeness(domains: &Domains) -> i64 {
    (0..LEVELS)
        .map(|level| {
            let mut caps: Vec<u32> = (0..domains.count(level))
                .map(|domain| cap(domains, level, domain))
                .collect();
            caps.sort_unstable_by(|a, b| b.cmp(a));
            let mut left = domains.threads as u32;
            let mut alone = 0;
            for cap in caps {
                let here = cap.min(left);
                left -= here;
                alone += pairs(here);
            }
            domains.gain[level] * domains.workers as i64 * alone
        })
        .sum()
}
