//! Which worker has which row of cpus.
//!
//! **Problem.** Rows of cpus are interchangeable between the workers of a deployment: no rule and
//! no distance tells them apart. Busy workers should have the rows on which they contend least, as
//! [`contention`](albacore_mapping::contention) counts it. **Approach.** Exchange the rows of two
//! workers as long as an exchange lowers contention by what it must gain: a local search of a
//! quadratic assignment problem. Ranks that are equally busy in every worker are one column, so a
//! row costs as many steps as it has columns and neighbors: one column for a new deployment, two
//! where mains and peers differ. **Proof sketch.** Rows stay what they are, so rules, objective and
//! bound do; each exchange lowers a sum that is never negative. **Limits.** No exchange of two is
//! left that gains, which is not always the least contention: the tests compare with all orders.

use std::collections::{BTreeMap, BTreeSet};

use albacore_mapping::{BUSY_MAX, BusyMapping, busy_by_dispatch_order};
use albacore_topology::{CAPACITY_MAX, CpuId, Topology};

use crate::levels::{CORE, number_domains};
use crate::limits::ORDER_PASSES_MAX;
use crate::{JointProblem, Mapping};

/// When the rows of two workers are exchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExchangeRule {
    /// Contention that an exchange must remove, percent of a cpu; at least 1.
    pub gain_min: u64,
    /// Only rows in the same NUMA nodes are exchanged: memory stays where it is.
    pub stays_in_nodes: bool,
}

impl ExchangeRule {
    /// Nothing runs yet: every gain counts.
    pub const FREE: Self = Self {
        gain_min: 1,
        stays_in_nodes: false,
    };
}

/// A new mapping with its rows given so that workers of low number, which dispatchers prefer,
/// contend least.
pub(crate) fn in_dispatch_order(topology: &Topology, mapping: Mapping) -> Mapping {
    let threads = usize::from(mapping.threads).max(1);
    let busy = busy_by_dispatch_order((mapping.cpus.len() / threads) as u16, mapping.threads);
    let placed = BusyMapping {
        mapping: &mapping,
        busy: &busy,
    };
    let mut order = WorkerOrder::new(topology, vec![placed], &BTreeMap::new());
    let ordered = order.order(0, ExchangeRule::FREE);
    drop(order);
    ordered.unwrap_or(mapping)
}

/// Gives the rows of new mappings, those without one in force, to workers of low number first.
pub(crate) fn order_new(problem: &JointProblem, mappings: &mut [Mapping]) {
    if problem.deployments.iter().all(|of| of.current.is_some()) {
        return;
    }
    let busy: Vec<Vec<u8>> = problem
        .deployments
        .iter()
        .map(|of| busy_by_dispatch_order(of.workers, of.threads))
        .collect();
    let placed = mappings.iter().zip(&busy);
    let placed = placed.map(|(mapping, busy)| BusyMapping { mapping, busy });
    let mut background = BTreeMap::new();
    for obstacle in &problem.obstacles {
        *background.entry(obstacle.cpu).or_insert(0) += obstacle.weight * u32::from(BUSY_MAX);
    }
    let mut order = WorkerOrder::new(&problem.topology, placed.collect(), &background);
    let is_new = |index: &usize| problem.deployments[*index].current.is_none();
    let new = (0..mappings.len()).filter(is_new);
    let ordered: Vec<(usize, Mapping)> = new
        .filter_map(|index| Some((index, order.order(index, ExchangeRule::FREE)?)))
        .collect();
    drop(order);
    for (index, mapping) in ordered {
        mappings[index] = mapping;
    }
}

/// Mappings on one machine with how busy their threads are, and what else runs there.
#[derive(Debug)]
pub struct WorkerOrder<'a> {
    topology: &'a Topology,
    placed: Vec<BusyMapping<'a>>,
    /// Threads on each core: the number of their slot among those of all mappings, and their cpu.
    by_core: Vec<Vec<(usize, CpuId)>>,
    core_of: BTreeMap<CpuId, usize>,
    /// How busy the thread of each slot is.
    busy: Vec<u8>,
    /// Load by cpu and core that no mapping causes.
    background: Vec<(CpuId, usize, u32)>,
}

