//! Maximum dispersion: items are placed as far apart as possible, one at a time.
//!
//! **Problem.** Place a number of mains, or threads of one worker, on cpus with limits at the least
//! closeness. **Approach.** Greedily, the next item is placed where it adds least. Every domain
//! stores the best of its cpus, so one more item changes only what the domains around it store.
//! **Proof sketch.** Closeness is a sum of convex functions of the counts of nested domains, so the
//! greedy method is exact (brute force agrees). All cpus of a domain share the outer domains, so
//! the best cpu of the machine is the best of its domain. **Limits.** O(C + items x widest domain).

use crate::single::domains::{CORE, CPU, Domains, LEVELS};

/// Threads or mains in each domain of each level.
pub(crate) type Counts = [Vec<u32>; LEVELS];

/// Key of a cpu, less is better: closeness that one more item adds, items on the cpu and on its
/// core, the cpu.
type CpuKey = (i64, u32, u32, u16);

/// The key if no cpu is open.
const NO_CANDIDATE: CpuKey = (i64::MAX, 0, 0, u16::MAX);

pub(crate) fn zero_counts(domains: &Domains) -> Counts {
    std::array::from_fn(|level| vec![0; domains.count(level)])
}

/// Adds one item on `cpu`.
pub(crate) fn add(domains: &Domains, counts: &mut Counts, cpu: usize) {
    for (level, counts) in counts.iter_mut().enumerate() {
        counts[domains.domain(level, cpu)] += 1;
    }
}

/// Adds items one by one where they add least closeness; `open` decides from the counts on a cpu
/// and on its core whether one more may be placed there. Returns how many found a place.
pub(crate) fn spread(
    domains: &Domains,
    counts: &mut Counts,
    items: usize,
    open: &dyn Fn(u32, u32) -> bool,
) -> usize {
    let mut best: [Vec<CpuKey>; LEVELS] =
        std::array::from_fn(|level| vec![NO_CANDIDATE; domains.count(level)]);
    for level in 0..domains.levels {
        for domain in 0..domains.count(level) {
            best[level][domain] = best_of(domains, counts, &best, (level, domain), open);
        }
    }
    for placed in 0..items {
        let (.., cpu) = best[domains.levels - 1]
            .iter()
            .copied()
            .min()
            .unwrap_or(NO_CANDIDATE);
        if cpu == NO_CANDIDATE.3 {
            return placed;
        }
        let cpu = usize::from(cpu);
        add(domains, counts, cpu);
        // the other cpus of the core have one more item beside them
        for cpu in domains.members(CORE, domains.core(cpu)) {
            best[CPU][cpu] = best_of(domains, counts, &best, (CPU, cpu), open);
        }
        for level in CORE..domains.levels {
            let domain = domains.domain(level, cpu);
            best[level][domain] = best_of(domains, counts, &best, (level, domain), open);
        }
    }
    items
}

/// The best cpu of a domain, from the best of its parts; added closeness is counted up to this
/// level.
fn best_of(
    domains: &Domains,
    counts: &Counts,
    best: &[Vec<CpuKey>; LEVELS],
    (level, domain): (usize, usize),
    open: &dyn Fn(u32, u32) -> bool,
) -> CpuKey {
    let held = counts[level][domain];
    let (inside, on_cpu, on_core, cpu) = if level == CPU {
        let on_core = counts[CORE][domains.core(domain)];
        if open(held, on_core) {
            (0, held, on_core, domain as u16)
        } else {
            NO_CANDIDATE
        }
    } else {
        let members = domains.members(level, domain);
        let first = domains.domain(level - 1, members.start);
        let last = domains.domain(level - 1, members.end - 1);
        let parts = best[level - 1][first..=last].iter();
        parts.copied().min().unwrap_or(NO_CANDIDATE)
    };
    let added = inside.saturating_add(domains.gain[level] * i64::from(held));
    (added, on_cpu, on_core, cpu)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{spread, zero_counts};
    use crate::objective;
    use crate::sample::problems;
    use crate::single::domains::{CPU, Domains, pairs};
    use crate::{Mapping, Mode, Problem};

    fn closeness(domains: &Domains, held: &[u32]) -> i64 {
        let domain = |level: usize, domain: usize| {
            pairs(domains.members(level, domain).map(|cpu| held[cpu]).sum())
        };
        let level = |l: usize| (0..domains.count(l)).map(|d| domain(l, d)).sum::<i64>();
        (0..domains.levels)
            .map(|l| domains.gain[l] * level(l))
            .sum()
    }

    /// All ways to put `items` on cpus with at most `cap` on each.
    fn every_way(cpus: usize, items: u32, cap: u32) -> Vec<Vec<u32>> {
        if cpus == 0 {
            return if items == 0 {
                vec![Vec::new()]
            } else {
                Vec::new()
            };
        }
        let with = |first: u32| {
            every_way(cpus - 1, items - first, cap)
                .into_iter()
                .map(move |mut rest| {
                    rest.insert(0, first);
                    rest
                })
        };
        (0..=cap.min(items)).flat_map(with).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 300, failure_persistence: None, ..ProptestConfig::default()
        })]

        #[test]
        fn greedy_spreading_minimizes_closeness(
            problem in problems(), items in 1..6u32, cap in 1..3u32
        ) {
            let domains = Domains::of(&problem);
            let mut counts = zero_counts(&domains);
            let placed = spread(&domains, &mut counts, items as usize, &|on_cpu, _| on_cpu < cap);
            let ways = every_way(domains.cpus, items, cap);
            match ways.iter().map(|held| closeness(&domains, held)).min() {
                Some(least) => prop_assert_eq!(closeness(&domains, &counts[CPU]), least),
                None => prop_assert!(placed < items as usize),
            }
        }

        #[test]
        fn closeness_in_domains_is_the_sum_over_pairs(
            problem in problems(), seed in proptest::collection::vec(0..64usize, 36)
        ) {
            let domains = Domains::of(&problem);
            let threads = domains.threads;
            let slots = domains.workers * threads;
            let places: Vec<usize> = (0..slots).map(|i| seed[i % 36] % domains.cpus).collect();
            let id = |&p: &usize| domains.ids[p];
            let mapping = Mapping {
                threads: problem.threads,
                cpus: places.iter().map(id).collect(),
            };
            let held = |places: &mut dyn Iterator<Item = usize>| {
                let mut held = vec![0; domains.cpus];
                places.for_each(|place| held[place] += 1);
                closeness(&domains, &held)
            };
            let mains = held(&mut places.iter().step_by(threads).copied());
            let within =
                places.chunks(threads).map(|row| held(&mut row.iter().copied())).sum();
            for mode in [Mode::Scatter, Mode::Compact] {
                let problem = Problem { mode, ..problem.clone() };
                let domains = Domains::of(&problem);
                let pairwise = objective(&problem, &mapping).unwrap();
                prop_assert_eq!(domains.objective(mains, within), pairwise);
            }
        }
    }
}
