//! Which worker has which row of cpus.
//!
//! **Problem.** Rows of cpus are interchangeable between the workers of a deployment: no rule and no
//! distance tells them apart. Busy workers should have the rows on which they contend least, as
//! [`contention`](albacore_mapping::contention) counts it. **Approach.** Exchange the rows of two
//! workers as long as an exchange lowers contention by what it must gain: a local search of a
//! quadratic assignment problem. Only rows that share a core with others cost anything there, so an
//! exchange is judged in as many steps as its two rows have neighbors. **Proof sketch.** Rows stay
//! what they are, so rules, objective and bound do; each exchange lowers a sum that is never
//! negative. **Limits.** No exchange of two is left that gains, which is not always the least
//! contention: see the comparison with all orders in the tests. Two rows are weighed by how busy
//! their workers are on average, not thread by thread.

use std::collections::BTreeMap;

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
    let busy = busy_by_dispatch_order((mapping.cpus.len() / threads) as u16);
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
        .map(|of| busy_by_dispatch_order(of.workers))
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

/// Mappings on one machine with how busy their workers are, and what else runs there.
#[derive(Debug)]
pub struct WorkerOrder<'a> {
    topology: &'a Topology,
    placed: Vec<BusyMapping<'a>>,
    /// Threads on each core: the number of their row among those of all mappings, and their cpu.
    by_core: Vec<Vec<(usize, CpuId)>>,
    core_of: BTreeMap<CpuId, usize>,
    /// How busy the worker of each row is.
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
            let threads = usize::from(of.mapping.threads).max(1);
            for (worker, row) in of.mapping.cpus.chunks(threads).enumerate() {
                for &id in row {
                    if let Some(&core) = core_of.get(&id) {
                        by_core[core].push((busy.len(), id));
                    }
                }
                busy.push(of.busy.get(worker).copied().unwrap_or(0).min(BUSY_MAX));
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
        let threads = usize::from(mapping.threads).max(1);
        let rows: Vec<&[CpuId]> = mapping.cpus.chunks(threads).collect();
        let first: usize = self.placed[..which]
            .iter()
            .map(|of| of.mapping.cpus.len() / usize::from(of.mapping.threads).max(1))
            .sum();
        let own = first..first + rows.len();
        let is_even = self.busy[own.clone()]
            .windows(2)
            .all(|two| two[0] == two[1]);
        if is_even {
            return None;
        }
        let mut exchange = self.exchange(&rows, first);
        let nodes = |row: &[CpuId]| {
            let numa = |&id: &CpuId| self.topology.cpu(id).map(|cpu| cpu.numa);
            row.iter()
                .map(numa)
                .collect::<std::collections::BTreeSet<_>>()
        };
        let nodes: Vec<_> = match rule.stays_in_nodes {
            true => rows.iter().map(|row| nodes(row)).collect(),
            false => Vec::new(),
        };
        let is_allowed = |a: usize, b: usize| !rule.stays_in_nodes || nodes[a] == nodes[b];
        if !exchange.run(rule.gain_min.max(1), is_allowed) {
            return None;
        }
        let mut cpus = Vec::with_capacity(mapping.cpus.len());
        let mut row_of = vec![0; rows.len()];
        for (row, &worker) in exchange.worker_in.iter().enumerate() {
            row_of[worker] = row;
        }
        row_of.iter().for_each(|&row| cpus.extend(rows[row]));
        let busy: Vec<u8> = (0..rows.len()).map(|row| exchange.busy_in(row)).collect();
        self.busy[own].copy_from_slice(&busy);
        Some(Mapping {
            threads: mapping.threads,
            cpus,
        })
    }

    /// What each row of one mapping, whose first row has the number `first`, costs a worker.
    fn exchange(&self, rows: &[&[CpuId]], first: usize) -> Exchange {
        let count = rows.len();
        let mut shared = vec![BTreeMap::new(); count];
        let mut alone = Vec::with_capacity(count);
        for (index, row) in rows.iter().enumerate() {
            let mut rivals = [0u64; BUSY_MAX as usize + 1];
            let (mut missing, mut own) = (0u64, 0i64);
            for &id in *row {
                let Some(&core) = self.core_of.get(&id) else {
                    continue;
                };
                let capacity = self
                    .topology
                    .cpu(id)
                    .map_or(CAPACITY_MAX, |cpu| cpu.capacity);
                missing += u64::from(CAPACITY_MAX.saturating_sub(capacity));
                own -= 2; // the thread itself, on its core and on its cpu
                for &(other, other_id) in &self.by_core[core] {
                    let weight = 1 + u64::from(other_id == id);
                    match other.checked_sub(first).filter(|&other| other < count) {
                        Some(other) if other != index => {
                            *shared[index].entry(other).or_insert(0) += weight;
                        }
                        Some(_) => own += weight as i64,
                        None => rivals[usize::from(self.busy[other])] += weight,
                    }
                }
                for &(other_id, other_core, load) in &self.background {
                    if other_core == core {
                        let load = load.min(BUSY_MAX.into()) as usize;
                        rivals[load] += 1 + u64::from(other_id == id);
                    }
                }
            }
            // each pair was met from both of its threads
            rivals[usize::from(BUSY_MAX)] += own as u64 / 2;
            alone.push(cost_by_busy(&rivals, missing));
        }
        Exchange {
            shared: shared
                .into_iter()
                .map(|of| of.into_iter().collect())
                .collect(),
            alone,
            busy: self.busy[first..first + count].to_vec(),
            worker_in: (0..count).collect(),
        }
    }
}