impl<'a> WorkerOrder<'a> {
    /// Threads on cpus that the machine does not have are left out.
    pub fn new(
        topology: &'a Topology,
        placed: Vec<BusyMapping<'a>>,
        background: &BTreeMap<CpuId, u32>,
    ) -> Self {
        let cpus = topology.cpus();
        let (cores, count) = number_domains(cpus, CORE);
        let core_of: BTreeMap<CpuId, usize> = cpus
            .iter()
            .zip(cores)
            .map(|(cpu, core)| (cpu.id, core.into()))
            .collect();
        let mut by_core = vec![Vec::new(); count];
        let mut busy = Vec::new();
        for of in &placed {
            let listed = of.busy.iter().copied().chain(std::iter::repeat(0));
            for (&id, percent) in of.mapping.cpus.iter().zip(listed) {
                if let Some(&core) = core_of.get(&id) {
                    by_core[core].push((busy.len(), id));
                }
                busy.push(percent.min(BUSY_MAX));
            }
        }
        let load = |(&id, &load): (&CpuId, &u32)| Some((id, *core_of.get(&id)?, load));
        let background = background.iter().filter_map(load).collect();
        Self {
            topology,
            placed,
            by_core,
            core_of,
            busy,
            background,
        }
    }

    /// The mapping of index `which` with its rows given to other workers, if that gains; later
    /// calls count with it.
    pub fn order(&mut self, which: usize, rule: ExchangeRule) -> Option<Mapping> {
        let mapping = self.placed.get(which)?.mapping;
        let before = self.placed[..which].iter();
        let first: usize = before.map(|of| of.mapping.cpus.len()).sum();
        let own = first..first + mapping.cpus.len();
        let threads = usize::from(mapping.threads).max(1);
        let columns = Columns::of(&self.busy[own.clone()], threads);
        let mut workers = columns.busy.chunks(columns.count);
        let one = workers.next()?;
        if workers.all(|other| other == one) {
            return None;
        }
        let rows: Vec<&[CpuId]> = mapping.cpus.chunks(threads).collect();
        let mut exchange = self.exchange(&rows, first, columns);
        let nodes = |row: &&[CpuId]| -> BTreeSet<Option<u32>> {
            let numa = |&id: &CpuId| self.topology.cpu(id).map(|cpu| cpu.numa);
            row.iter().map(numa).collect()
        };
        let nodes: Vec<_> = match rule.stays_in_nodes {
            true => rows.iter().map(nodes).collect(),
            false => vec![BTreeSet::new(); rows.len()],
        };
        let gain_min = rule.gain_min.max(1) as i64;
        if !exchange.run(gain_min, |a, b| nodes[a] == nodes[b]) {
            return None;
        }
        let mut cpus = mapping.cpus.clone();
        let listed = self.busy[own.clone()].to_vec();
        for (row, &worker) in exchange.worker_in.iter().enumerate() {
            cpus[worker * threads..][..threads].copy_from_slice(rows[row]);
            let busy = &listed[worker * threads..][..threads];
            self.busy[first + row * threads..][..threads].copy_from_slice(busy);
        }
        let threads = mapping.threads;
        Some(Mapping { threads, cpus })
    }

    /// What the rows of one mapping, whose first slot has the number `first`, cost its workers.
    fn exchange(&self, rows: &[&[CpuId]], first: usize, columns: Columns) -> Exchange {
        let threads = rows.first().map_or(1, |row| row.len());
        let place_of = |slot: usize| {
            let (row, rank) = (slot / threads, slot % threads);
            row * columns.count + columns.of[rank]
        };
        let own = first..first + rows.len() * threads;
        let places = rows.len() * columns.count;
        let mut shared: Vec<BTreeMap<usize, u64>> = vec![BTreeMap::new(); places];
        let mut rivals: Vec<BTreeMap<u8, u64>> = vec![BTreeMap::new(); places];
        let mut missing = vec![0u64; places];
        for (slot, &id) in rows.iter().flat_map(|row| row.iter()).enumerate() {
            let Some(&core) = self.core_of.get(&id) else {
                continue;
            };
            let place = place_of(slot);
            let capacity = self.topology.cpu(id).map(|cpu| cpu.capacity);
            missing[place] += u64::from(CAPACITY_MAX - capacity.unwrap_or(CAPACITY_MAX));
            let times = |other: CpuId| 1 + u64::from(other == id);
            for &(other, other_id) in &self.by_core[core] {
                if own.contains(&other) {
                    // met from both: once is enough
                    if other - first > slot {
                        let other = place_of(other - first);
                        *shared[place].entry(other).or_insert(0) += times(other_id);
                        if other != place {
                            *shared[other].entry(place).or_insert(0) += times(other_id);
                        }
                    }
                } else {
                    *rivals[place].entry(self.busy[other]).or_insert(0) += times(other_id);
                }
            }
            for &(other_id, other_core, load) in &self.background {
                if other_core == core {
                    let load = load.min(BUSY_MAX.into()) as u8;
                    *rivals[place].entry(load).or_insert(0) += times(other_id);
                }
            }
        }
        let alone = rivals.iter().zip(missing);
        Exchange {
            alone: alone
                .map(|(rivals, missing)| cost_by_busy(rivals, missing))
                .collect(),
            shared: shared
                .into_iter()
                .map(|of| of.into_iter().collect())
                .collect(),
            columns,
            worker_in: (0..rows.len()).collect(),
        }
    }
}

