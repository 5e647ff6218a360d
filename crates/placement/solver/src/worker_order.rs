//! Assigns the rows of cpus of a deployment to its workers.
//!
//! **Problem.** Rows of cpus are interchangeable between the workers of a deployment: no rule and
//! no distance distinguishes them. Busy workers should have the rows with least contention, as
//! counted by [`contention`](albacore_mapping::contention). **Approach.** Exchange the rows of two
//! workers as long as an exchange lowers contention by the required minimum: a local search for a
//! quadratic assignment problem. Ranks with equal utilization in every worker are one column, so a
//! row costs as many steps as it has columns and neighbors: one column for a new deployment, two if
//! mains and peers differ. **Proof sketch.** Rows do not change, so rules, objective and bound do
//! not change either; each exchange lowers a nonnegative sum. **Limits.** A local optimum for
//! exchanges of two workers, which is not always the least contention: the tests compare with all
//! orders.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use albacore_mapping::{MappingUtilization, UTILIZATION_MAX, dispatch_order_utilization};
use albacore_topology::{CAPACITY_MAX, Cpu, CpuId, Topology};

use crate::levels::{CORE, number_domains};
use crate::limits::ORDER_PASSES_MAX;
use crate::{JointProblem, Mapping};

/// Condition for an exchange of the rows of two workers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExchangeRule {
    /// Minimum reduction of contention by an exchange, percent of a cpu; at least 1.
    pub gain_min: u64,
    /// Exchanges only rows in the same NUMA nodes, because memory does not move.
    pub stays_in_nodes: bool,
}

impl ExchangeRule {
    /// Nothing runs yet: every gain counts.
    pub const FREE: Self = Self {
        gain_min: 1,
        stays_in_nodes: false,
    };
}

/// Orders the rows of a new mapping such that workers of low number, which dispatchers prefer, have
/// least contention.
pub(crate) fn in_dispatch_order(topology: &Topology, mapping: Mapping) -> Mapping {
    let threads = usize::from(mapping.threads).max(1);
    let busy = dispatch_order_utilization((mapping.cpus.len() / threads) as u16, mapping.threads);
    let placed = MappingUtilization {
        mapping: &mapping,
        busy: &busy,
    };
    let mut order = WorkerOrder::new(topology, vec![placed], &BTreeMap::new());
    let ordered = order.order(0, ExchangeRule::FREE);
    drop(order);
    ordered.unwrap_or(mapping)
}

