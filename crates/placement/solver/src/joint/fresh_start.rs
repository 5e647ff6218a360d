//! Initial loads of the cpus for deployments that all start anew on the same cpus.
//!
//! **Problem.** Loads must be balanced, but where balance leaves a choice (which cores carry one
//! more) it should suit compact workers. **Approach.** First the loads of all deployments together:
//! one thread at a time on the least loaded cpu, the surplus on adjacent cpus. Then compact workers
//! take whole blocks of these places, one after the other: the smallest L3 that is large enough, in
//! it the cores with most room. The remaining places go to scatter workers, thread by thread in the
//! L3 and core with fewest of their own. **Proof sketch.** Placing one thread at a time is exact
//! for nested domains, so the loads are balanced whichever worker takes which place. **Limits.** A
//! construction heuristic: exchanges follow. If the caps of (2) and (3) leave a thread without a
//! place, it returns nothing and the tenants are placed one after the other (`volumes`).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::instance::{CORE, Instance, L3, LEVELS, NUMA, PACKAGE, Tenant};

/// Threads of each tenant on each cpu, row by row; `None` if not all tenants start anew on the same
/// cpus, or if a thread has no place.
pub(super) fn fresh_loads(instance: &Instance) -> Option<Vec<u32>> {
    let first = instance.tenants.first()?;
    let alike = |tenant: &Tenant| !tenant.is_running && tenant.cpus == first.cpus;
    if !instance.tenants.iter().all(alike) {
        return None;
    }
    let mut start = FreshStart {
        instance,
        counts: vec![0; instance.tenants.len() * instance.cpus],
        left: places(instance, &first.cpus),
    };
    for compact in [true, false] {
        for (index, tenant) in instance.tenants.iter().enumerate() {
            if (tenant.sign < 0) != compact {
                continue;
            }
            for _ in 0..tenant.workers {
                if compact {
                    start.place_compact_worker(index)?;
                } else {
                    start.place_scatter_worker(index)?;
                }
            }
        }
    }
    Some(start.counts)
}

/// Number of threads that each cpu gets.
fn places(instance: &Instance, cpus: &[u16]) -> Vec<u32> {
    if !instance.fill_order.is_uniform() {
        return places_by_level(instance, cpus);
    }
    let mut loads = instance.obstacles.clone();
    let mut left = instance.slots;
    let missing = |loads: &[u32], level: u32| -> usize {
        let of = |&cpu: &u16| level.saturating_sub(loads[usize::from(cpu)]) as usize;
        cpus.iter().map(of).sum()
    };
    // the highest level to which all cpus can be filled, by bisection between the least load and
    // that load plus all threads
    let least = cpus.iter().map(|&cpu| loads[usize::from(cpu)]).min();
    let (mut level, mut beyond) = (least.unwrap_or(0), least.unwrap_or(0) + left as u32 + 1);
    while level + 1 < beyond {
        let middle = level.midpoint(beyond);
        if missing(&loads, middle) <= left {
            level = middle;
        } else {
            beyond = middle;
        }
    }
    left -= missing(&loads, level);
    for &cpu in cpus {
        let load = &mut loads[usize::from(cpu)];
        *load = level.max(*load);
    }
    let mut cores = instance.core_loads(&loads);
    // bound: less than one thread per cpu
    for _ in 0..left {
        let open = cpus.iter().map(|&cpu| usize::from(cpu));
        let least = open.min_by_key(|&cpu| {
            let [l2, l3] = [2, 3].map(|level| instance.of[level][cpu]);
            (loads[cpu], cores[instance.core(cpu)], l3, l2, cpu)
        });
        if let Some(cpu) = least {
            loads[cpu] += 1;
            cores[instance.core(cpu)] += 1;
        }
    }
    for (load, weight) in loads.iter_mut().zip(&instance.obstacles) {
        *load -= weight;
    }
    loads
}

/// The same on cores of different speed, with the cpus filled at most as far as (2) and (3) allow.
fn places_by_level(instance: &Instance, cpus: &[u16]) -> Vec<u32> {
    let mut places = vec![0; instance.cpus];
    let most: u32 = instance.tenants.iter().map(Tenant::cpu_cap).sum();
    let level = |cpu: u16, places: &[u32]| {
        let held = instance.obstacles[usize::from(cpu)] + places[usize::from(cpu)];
        Reverse((instance.fill_order.level(cpu.into(), held + 1), cpu))
    };
    let mut next: BinaryHeap<_> = cpus.iter().map(|&cpu| level(cpu, &places)).collect();
    for _ in 0..instance.slots {
        let Some(Reverse((_, cpu))) = next.pop() else {
            break;
        };
        places[usize::from(cpu)] += 1;
        if places[usize::from(cpu)] < most {
            next.push(level(cpu, &places));
        }
    }
    places
}

struct FreshStart<'a> {
    instance: &'a Instance,
    counts: Vec<u32>,
    /// Places that no worker has taken yet.
    left: Vec<u32>,
}