/// What a place costs a thread that is busy for 0 to 100 percent, with rivals of other deployments
/// by how busy they are, and so much capacity missing; empty if it never costs anything.
fn cost_by_busy(rivals: &BTreeMap<u8, u64>, missing: u64) -> Vec<u64> {
    if rivals.is_empty() && missing == 0 {
        return Vec::new();
    }
    let with = |busy: u8| {
        let of = |(&rival, &count): (&u8, &u64)| count * u64::from(busy.min(rival));
        let contended: u64 = rivals.iter().map(of).sum();
        contended + u64::from(busy) * missing / u64::from(CAPACITY_MAX)
    };
    (0..=BUSY_MAX).map(with).collect()
}

/// Ranks that are equally busy in every worker.
struct Columns {
    /// The column of each rank.
    of: Vec<usize>,
    count: usize,
    /// How busy the threads of each worker are in each column, worker by worker.
    busy: Vec<u8>,
}

impl Columns {
    /// Of the threads of all workers, how busy they are, slot by slot.
    fn of(busy: &[u8], threads: usize) -> Self {
        let mut known: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
        let mut ranks = Vec::new();
        let of: Vec<usize> = (0..threads)
            .map(|rank| {
                let column: Vec<u8> = busy.iter().skip(rank).step_by(threads).copied().collect();
                let next = known.len();
                *known.entry(column).or_insert_with(|| {
                    ranks.push(rank);
                    next
                })
            })
            .collect();
        let workers = busy.chunks(threads);
        let first_of_each =
            |worker: &[u8]| -> Vec<u8> { ranks.iter().map(|&rank| worker[rank]).collect() };
        Self {
            count: ranks.len(),
            busy: workers.flat_map(first_of_each).collect(),
            of,
        }
    }
}

/// The rows of one mapping and which worker has each. A place is a row's cpus in one column.
struct Exchange {
    /// Places that share cores with each place, itself included, and how often.
    shared: Vec<Vec<(usize, u64)>>,
    /// Cost of each place without those, by how busy its threads are; empty if there is none.
    alone: Vec<Vec<u64>>,
    columns: Columns,
    worker_in: Vec<usize>,
}

impl Exchange {
    fn busy_in(&self, place: usize) -> u8 {
        let (row, column) = (place / self.columns.count, place % self.columns.count);
        self.columns.busy[self.worker_in[row] * self.columns.count + column]
    }

    /// Exchanges rows while that gains; true if any was exchanged.
    fn run(&mut self, gain_min: i64, is_allowed: impl Fn(usize, usize) -> bool) -> bool {
        let mut changed = false;
        // bound: passes
        for _ in 0..ORDER_PASSES_MAX {
            let mut is_better = false;
            for a in 0..self.worker_in.len() {
                for b in a + 1..self.worker_in.len() {
                    is_better |= is_allowed(a, b) && self.exchange_if_better(a, b, gain_min);
                }
            }
            if !is_better {
                break;
            }
            changed = true;
        }
        changed
    }

    /// Exchanges the workers of two rows if that gains enough.
    fn exchange_if_better(&mut self, a: usize, b: usize, gain_min: i64) -> bool {
        let before = self.cost_of_both(a, b);
        if before < gain_min {
            return false;
        }
        self.worker_in.swap(a, b);
        let is_better = before - self.cost_of_both(a, b) >= gain_min;
        if !is_better {
            self.worker_in.swap(a, b);
        }
        is_better
    }

    /// What two rows cost, each pair of places once.
    fn cost_of_both(&self, a: usize, b: usize) -> i64 {
        let count = self.columns.count;
        let places = |row: usize| row * count..(row + 1) * count;
        let mut cost = 0;
        for place in places(a).chain(places(b)) {
            let busy = self.busy_in(place);
            cost += self.alone[place].get(usize::from(busy)).unwrap_or(&0);
            for &(other, times) in &self.shared[place] {
                let is_inside = places(a).contains(&other) || places(b).contains(&other);
                if !is_inside || other >= place {
                    cost += times * u64::from(busy.min(self.busy_in(other)));
                }
            }
        }
        cost as i64
    }
}
