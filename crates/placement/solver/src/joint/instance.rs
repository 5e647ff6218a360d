//! An instance: a joint problem in index form. Cpus are positions, distances a table, deployments
//! *tenants* in an order that does not depend on how they were listed.

use std::cmp::Ordering;

use albacore_topology::{Cpu, CpuId, Distances};

use super::fill_order::FillOrder;
use crate::levels::{DistinctLevels, number_domains};
use crate::{Deployment, JointProblem};
use crate::{Mode, Slot};

pub(super) use crate::labeling::NO_CPU;
pub(super) use crate::levels::{CORE, L3, LEVELS, NUMA, PACKAGE, pairs};

pub(super) struct Tenant {
    /// Index of the deployment in the problem.
    pub(super) original: usize,
    pub(super) workers: usize,
    pub(super) threads: usize,
    /// Sign of the distances within a worker in the objective: +1 scatter, -1 compact.
    pub(super) sign: i64,
    /// Positions of the cpus that it may use.
    pub(super) cpus: Vec<u16>,
    /// The same as a table over all positions.
    pub(super) allows: Vec<bool>,
    /// ceil(T/C), rule (3).
    pub(super) worker_cap: u16,
    /// ceil(W/C), rule (2).
    pub(super) rank_cap: u16,
    /// Index of its first worker among the workers of all tenants.
    pub(super) first_worker: usize,
    /// Whether there is a mapping in force.
    pub(super) is_running: bool,
    /// Current cpu of each slot, [`NO_CPU`] if it has none or may no longer use it.
    pub(super) current_cpus: Vec<u16>,
    /// Whether each slot has a cpu in force, usable or not.
    pub(super) had_cpu: Vec<bool>,
}

impl Tenant {
    /// Most of its peers on a cpu.
    pub(super) fn peers_cap(&self) -> u32 {
        u32::from(self.rank_cap) * (self.threads as u32 - 1)
    }

    /// Most of its threads on a cpu by (2) and (3).
    pub(super) fn cpu_cap(&self) -> u32 {
        let of_workers = self.workers as u32 * u32::from(self.worker_cap);
        of_workers.min(self.threads as u32 * u32::from(self.rank_cap))
    }

    /// Current cpus of its mains.
    pub(super) fn mains(&self) -> impl Iterator<Item = u16> + '_ {
        self.current_cpus.iter().step_by(self.threads).copied()
    }

    pub(super) fn slots(&self) -> usize {
        self.workers * self.threads
    }
}

/// A validated problem in index form.
pub(super) struct Instance {
    /// Number of cpus of the machine.
    pub(super) cpus: usize,
    /// Number of distinct levels; further levels contain the whole machine and have no gain.
    pub(super) levels: usize,
    /// Domain of each position at each level.
    pub(super) of: [Vec<u16>; LEVELS],
    /// Number of domains of each level.
    pub(super) counts: [usize; LEVELS],
    /// Closeness of a pair that shares a domain of the level, in addition to that of outer levels.
    pub(super) gain: [i64; LEVELS],
    /// Distance of two positions that share no domain.
    pub(super) machine_distance: i64,
    /// Distance of two positions, row by row.
    distance: Vec<u32>,
    /// The domains of the next inner level, grouped by domain, and the start of each group.
    inner: [(Vec<u16>, Vec<u16>); LEVELS],
    /// Whether any tenant may use each position.
    pub(super) is_used: Vec<bool>,
    /// Whether each position is slower than the fastest one in use.
    pub(super) is_slow: Vec<bool>,
    pub(super) fill_order: FillOrder,
    /// Weight of the obstacles on each position.
    pub(super) obstacles: Vec<u32>,
    pub(super) tenants: Vec<Tenant>,
    pub(super) workers: usize,
    pub(super) slots: usize,
    /// Cost of a moved thread in cycles.
    pub(super) move_cost: i64,
}