impl FreshStart<'_> {
    /// Places on a cpu that a worker with `own` threads on each cpu may still take.
    fn room(&self, index: usize, own: &[u32], cpu: usize) -> u32 {
        let tenant = &self.instance.tenants[index];
        let held = self.counts[index * self.instance.cpus + cpu];
        let cap = tenant.cpu_cap().saturating_sub(held);
        let of_worker = u32::from(tenant.worker_cap).saturating_sub(own[cpu]);
        self.left[cpu].min(cap).min(of_worker)
    }

    fn take(&mut self, index: usize, own: &mut [u32], cpu: usize) {
        own[cpu] += 1;
        self.left[cpu] -= 1;
        self.counts[index * self.instance.cpus + cpu] += 1;
    }

    /// Assigns places to a compact worker.
    fn place_compact_worker(&mut self, index: usize) -> Option<()> {
        let (instance, tenant) = (self.instance, &self.instance.tenants[index]);
        let mut own = vec![0; instance.cpus];
        let mut missing = tenant.threads as u32;
        while missing > 0 {
            let mut rooms: [Vec<u32>; LEVELS] =
                std::array::from_fn(|level| vec![0; instance.counts[level]]);
            for &cpu in &tenant.cpus {
                let room = self.room(index, &own, cpu.into());
                for (rooms, of) in rooms.iter_mut().zip(&instance.of) {
                    rooms[usize::from(of[usize::from(cpu)])] += room;
                }
            }
            // best fit: enough and as little as possible, else as much as there is
            let fit = |room: u32| {
                if room >= missing {
                    (0, room)
                } else {
                    (1, u32::MAX - room)
                }
            };
            let before = missing;
            let mut cpus: Vec<usize> = tenant.cpus.iter().map(|&cpu| usize::from(cpu)).collect();
            // the package, in it the NUMA node, in it the L3
            for level in (L3..instance.levels).rev() {
                let domain = |cpu: &usize| usize::from(instance.of[level][*cpu]);
                let open = cpus.iter().map(domain).filter(|&at| rooms[level][at] > 0);
                let best = open.min_by_key(|&at| (fit(rooms[level][at]), at))?;
                cpus.retain(|cpu| domain(cpu) == best);
            }
            cpus.sort_by_key(|&cpu| {
                let core = instance.core(cpu);
                (u32::MAX - rooms[CORE][core], instance.of[2][cpu], core, cpu)
            });
            for cpu in cpus {
                for _ in 0..self.room(index, &own, cpu).min(missing) {
                    self.take(index, &mut own, cpu);
                    missing -= 1;
                }
            }
            if missing == before {
                return None;
            }
        }
        Some(())
    }

    /// Assigns places to a scatter worker.
    fn place_scatter_worker(&mut self, index: usize) -> Option<()> {
        let (instance, tenant) = (self.instance, &self.instance.tenants[index]);
        let mut own = vec![0; instance.cpus];
        let mut of_core = vec![0u64; instance.counts[1]];
        let mut preferences = vec![INFEASIBLE; instance.cpus];
        // own threads in each domain of each level
        let mut held: [Vec<u32>; LEVELS] =
            std::array::from_fn(|level| vec![0; instance.counts[level]]);
        // per L3: its cpus, and the best preference among them
        let mut l3s: Vec<(Vec<usize>, u64)> = vec![(Vec::new(), INFEASIBLE); instance.counts[L3]];
        for &cpu in &tenant.cpus {
            let cpu = usize::from(cpu);
            preferences[cpu] = self.preference(index, &own, &of_core, cpu);
            let l3 = &mut l3s[usize::from(instance.of[L3][cpu])];
            l3.0.push(cpu);
            l3.1 = l3.1.min(preferences[cpu]);
        }
        for _ in 0..tenant.threads {
            let open = l3s.iter().enumerate();
            let open = open.filter(|(_, (_, best))| *best < INFEASIBLE);
            let (l3, &(_, best)) = open.min_by_key(|&(l3, &(_, best))| {
                let cpu = (best & CPU_BITS) as usize;
                let own = |level: usize| held[level][usize::from(instance.of[level][cpu])];
                // packages first, then NUMA nodes, then L3
                ([own(PACKAGE), own(NUMA), own(L3)], best, l3)
            })?;
            let cpu = (best & CPU_BITS) as usize;
            for (held, of) in held.iter_mut().zip(&instance.of) {
                held[usize::from(of[cpu])] += 1;
            }
            self.take(index, &mut own, cpu);
            of_core[instance.core(cpu)] += 1;
            let (cpus, best) = &mut l3s[l3];
            *best = INFEASIBLE;
            for &other in cpus.iter() {
                if instance.core(other) == instance.core(cpu) {
                    preferences[other] = self.preference(index, &own, &of_core, other);
                }
                *best = preferences[other].min(*best);
            }
        }
        Some(())
    }

    /// Preference of a scatter worker for a cpu as one number, lower is better: own threads on the
    /// core, then most places left, then the cpu.
    fn preference(&self, index: usize, own: &[u32], cores: &[u64], cpu: usize) -> u64 {
        if self.room(index, own, cpu) == 0 {
            return INFEASIBLE;
        }
        let left = u64::from(u32::MAX - self.left[cpu]);
        (cores[self.instance.core(cpu)] << 48) + (left << 16) + cpu as u64
    }
}

/// The preference for a cpu that takes no more threads.
const INFEASIBLE: u64 = u64::MAX;

/// The bits of a preference that hold the cpu.
const CPU_BITS: u64 = 0xffff;