/// What a row costs a worker that is busy for 0 to 100 percent, with rivals by how busy they are,
/// and so much capacity missing. A worker's own threads are rivals that are busy whenever it is.
fn cost_by_busy(rivals: &[u64; BUSY_MAX as usize + 1], missing: u64) -> Vec<u64> {
    let with = |busy: u64| {
        let of = |(rival, &count): (usize, &u64)| count * busy.min(rival as u64);
        let contended: u64 = rivals.iter().enumerate().map(of).sum();
        contended + busy * missing / u64::from(CAPACITY_MAX)
    };
    (0..=u64::from(BUSY_MAX)).map(with).collect()
}

/// The rows of one mapping and which worker has each.
struct Exchange {
    /// Other rows that share cores with each row, and how often.
    shared: Vec<Vec<(usize, u64)>>,
    /// Cost of each row without those, by how busy its worker is.
    alone: Vec<Vec<u64>>,
    /// By worker.
    busy: Vec<u8>,
    worker_in: Vec<usize>,
}

impl Exchange {
    fn busy_in(&self, row: usize) -> u8 {
        self.busy[self.worker_in[row]]
    }

    /// Exchanges rows while that gains; true if any was exchanged.
    fn run(&mut self, gain_min: u64, is_allowed: impl Fn(usize, usize) -> bool) -> bool {
        let mut changed = false;
        // bound: passes
        for _ in 0..ORDER_PASSES_MAX {
            let mut is_better = false;
            for a in 0..self.worker_in.len() {
                for b in a + 1..self.worker_in.len() {
                    if is_allowed(a, b) && self.gain(a, b) >= gain_min as i64 {
                        self.worker_in.swap(a, b);
                        is_better = true;
                    }
                }
            }
            if !is_better {
                break;
            }
            changed = true;
        }
        changed
    }

    /// What contention falls by if the workers of two rows change places.
    fn gain(&self, a: usize, b: usize) -> i64 {
        let (in_a, in_b) = (self.busy_in(a), self.busy_in(b));
        if in_a == in_b {
            return 0;
        }
        let alone = |row: usize, busy: u8| self.alone[row][usize::from(busy)] as i64;
        let with = |row: usize, except: usize, busy: u8| -> i64 {
            let others = self.shared[row]
                .iter()
                .filter(|&&(other, _)| other != except);
            let cost =
                |&(other, pairs): &(usize, u64)| pairs * u64::from(busy.min(self.busy_in(other)));
            others.map(cost).sum::<u64>() as i64
        };
        let cost = |busy_a: u8, busy_b: u8| {
            alone(a, busy_a) + alone(b, busy_b) + with(a, b, busy_a) + with(b, a, busy_b)
        };
        cost(in_a, in_b) - cost(in_b, in_a)
    }
}