impl Instance {
    /// Converts a validated problem.
    pub(super) fn of(problem: &JointProblem) -> Self {
        let cpus = problem.topology.cpus();
        let numbered: [_; LEVELS] = std::array::from_fn(|level| number_domains(cpus, level));
        let all_counts = numbered.each_ref().map(|&(_, count)| count);
        let all = numbered.map(|(of, _)| of);
        let distance = distances(&all, &all_counts, &problem.distances);
        let levels = DistinctLevels::of(&all_counts, &problem.distances);
        let kept = |level: usize| (level < levels.count).then(|| levels.source[level]);
        let counts = std::array::from_fn(|level| kept(level).map_or(1, |level| all_counts[level]));
        let of: [Vec<u16>; LEVELS] = std::array::from_fn(|level| {
            kept(level).map_or_else(|| vec![0; cpus.len()], |level| all[level].clone())
        });
        let inner = std::array::from_fn(|level| match level {
            0 => (Vec::new(), vec![0; counts[0] + 1]),
            _ => {
                let of_level = |level: usize| LevelDomains {
                    of: &of[level],
                    count: counts[level],
                };
                inner(of_level(level - 1), of_level(level))
            }
        });
        let mut instance = Self {
            cpus: cpus.len(),
            of,
            counts,
            inner,
            gain: levels.gain,
            levels: levels.count,
            machine_distance: problem.distances.machine.into(),
            distance,
            is_used: vec![false; cpus.len()],
            is_slow: vec![false; cpus.len()],
            fill_order: FillOrder::default(),
            obstacles: vec![0; cpus.len()],
            tenants: Vec::with_capacity(problem.deployments.len()),
            workers: 0,
            slots: 0,
            move_cost: problem.move_cost.into(),
        };
        for obstacle in &problem.obstacles {
            let position = cpus.binary_search_by_key(&obstacle.cpu, |cpu| cpu.id);
            if let Ok(position) = position {
                instance.obstacles[position] += obstacle.weight;
            }
        }
        let mut order: Vec<usize> = (0..problem.deployments.len()).collect();
        order.sort_by(|&a, &b| compare(&problem.deployments[a], &problem.deployments[b]));
        let positions = positions(cpus);
        for index in order {
            let first_worker = instance.workers;
            let before = instance.tenants.last();
            let own = before
                .filter(|tenant| {
                    problem.deployments[tenant.original].cpuset == problem.deployments[index].cpuset
                })
                .map(|tenant| (tenant.cpus.clone(), tenant.allows.clone()));
            let (own, allows) = own.unwrap_or_else(|| usable(cpus, &problem.deployments[index]));
            let mut tenant = tenant(problem, index, own, allows, &positions);
            tenant.first_worker = first_worker;
            for &cpu in &tenant.cpus {
                instance.is_used[usize::from(cpu)] = true;
            }
            instance.workers += tenant.workers;
            instance.slots += tenant.slots();
            instance.tenants.push(tenant);
        }
        instance.compare_speeds(cpus);
        instance
    }

    /// Finds which of the used cpus are slow, and the order in which threads fill them.
    fn compare_speeds(&mut self, cpus: &[Cpu]) {
        let used = cpus.iter().zip(&self.is_used).filter(|&(_, &used)| used);
        let fastest = used.map(|(cpu, _)| cpu.capacity).max().unwrap_or_default();
        self.is_slow = cpus.iter().map(|cpu| cpu.capacity < fastest).collect();
        self.fill_order = FillOrder::of(cpus, &self.of[CORE], &self.is_used, &self.obstacles);
    }

    /// Whether all deployments have the same cpus and nothing else runs on their cores.
    pub(super) fn is_undivided(&self) -> bool {
        let mut cores = vec![false; self.counts[CORE]];
        for &cpu in self.tenants.iter().flat_map(|tenant| &tenant.cpus) {
            cores[self.core(cpu.into())] = true;
        }
        let beside = |cpu: usize| self.obstacles[cpu] > 0 && cores[self.core(cpu)];
        let mut pairs = self.tenants.windows(2);
        pairs.all(|pair| pair[0].cpus == pair[1].cpus) && !(0..self.cpus).any(beside)
    }

    /// Distance of two positions.
    pub(super) fn distance(&self, a: usize, b: usize) -> i64 {
        i64::from(self.distance[a * self.cpus + b])
    }

    /// Distances from a position to all.
    pub(super) fn distances(&self, from: usize) -> &[u32] {
        &self.distance[from * self.cpus..][..self.cpus]
    }

    /// The domains of the next inner level that a domain contains; none for cpus.
    pub(super) fn inner(&self, level: usize, domain: usize) -> impl Iterator<Item = usize> + '_ {
        let (inner, starts) = &self.inner[level];
        let (from, to) = (usize::from(starts[domain]), usize::from(starts[domain + 1]));
        inner[from..to].iter().map(|&domain| usize::from(domain))
    }

    /// The core of a position.
    pub(super) fn core(&self, cpu: usize) -> usize {
        usize::from(self.of[CORE][cpu])
    }

    /// Whether any tenant has a mapping in force.
    pub(super) fn has_running(&self) -> bool {
        self.tenants.iter().any(|tenant| tenant.is_running)
    }

    /// Loads of cores from those of cpus.
    pub(super) fn core_loads(&self, loads: &[u32]) -> Vec<u32> {
        let mut cores = vec![0; self.counts[CORE]];
        for (cpu, load) in loads.iter().enumerate() {
            cores[self.core(cpu)] += load;
        }
        cores
    }
}

