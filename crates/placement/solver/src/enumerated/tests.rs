//! Every tree of cpus, cores, L2 and L3 up to a size, in one or two NUMA nodes, each once up to
//! renaming; and every problem on it, with the best answer found by enumeration of all mappings.
#![allow(dead_code, unreachable_pub, clippy::expect_used)] // each test binary uses a part of it

use albacore_solver::{Mapping, Mode, Problem, check};
use albacore_topology::{CAPACITY_MAX, Cpu, CpuId, Distances, Topology};

/// The rules in the order in which the solver compares relaxations.
pub const RULES: [&str; 5] = ["8+", "mains-per-core", "fast-mains", "12", "12+"];

/// All multisets of `parts` (size, part) with the total size `left`, parts in descending order.
fn multisets<T: Clone>(parts: &[(usize, T)], left: usize) -> Vec<Vec<T>> {
    if left == 0 {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (first, (size, part)) in parts
        .iter()
        .enumerate()
        .filter(|(_, (size, _))| *size <= left)
    {
        for mut rest in multisets(&parts[first..], left - size) {
            rest.insert(0, part.clone());
            all.push(rest);
        }
    }
    all
}

/// All multisets of such parts with a total size of 1 to `most` cpus.
fn made_of<T: Clone>(parts: &[(usize, T)], most: usize) -> Vec<(usize, Vec<T>)> {
    let sized = |size: usize| {
        multisets(parts, size)
            .into_iter()
            .map(move |made| (size, made))
    };
    (1..=most).rev().flat_map(sized).collect()
}

/// Every topology with 1 to `most` cpus: 1, 4, 10, 30, 75, 206 of them with 1, 2, 3... cpus.
pub fn every_topology(most: usize) -> Vec<Topology> {
    let cores: Vec<(usize, usize)> = (1..=most).rev().map(|size| (size, size)).collect();
    let l2s = made_of(&cores, most);
    let l3s = made_of(&l2s, most);
    let machines = made_of(&l3s, most);
    machines
        .iter()
        .map(|(_, machine)| topology(machine))
        .collect()
}

/// Every topology with 2 to `most` cpus in two NUMA nodes of one package.
pub fn every_topology_of_two_nodes(most: usize) -> Vec<Topology> {
    let cores: Vec<(usize, usize)> = (1..=most).rev().map(|size| (size, size)).collect();
    let nodes = made_of(&made_of(&made_of(&cores, most), most), most);
    let machines = made_of(&nodes, most);
    let two = machines.iter().filter(|(_, nodes)| nodes.len() == 2);
    two.map(|(_, nodes)| of_nodes(nodes)).collect()
}

/// A topology from the number of cpus of each core, nested by L3 and L2.
fn topology(machine: &[Vec<Vec<usize>>]) -> Topology {
    of_nodes(&[machine.to_vec()])
}

/// A topology from the number of cpus of each core, nested by NUMA node, L3 and L2.
fn of_nodes(nodes: &[Vec<Vec<Vec<usize>>>]) -> Topology {
    let mut cpus = Vec::new();
    let (mut core, mut l2, mut l3) = (0, 0, 0);
    for (node, l3s) in (0..).zip(nodes) {
        for l2s in l3s {
            for cores in l2s {
                for &width in cores {
                    for _ in 0..width {
                        cpus.push(Cpu {
                            id: CpuId(cpus.len() as u16),
                            core,
                            l2,
                            l3,
                            numa: node,
                            package: 0,
                            capacity: CAPACITY_MAX,
                        });
                    }
                    core += 1;
                }
                l2 += 1;
            }
            l3 += 1;
        }
    }
    Topology::new(cpus).expect("nested by construction")
}

/// Every W and T with W x T <= `most`.
pub fn every_size(most: u16) -> Vec<(u16, u16)> {
    let threads = |workers: u16| (1..=most / workers).map(move |threads| (workers, threads));
    (1..=most).flat_map(threads).collect()
}

/// A problem without a mapping in force.
pub fn problem(topology: &Topology, (workers, threads): (u16, u16), mode: Mode) -> Problem {
    Problem {
        workers,
        threads,
        mode,
        topology: topology.clone(),
        distances: Distances::default(),
        current: None,
    }
}

/// Every topology up to `most` cpus with every size up to `slots` threads.
pub fn every_problem(most: usize, slots: u16, mode: Mode) -> Vec<Problem> {
    on_each(&every_topology(most), slots, mode)
}

/// Every topology of two nodes up to `most` cpus with every size up to `slots` threads.
pub fn every_problem_of_two_nodes(most: usize, slots: u16, mode: Mode) -> Vec<Problem> {
    on_each(&every_topology_of_two_nodes(most), slots, mode)
}

/// Each topology with every size up to `slots` threads.
pub fn on_each(topologies: &[Topology], slots: u16, mode: Mode) -> Vec<Problem> {
    let sizes = every_size(slots);
    let on = |topology: &Topology| -> Vec<Problem> {
        sizes
            .iter()
            .map(|&size| problem(topology, size, mode))
            .collect()
    };
    topologies.iter().flat_map(on).collect()
}

/// The smallest breaches of any mapping that keeps (1), (2), (3) and (8), lexicographically in the
/// order of [`RULES`], and the best objective with them, by enumeration. Workers are
/// interchangeable, and so are peers: of mappings that differ only in their names, one is
/// evaluated.
pub fn best_of_all(problem: &Problem) -> ([u32; 5], i64) {
    let mut all = All {
        problem,
        cpus: Vec::new(),
        best: None,
    };
    all.place();
    let (breaches, value) = all.best.expect("some mapping keeps (1), (2), (3) and (8)");
    (breaches, -value)
}

struct All<'a> {
    problem: &'a Problem,
    /// Indices of the cpus of the threads placed so far, worker by worker.
    cpus: Vec<usize>,
    /// Breaches, and the negated objective: less is better.
    best: Option<([u32; 5], i64)>,
}

