//! Best value of the mains, or of the threads of one worker, alone on the machine.
//!
//! **Problem.** The greatest or least sum of distances over all pairs of k threads with a cap per
//! cpu and per core. **Approach.** Distances form a tree (`domains`), so the sum is a constant
//! minus a closeness to which each domain contributes by the number of its threads. Dynamic
//! programming from the cpus outwards: the table of the best closeness for 0..k threads in a domain
//! is merged from the tables of its parts. **Proof sketch.** Pairs across parts of a domain are no
//! closer than the domain, so any optimal arrangement is optimal in each part for its number of
//! threads; the merge tries all numbers. **Limits.** O(C k^2) at worst, once for the mains and once
//! for all workers.

use crate::single::domains::{CORE, CPU, Domains, LEVELS, pairs};

/// Most threads of the group on one cpu and on one core.
#[derive(Clone, Copy)]
pub(crate) struct GroupCaps {
    pub(crate) cpu: u32,
    pub(crate) core: u32,
}

/// The greatest (`is_far`) or least sum of distances; `None` if the caps are infeasible.
pub(crate) fn best_alone(
    domains: &Domains,
    items: usize,
    caps: GroupCaps,
    is_far: bool,
    takes: &dyn Fn(usize) -> bool,
) -> Option<i64> {
    // tables contain the cost of closeness, so that less is better in either case
    let sign = if is_far { 1 } else { -1 };
    let most = |level: usize| match level {
        CPU => caps.cpu as usize,
        CORE => caps.core as usize,
        _ => items,
    };
    let grown = |level: usize, mut table: Vec<i64>| {
        table.truncate(most(level).min(items) + 1);
        for (held, cost) in (0u32..).zip(&mut table) {
            *cost += sign * domains.gain[level] * pairs(held);
        }
        table
    };
    let mut tables: Vec<Vec<i64>> = (0..domains.cpus)
        .map(|cpu| match takes(cpu) {
            true => grown(CPU, vec![0; items + 1]),
            false => vec![0],
        })
        .collect();
    let mut starts: Vec<usize> = (0..domains.cpus).collect();
    for level in CORE..LEVELS {
        let mut outer: Vec<Vec<i64>> = Vec::new();
        let mut first_of = Vec::new();
        for (table, &start) in tables.iter().zip(&starts) {
            let domain = domains.domain(level, start);
            if domain == outer.len() {
                outer.push(vec![0]);
                first_of.push(start);
            }
            let merged = merge(&outer[domain], table, most(level).min(items));
            outer[domain] = merged;
        }
        tables = outer.into_iter().map(|table| grown(level, table)).collect();
        starts = first_of;
    }
    let machine = tables
        .iter()
        .fold(vec![0], |machine, table| merge(&machine, table, items));
    let cost = machine.get(items)?;
    Some(domains.machine_distance * pairs(items as u32) - sign * cost)
}

/// The best cost for every total number of items in two parts, up to `most`.
fn merge(a: &[i64], b: &[i64], most: usize) -> Vec<i64> {
    let length = (a.len() + b.len() - 1).min(most + 1);
    let mut merged = vec![i64::MAX; length];
    for (i, x) in a.iter().enumerate().take(length) {
        for (j, y) in b.iter().enumerate().take(length - i) {
            merged[i + j] = merged[i + j].min(x + y);
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{GroupCaps, best_alone};
    use crate::machines::{modes, problem, topologies};
    use crate::single::domains::Domains;
    use albacore_topology::Topology;

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 300, failure_persistence: None, ..ProptestConfig::default()
        })]

        #[test]
        fn the_best_alone_is_that_of_all_arrangements(
            topology in topologies(8), mode in modes(),
            items in 0..5usize, cpu in 1..3u32, core in 1..4u32
        ) {
            let problem = problem(topology, (1, 1, mode));
            let domains = Domains::of(&problem);
            let cpus = problem.topology.cpus();
            let (mut far, mut near) = (None, None);
            for number in 0..cpus.len().pow(items as u32) {
                let mut rest = number;
                let mut digits: Vec<usize> = Vec::new();
                for _ in 0..items {
                    digits.push(rest % cpus.len());
                    rest /= cpus.len();
                }
                let on = |of: &dyn Fn(usize) -> bool| digits.iter().filter(|&&d| of(d)).count();
                let fits = (0..cpus.len()).all(|c| {
                    on(&|d| d == c) <= cpu as usize
                        && on(&|d| cpus[d].core == cpus[c].core) <= core as usize
                });
                if fits && digits.is_sorted() {
                    let apart = |i: usize, j: usize| -> i64 {
                        let (a, b) = (&cpus[digits[i]], &cpus[digits[j]]);
                        Topology::distance(a, b, &problem.distances).into()
                    };
                    let pairs = (0..items).flat_map(|i| (0..i).map(move |j| (i, j)));
                    let sum: i64 = pairs.map(|(i, j)| apart(i, j)).sum();
                    far = far.max(Some(sum));
                    near = Some(near.map_or(sum, |near: i64| near.min(sum)));
                }
            }
            let caps = GroupCaps { cpu, core };
            prop_assert_eq!(best_alone(&domains, items, caps, true, &|_| true), far);
            prop_assert_eq!(best_alone(&domains, items, caps, false, &|_| true), near);
        }
    }
}
