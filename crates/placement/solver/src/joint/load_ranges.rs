//! The range of each load over all balanced placements.
//!
//! **Problem.** The integer program needs rule (8) as linear constraints, but balanced loads are
//! known only as a multiset: which cpu has which of them varies. **Approach.** Over all balanced
//! placements a cpu has at most two different loads, n and n + 1 (decreasingly minimal elements of
//! an M-convex set are the bases of a matroid, translated: Frank and Murota). Given the loads of
//! `volumes`, a cpu can have one more if a chain of threads leads to it from a cpu that has one
//! more, and one less if a chain leads from it to a cpu that has one less. The cpus with the same n
//! have the same sum in all balanced placements, otherwise the multiset would differ. So the ranges
//! and these sums are equivalent to (8). Loads of cores are sums of elements of the matroid, so the
//! same holds for (8+); their chains consist of exchanges of two loads of cpus that differ by 1,
//! and may continue from another cpu of a core. **Limits.** For small problems: every cpu is the
//! start of a search.

#[cfg(test)]
mod tests;

use super::instance::{CORE, Instance};
use super::volumes::JointVolumes;

/// Least and most load of each used cpu and core; for others, the loads of `volumes`.
pub(super) struct LoadRanges {
    pub(super) cpus: Vec<(u32, u32)>,
    pub(super) cores: Vec<(u32, u32)>,
}

impl LoadRanges {
    pub(super) fn of(instance: &Instance, volume: &JointVolumes) -> Self {
        let reachable = chains(instance, volume);
        let cores = instance.counts[CORE];
        let mut core_reachable = vec![vec![false; cores]; cores];
        for (from, row) in reachable.iter().enumerate() {
            let ends = row.iter().enumerate().filter(|&(_, &reachable)| reachable);
            for (to, _) in ends.filter(|&(to, _)| volume.loads[from] == volume.loads[to] + 1) {
                core_reachable[instance.core(from)][instance.core(to)] = true;
            }
        }
        close_transitively(&mut core_reachable);
        Self {
            cpus: ranges(&volume.loads, &reachable),
            cores: ranges(&instance.core_loads(&volume.loads), &core_reachable),
        }
    }
}

/// Whether a chain of threads leads from each cpu to each other cpu.
fn chains(instance: &Instance, volume: &JointVolumes) -> Vec<Vec<bool>> {
    let mut reachable = vec![vec![false; instance.cpus]; instance.cpus];
    for (from, row) in reachable.iter_mut().enumerate() {
        for (tenant, of) in instance.tenants.iter().enumerate() {
            if volume.may_leave(tenant, from, true) {
                for to in of.cpus.iter().map(|&to| usize::from(to)) {
                    row[to] |= volume.may_enter(instance, tenant, to);
                }
            }
        }
    }
    close_transitively(&mut reachable);
    reachable
}

/// Transitive closure.
fn close_transitively(reachable: &mut [Vec<bool>]) {
    for by in 0..reachable.len() {
        let onward = reachable[by].clone();
        for row in reachable.iter_mut().filter(|row| row[by]) {
            for (reachable, &onward) in row.iter_mut().zip(&onward) {
                *reachable |= onward;
            }
        }
    }
}

/// The range of each load: one unit can be passed along a chain between loads that differ by 1.
fn ranges(loads: &[u32], reachable: &[Vec<bool>]) -> Vec<(u32, u32)> {
    let all = loads.iter().enumerate();
    all.clone()
        .map(|(at, &load)| {
            let falls = all
                .clone()
                .any(|(to, &other)| other + 1 == load && reachable[at][to]);
            let rises = all
                .clone()
                .any(|(from, &other)| load + 1 == other && reachable[from][at]);
            (load - u32::from(falls), load + u32::from(rises))
        })
        .collect()
}