impl All<'_> {
    /// Branches on the cpu of the next thread.
    fn place(&mut self) {
        let (workers, threads) = (
            usize::from(self.problem.workers),
            usize::from(self.problem.threads),
        );
        if self.cpus.len() == workers * threads {
            self.judge();
            return;
        }
        for cpu in 0..self.problem.topology.cpus().len() {
            self.cpus.push(cpu);
            if self.may_lead_on() {
                self.place();
            }
            self.cpus.pop();
        }
    }

    /// Whether the last thread keeps the upper limits of (2), (3), (8) and the order that breaks
    /// symmetry.
    fn may_lead_on(&self) -> bool {
        let (workers, threads) = (
            usize::from(self.problem.workers),
            usize::from(self.problem.threads),
        );
        let all = self.problem.topology.cpus().len();
        let (at, last) = (self.cpus.len() - 1, self.cpus[self.cpus.len() - 1]);
        let (worker, rank) = (at / threads, at % threads);
        let on_cpu = |at: &usize| self.cpus[*at] == last;
        let equal_ranks = (rank..=at).step_by(threads).filter(on_cpu).count();
        let own = (worker * threads..=at).filter(on_cpu).count();
        let volume = (0..=at).filter(on_cpu).count();
        // where cores differ in speed, only (2) and (3) limit a cpu
        let most = match self.problem.topology.is_uniform() {
            true => (workers * threads).div_ceil(all),
            false => workers * threads,
        };
        // symmetry breaking: the peers of the first worker are in ascending order, and so are mains
        let named = (worker > 0 || rank < 2 || self.cpus[at - 1] <= last)
            && (worker == 0 || rank > 0 || self.cpus[at - threads] <= last);
        named
            && equal_ranks <= workers.div_ceil(all)
            && own <= threads.div_ceil(all)
            && volume <= most
    }

    fn judge(&mut self) {
        let ids = self.problem.topology.cpus();
        let mapping = Mapping {
            threads: self.problem.threads,
            cpus: self.cpus.iter().map(|&cpu| ids[cpu].id).collect(),
        };
        let report = check(self.problem, &mapping).expect("all threads are placed");
        let amount = |rule: &str| {
            let found = report.relaxed.iter().find(|r| r.rule == rule);
            found.map_or(0, |relaxed| relaxed.amount)
        };
        if ["2", "3", "8"].map(amount) == [0; 3] {
            let this = (RULES.map(amount), -report.objective);
            if self.best.as_ref().is_none_or(|best| this < *best) {
                self.best = Some(this);
            }
        }
    }
}
