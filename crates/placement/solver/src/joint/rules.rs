//! The rules on mains in their joint form: mains-per-core, fast-mains, (12), (12+), and how far a
//! state violates them.
//!
//! The limit of mains per core is the smallest possible maximum: mains are placed one by one on the
//! core with fewest, and augmenting chains of mains lower the maximum until no chain can (the same
//! argument as for loads in `volumes`).

use std::collections::VecDeque;

use crate::max_full_units_with_main;

use super::enumerate::RuleExcess;
use super::instance::{CORE, Instance};

/// Right-hand sides of the rules on mains.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Rules {
    /// Mains of each tenant on each core in a placement that keeps mains-per-core, row by row.
    pub(super) mains_by_core: Vec<u32>,
    /// Most mains on a core.
    pub(super) core_mains: u32,
    /// (12): number of threads of a full cpu, and how many full cpus may hold a main.
    pub(super) full_cpus: Option<(u32, u32)>,
    /// (12+): the same for cores.
    pub(super) full_cores: Option<(u32, u32)>,
}

impl Rules {
    /// The rules of a problem.
    pub(super) fn of(instance: &Instance) -> Self {
        let (full_cpus, full_cores) = full(instance);
        let (core_mains, mains_by_core) = least_core_mains(instance);
        Self {
            mains_by_core,
            core_mains,
            full_cpus,
            full_cores,
        }
    }

    /// The excess as one number, mains-per-core before the others. Where mains may be slow, (12)
    /// and (12+) do not bind.
    pub(super) fn violation(
        &self,
        [crowding, slow_mains, full_cpus, full_cores]: RuleExcess,
    ) -> i64 {
        let beyond = |count: u32, rule: Option<(u32, u32)>| {
            i64::from(rule.map_or(0, |(_, most)| count.saturating_sub(most)))
        };
        (i64::from(crowding) << 40)
            + (i64::from(slow_mains) << 20)
            + (beyond(full_cpus, self.full_cpus) << 20)
            + beyond(full_cores, self.full_cores)
    }

    /// Excess over each rule of a placement with these loads and mains of cpus and of cores.
    pub(super) fn excess(
        &self,
        instance: &Instance,
        (loads, mains): (&[u32], &[u32]),
        (core_loads, core_mains): (&[u32], &[u32]),
    ) -> RuleExcess {
        let slow = mains.iter().zip(&instance.is_slow);
        let slow_mains = slow
            .filter(|&(_, &slow)| slow)
            .map(|(mains, _)| mains)
            .sum();
        let most = core_mains.iter().copied().max().unwrap_or(0);
        let cpus = loads
            .iter()
            .zip(mains)
            .filter(|&(&n, &m)| self.is_full_cpu(n, m))
            .count();
        let both = core_loads.iter().zip(core_mains);
        let cores = both.filter(|&(&n, &m)| self.is_full_core(n, m)).count();
        let beyond = |count: usize, rule: Option<(u32, u32)>| {
            rule.map_or(0, |(_, most)| (count as u32).saturating_sub(most))
        };
        [
            most.saturating_sub(self.core_mains),
            slow_mains,
            beyond(cpus, self.full_cpus),
            beyond(cores, self.full_cores),
        ]
    }

    /// Whether a cpu with these counts is full and holds a main.
    pub(super) fn is_full_cpu(&self, load: u32, mains: u32) -> bool {
        mains > 0 && self.full_cpus.is_some_and(|(full, _)| load >= full)
    }

    /// Whether a core with these counts is full and holds a main.
    pub(super) fn is_full_core(&self, load: u32, mains: u32) -> bool {
        mains > 0 && self.full_cores.is_some_and(|(full, _)| load >= full)
    }
}

type Full = Option<(u32, u32)>;

/// (12) and (12+), if all deployments have the same cpus, these are equally fast, and nothing else
/// runs there.
fn full(instance: &Instance) -> (Full, Full) {
    if !instance.fill_order.is_uniform() || !instance.is_undivided() {
        return (None, None);
    }
    let Some(own) = instance.tenants.first() else {
        return (None, None);
    };
    let mut cores: Vec<usize> = own
        .cpus
        .iter()
        .map(|&cpu| instance.core(cpu.into()))
        .collect();
    cores.sort_unstable();
    cores.dedup();
    let (slots, workers) = (instance.slots as u32, instance.workers as u32);
    let rule = |units: u32| {
        let most = max_full_units_with_main(workers, slots, units)?;
        Some((slots.div_ceil(units), most))
    };
    (rule(own.cpus.len() as u32), rule(cores.len() as u32))
}

/// The smallest limit on mains per core with which every tenant can place its mains, and such a
/// placement.
fn least_core_mains(instance: &Instance) -> (u32, Vec<u32>) {
    let cores = instance.counts[CORE];
    let mut room = vec![0u32; instance.tenants.len() * cores];
    let mut held = vec![0u32; instance.tenants.len() * cores];
    let mut mains = vec![0u32; cores];
    let mut slow = vec![false; cores];
    for cpu in 0..instance.cpus {
        slow[instance.core(cpu)] = instance.is_slow[cpu];
    }
    for (index, tenant) in instance.tenants.iter().enumerate() {
        let row = index * cores;
        for &cpu in &tenant.cpus {
            room[row + instance.core(cpu.into())] += u32::from(tenant.rank_cap);
        }
        for _ in 0..tenant.workers {
            let counts = held[row..][..cores].iter().zip(&room[row..][..cores]);
            let counts = counts.zip(&mains).zip(0u64..);
            let open = counts.map(|(((held, room), &mains), core)| match held < room {
                // ties are broken in favor of a fast core
                true => (u64::from(mains) << 33) + (u64::from(slow[core as usize]) << 32) + core,
                false => u64::MAX,
            });
            if let Some(best) = open.min().filter(|&best| best < u64::MAX) {
                let core = (best & u64::from(u32::MAX)) as usize;
                held[row + core] += 1;
                mains[core] += 1;
            }
        }
    }
    // bound: each chain takes a main from a fullest core
    while lower_maximum(cores, &room, &mut held, &mut mains) {}
    (mains.into_iter().max().unwrap_or(0), held)
}

/// Takes a main from a fullest core along a chain to one with at least 2 fewer.
fn lower_maximum(cores: usize, room: &[u32], held: &mut [u32], mains: &mut [u32]) -> bool {
    let most = mains.iter().copied().max().unwrap_or(0);
    let mut before: Vec<Option<(usize, usize)>> = vec![None; cores];
    let mut seen = vec![false; cores];
    let mut used = vec![false; room.len() / cores.max(1)];
    let mut queue: VecDeque<usize> = (0..cores).filter(|&core| mains[core] == most).collect();
    queue.iter().for_each(|&core| seen[core] = true);
    while let Some(core) = queue.pop_front() {
        for tenant in 0..used.len() {
            if used[tenant] || held[tenant * cores + core] == 0 {
                continue;
            }
            used[tenant] = true;
            for next in 0..cores {
                let at = tenant * cores + next;
                if held[at] >= room[at] || std::mem::replace(&mut seen[next], true) {
                    continue;
                }
                before[next] = Some((tenant, core));
                if mains[next] + 2 <= most {
                    mains[next] += 1;
                    let mut to = next;
                    while let Some((tenant, from)) = before[to] {
                        held[tenant * cores + to] += 1;
                        held[tenant * cores + from] -= 1;
                        to = from;
                    }
                    mains[to] -= 1;
                    return true;
                }
                queue.push_back(next);
            }
        }
    }
    false
}