/// Orders the rows of new mappings, those without one in force, in favor of workers of low number.
pub(crate) fn order_new(problem: &JointProblem, mappings: &mut [Mapping]) {
    if problem.deployments.iter().all(|of| of.current.is_some()) {
        return;
    }
    let busy: Vec<Vec<u8>> = problem
        .deployments
        .iter()
        .map(|of| dispatch_order_utilization(of.workers, of.threads))
        .collect();
    let placed = mappings.iter().zip(&busy);
    let placed = placed.map(|(mapping, busy)| MappingUtilization { mapping, busy });
    let mut background = BTreeMap::new();
    for obstacle in &problem.obstacles {
        *background.entry(obstacle.cpu).or_insert(0) +=
            obstacle.weight * u32::from(UTILIZATION_MAX);
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

/// Mappings on one machine with the utilization of their threads, and other load.
#[derive(Debug)]
pub struct WorkerOrder<'a> {
    placed: Vec<MappingUtilization<'a>>,
    cpus: &'a [Cpu],
    /// The core of each position.
    cores: Vec<u16>,
    /// Utilization of the thread of each slot, mapping by mapping.
    busy: Vec<u8>,
    on_core: Vec<Loads>,
    on_cpu: Vec<Loads>,
}

/// Number of threads by utilization.
type Loads = BTreeMap<u8, u64>;

impl<'a> WorkerOrder<'a> {
    /// Threads on cpus that the machine does not have are ignored.
    pub fn new(
        topology: &'a Topology,
        placed: Vec<MappingUtilization<'a>>,
        background: &BTreeMap<CpuId, u32>,
    ) -> Self {
        let cpus = topology.cpus();
        let (cores, count) = number_domains(cpus, CORE);
        let mut order = Self {
            placed,
            cpus,
            cores,
            busy: Vec::new(),
            on_core: vec![Loads::new(); count],
            on_cpu: vec![Loads::new(); cpus.len()],
        };
        for &MappingUtilization { mapping, busy } in &order.placed {
            let listed = busy.iter().copied().chain(std::iter::repeat(0));
            let listed = listed.map(|percent| percent.min(UTILIZATION_MAX));
            order.busy.extend(listed.take(mapping.cpus.len()));
        }
        for which in 0..order.placed.len() {
            order.count(which, true);
        }
        for (&id, &load) in background {
            if let Some(position) = order.position(id) {
                let load = load.min(UTILIZATION_MAX.into()) as u8;
                let core = usize::from(order.cores[position]);
                *order.on_core[core].entry(load).or_insert(0) += 1;
                *order.on_cpu[position].entry(load).or_insert(0) += 1;
            }
        }
        order
    }

    fn position(&self, id: CpuId) -> Option<usize> {
        self.cpus.binary_search_by_key(&id, |cpu| cpu.id).ok()
    }

    /// The slots of a mapping among those of all mappings.
    fn slots(&self, which: usize) -> Range<usize> {
        let before = self.placed[..which].iter();
        let first: usize = before.map(|of| of.mapping.cpus.len()).sum();
        first..first + self.placed[which].mapping.cpus.len()
    }

    /// Adds the threads of a mapping to the loads of cores and cpus, or removes them.
    fn count(&mut self, which: usize, is_added: bool) {
        let mapping = self.placed[which].mapping;
        for (slot, &id) in self.slots(which).zip(&mapping.cpus) {
            let Some(position) = self.position(id) else {
                continue;
            };
            let core = usize::from(self.cores[position]);
            for loads in [&mut self.on_core[core], &mut self.on_cpu[position]] {
                let threads = loads.entry(self.busy[slot]).or_insert(0);
                match is_added {
                    true => *threads += 1,
                    false => *threads -= 1,
                }
            }
        }
    }

    /// The mapping of index `which` with its rows reassigned to workers, if that gains; later calls
    /// use the new order.
    pub fn order(&mut self, which: usize, rule: ExchangeRule) -> Option<Mapping> {
        let mapping = self.placed.get(which)?.mapping;
        let own = self.slots(which);
        let threads = usize::from(mapping.threads).max(1);
        let columns = RankGroups::of(&self.busy[own.clone()], threads);
        let mut workers = columns.busy.chunks(columns.count);
        let one = workers.next()?;
        if workers.all(|other| other == one) {
            return None;
        }
        let rows: Vec<&[CpuId]> = mapping.cpus.chunks(threads).collect();
        let nodes = |row: &&[CpuId]| -> BTreeSet<Option<u32>> {
            let numa = |&id: &CpuId| Some(self.cpus[self.position(id)?].numa);
            row.iter().map(numa).collect()
        };
        let nodes: Vec<_> = match rule.stays_in_nodes {
            true => rows.iter().map(nodes).collect(),
            false => vec![BTreeSet::new(); rows.len()],
        };
        self.count(which, false);
        let mut exchange = self.exchange(&rows, columns);
        let gain_min = rule.gain_min.max(1) as i64;
        let is_other = exchange.run(gain_min, |a, b| nodes[a] == nodes[b]);
        let mut cpus = mapping.cpus.clone();
        let listed = self.busy[own.clone()].to_vec();
        for (row, &worker) in exchange.worker_in.iter().enumerate() {
            cpus[worker * threads..][..threads].copy_from_slice(rows[row]);
            let busy = &listed[worker * threads..][..threads];
            self.busy[own.start + row * threads..][..threads].copy_from_slice(busy);
        }
        self.count(which, true);
        let threads = mapping.threads;
        is_other.then_some(Mapping { threads, cpus })
    }

    /// Costs of the rows of one mapping for its workers; the loads must not contain its own
    /// threads.
    fn exchange(&self, rows: &[&[CpuId]], columns: RankGroups) -> Exchange {
        let of_row = |row: &&[CpuId]| row.iter().map(|&id| self.position(id)).collect();
        let positions: Vec<Vec<Option<usize>>> = rows.iter().map(of_row).collect();
        // own threads on each core, as pairs of place and position
        let mut own = vec![Vec::new(); self.on_core.len()];
        for (row, positions) in positions.iter().enumerate() {
            for (rank, &position) in positions.iter().enumerate() {
                if let Some(position) = position {
                    let place = row * columns.count + columns.of[rank];
                    own[usize::from(self.cores[position])].push((place, position));
                }
            }
        }
        let places = rows.len() * columns.count;
        let mut times = vec![0u64; places];
        let (mut alone, mut shared) = (Vec::new(), Vec::new());
        for place in 0..places {
            let (row, column) = (place / columns.count, place % columns.count);
            let (mut rivals, mut missing) = (Loads::new(), 0);
            let mut met = Vec::new();
            let here = positions[row].iter().zip(&columns.of);
            for (&position, _) in here.filter(|&(_, &of)| of == column) {
                let Some(position) = position else { continue };
                let core = usize::from(self.cores[position]);
                missing += u64::from(CAPACITY_MAX.saturating_sub(self.cpus[position].capacity));
                for loads in [&self.on_core[core], &self.on_cpu[position]] {
                    for (&load, &threads) in loads {
                        *rivals.entry(load).or_insert(0) += threads;
                    }
                }
                for &(other, other_position) in &own[core] {
                    if times[other] == 0 {
                        met.push(other);
                    }
                    times[other] += 1 + u64::from(other_position == position);
                }
                times[place] -= 2; // the thread itself, on its core and its cpu
            }
            alone.push(cost_by_busy(&rivals, missing, &columns.busy));
            met.sort_unstable();
            met.dedup();
            let of = |other: usize| {
                let times = std::mem::take(&mut times[other]);
                // pairs within a place were counted from both threads
                (other, if other == place { times / 2 } else { times })
            };
            let met = met.into_iter().map(of);
            shared.push(met.filter(|&(_, times)| times > 0).collect());
        }
        Exchange {
            alone,
            shared,
            columns,
            worker_in: (0..rows.len()).collect(),
        }
    }
}

/// Cost of a place for threads of each utilization, given rivals of other deployments and missing
/// capacity; indexed by percent, empty if it is always 0.
fn cost_by_busy(rivals: &Loads, missing: u64, busy: &[u8]) -> Vec<u64> {
    if missing == 0 && rivals.values().all(|&threads| threads == 0) {
        return Vec::new();
    }
    let mut costs = vec![0; usize::from(UTILIZATION_MAX) + 1];
    for &busy in busy.iter().collect::<BTreeSet<_>>() {
        let of = |(&rival, &threads): (&u8, &u64)| threads * u64::from(busy.min(rival));
        let contended: u64 = rivals.iter().map(of).sum();
        costs[usize::from(busy)] = contended + u64::from(busy) * missing / u64::from(CAPACITY_MAX);
    }
    costs
}

/// Ranks grouped by equal utilization in every worker.
struct RankGroups {
    /// The column of each rank.
    of: Vec<usize>,
    count: usize,
    /// Utilization of the threads of each worker in each column, worker by worker.
    busy: Vec<u8>,
}

impl RankGroups {
    /// Groups ranks, given the utilization of the threads of all workers, slot by slot.
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

/// The rows of one mapping and the worker of each row. A place is a row's cpus in one column.
struct Exchange {
    /// Places that share cores with each place, itself included, and how often.
    shared: Vec<Vec<(usize, u64)>>,
    /// Cost of each place without those, indexed by utilization of its threads; empty if there is
    /// none.
    alone: Vec<Vec<u64>>,
    columns: RankGroups,
    worker_in: Vec<usize>,
}

impl Exchange {
    fn busy_in(&self, place: usize) -> u8 {
        let (row, column) = (place / self.columns.count, place % self.columns.count);
        self.columns.busy[self.worker_in[row] * self.columns.count + column]
    }

    /// Exchanges rows while that gains; returns whether any were exchanged.
    fn run(&mut self, gain_min: i64, is_allowed: impl Fn(usize, usize) -> bool) -> bool {
        let mut changed = false;
        // bound: number of passes
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

    /// Cost of two rows, each pair of places counted once.
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