/// Distances of all pairs of positions, row by row, by the innermost domain that both share.
fn distances(of: &[Vec<u16>; LEVELS], counts: &[usize; LEVELS], table: &Distances) -> Vec<u32> {
    let count = of[0].len();
    let within = [
        table.cpu,
        table.l1,
        table.l2,
        table.l3,
        table.numa,
        table.package,
    ];
    let mut all = vec![table.machine; count * count];
    for level in (0..LEVELS).rev() {
        let mut members = vec![Vec::new(); counts[level]];
        for (position, &domain) in of[level].iter().enumerate() {
            members[usize::from(domain)].push(position);
        }
        for (a, row) in all.chunks_mut(count.max(1)).enumerate() {
            let mates = &members[usize::from(of[level][a])];
            mates.iter().for_each(|&b| row[b] = within[level]);
        }
    }
    all
}

/// The domain of each cpu at a level, and the number of domains of the level.
struct LevelDomains<'a> {
    of: &'a [u16],
    count: usize,
}

/// The domains of a level, grouped by the domain of the next outer one, and the start of each
/// group.
fn inner(inner: LevelDomains<'_>, outer: LevelDomains<'_>) -> (Vec<u16>, Vec<u16>) {
    let (of, count) = (inner.of, inner.count);
    let (outers, outer) = (outer.count, outer.of);
    let mut holder = vec![0; count];
    for (&domain, &outer) in of.iter().zip(outer) {
        holder[usize::from(domain)] = outer;
    }
    let mut inner: Vec<u16> = (0..count as u16).collect();
    inner.sort_by_key(|&domain| holder[usize::from(domain)]);
    let mut starts = vec![0; outers + 1];
    holder
        .iter()
        .for_each(|&outer| starts[usize::from(outer) + 1] += 1);
    for domain in 0..outers {
        starts[domain + 1] += starts[domain];
    }
    (inner, starts)
}

/// The position of each cpu id, up to the highest.
fn positions(cpus: &[Cpu]) -> Vec<u16> {
    let ids = cpus.last().map_or(0, |cpu| usize::from(cpu.id.0) + 1);
    let mut positions = vec![NO_CPU; ids];
    for (cpu, position) in cpus.iter().zip(0..) {
        positions[usize::from(cpu.id.0)] = position;
    }
    positions
}

/// The positions that a deployment may use, and the same as a table.
fn usable(cpus: &[Cpu], deployment: &Deployment) -> (Vec<u16>, Vec<bool>) {
    let allows: Vec<bool> = cpus
        .iter()
        .map(|c| deployment.cpuset.contains(c.id))
        .collect();
    let own = (0u16..)
        .zip(&allows)
        .filter(|&(_, &allowed)| allowed)
        .map(|(position, _)| position)
        .collect();
    (own, allows)
}

/// Orders deployments by content: those that compare equal are the same problem.
fn compare(a: &Deployment, b: &Deployment) -> Ordering {
    let scatter = |d: &Deployment| d.mode == Mode::Scatter;
    fn current(d: &Deployment) -> Option<(u16, &[CpuId])> {
        d.current.as_ref().map(|c| (c.threads, &c.cpus[..]))
    }
    // running deployments first, then those with the fewest cpus, then those with the most threads
    (b.current.is_some().cmp(&a.current.is_some()))
        .then_with(|| a.cpuset.len().cmp(&b.cpuset.len()))
        .then_with(|| (b.threads, b.workers).cmp(&(a.threads, a.workers)))
        .then_with(|| scatter(a).cmp(&scatter(b)))
        .then_with(|| a.cpuset.cmp(&b.cpuset))
        .then_with(|| current(a).cmp(&current(b)))
}

fn tenant(
    problem: &JointProblem,
    index: usize,
    own: Vec<u16>,
    allows: Vec<bool>,
    positions: &[u16],
) -> Tenant {
    let deployment = &problem.deployments[index];
    let (workers, threads) = (deployment.workers, deployment.threads);
    let count = own.len().max(1) as u16;
    let slots = usize::from(workers) * usize::from(threads);
    let mut current_cpus = Vec::with_capacity(slots);
    let mut had_cpu = Vec::with_capacity(slots);
    for slot in Slot::all(workers, threads) {
        let current = deployment.current.as_ref();
        let id = current.and_then(|current| current.cpu(slot));
        let position = id
            .and_then(|id| positions.get(usize::from(id.0)).copied())
            .filter(|&position| position != NO_CPU && allows[usize::from(position)]);
        current_cpus.push(position.unwrap_or(NO_CPU));
        had_cpu.push(id.is_some());
    }
    Tenant {
        original: index,
        workers: workers.into(),
        threads: threads.into(),
        sign: if deployment.mode == Mode::Scatter {
            1
        } else {
            -1
        },
        cpus: own,
        allows,
        worker_cap: threads.div_ceil(count),
        rank_cap: workers.div_ceil(count),
        first_worker: 0,
        is_running: deployment.current.is_some(),
        current_cpus,
        had_cpu,
    }
}
