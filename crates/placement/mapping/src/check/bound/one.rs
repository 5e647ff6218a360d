//! The bound that follows from counts alone, recomputed from the problem so that the checker can
//! confirm it.
//!
//! **Problem.** A certificate must be verifiable without trusting the solver. **Approach.** From
//! the rules and the admitted relaxations, bound the mains, one worker alone, and all workers in
//! the domains of one level. Distances are taken pair by pair or level by level, without the
//! solver's tree order and tables. **Proof sketch.** Distances form a tree, so greedily placing
//! each item where it is farthest from those placed maximizes the sum; by convexity, pairs of
//! threads of one worker within a domain are most if workers have shares as large as possible, and
//! fewest if the shares are even; a sum of bounds bounds the sum. **Limits.** Mappings that relax a
//! rule further than admitted are not covered. Bounds from Lagrangian relaxation or from a search
//! are tighter than these counts and are not recomputed here.

use std::collections::BTreeMap;

use albacore_topology::Cpu;

use super::{DomainKey, TreeLevel, farthest, fill, levels, pairs};

use crate::{Mode, Problem, Relaxation, relaxed_by};

/// Upper bound of the objective of all mappings that relax no rule beyond `relaxed`. Where cores
/// differ in speed, of all mappings: see [`joint_counting_bound`](crate::joint_counting_bound).
pub fn counting_bound(problem: &Problem, relaxed: &[Relaxation]) -> i64 {
    if !problem.topology.is_uniform() {
        return any_mapping(problem);
    }
    let rules = RelaxedRules::of(problem, relaxed);
    let mains = rules.spread(rules.workers, (rules.mains_on_cpu, rules.mains_on_core));
    let pairs = rules.workers * pairs(rules.threads);
    let farthest = i64::from(problem.distances.machine) * pairs;
    let levels = rules.levels();
    mains
        + match problem.mode {
            Mode::Scatter => {
                let alone = rules.spread(rules.threads, (rules.on_cpu, rules.core.1));
                let together: i64 = levels.iter().map(|level| level.least(&rules)).sum();
                (rules.workers * alone).min(farthest - together)
            }
            Mode::Compact => levels.iter().map(|level| level.most(&rules)).sum::<i64>() - farthest,
        }
}

/// Pairs that should be far apart have the greatest distance, all others the least.
fn any_mapping(problem: &Problem) -> i64 {
    let (far, near) = (problem.distances.machine, problem.distances.cpu);
    let within = i64::from(problem.workers) * pairs(problem.threads.into());
    i64::from(far) * pairs(problem.workers.into())
        + match problem.mode {
            Mode::Scatter => i64::from(far) * within,
            Mode::Compact => -i64::from(near) * within,
        }
}

/// Right-hand sides of the rules after the relaxations.
struct RelaxedRules<'a> {
    problem: &'a Problem,
    workers: i64,
    threads: i64,
    /// Most threads of one worker on a cpu.
    on_cpu: i64,
    /// Fewest and most threads of a cpu and of a core.
    cpu: (i64, i64),
    core: (i64, i64),
    /// Threads of a core that is full by rule (12+).
    full_core: i64,
    mains_on_cpu: i64,
    mains_on_core: i64,
    /// Most cores that are full and hold a main.
    full_main_cores: i64,
}

impl<'a> RelaxedRules<'a> {
    fn of(problem: &'a Problem, relaxed: &[Relaxation]) -> Self {
        let more = |rule: &str| i64::from(relaxed_by(relaxed, rule));
        let (workers, threads) = (i64::from(problem.workers), i64::from(problem.threads));
        let cpus = problem.topology.cpus().len() as i64;
        let cores = problem.topology.core_count() as i64;
        let slots = workers * threads;
        let up = |a: i64, b: i64| (a + b - 1) / b;
        let rest = slots % cores;
        let binds = rest > 0 && slots > cores && workers <= cores;
        let ranks = up(workers, cpus) + more("2");
        let cpu = (
            (slots / cpus - more("8")).max(0),
            up(slots, cpus) + more("8"),
        );
        Self {
            problem,
            workers,
            threads,
            on_cpu: up(threads, cpus) + more("3"),
            cpu,
            core: (
                (slots / cores - more("8+")).max(0),
                up(slots, cores) + more("8+"),
            ),
            full_core: up(slots, cores),
            mains_on_cpu: ranks.min(cpu.1),
            mains_on_core: up(workers, cores) + more("mains-per-core"),
            full_main_cores: if binds {
                (workers - cores + rest).max(0) + more("12+")
            } else {
                i64::MAX
            },
        }
    }

    /// Greatest sum of distances of `items` items.
    fn spread(&self, items: i64, limits: (i64, i64)) -> i64 {
        let cpus: Vec<&Cpu> = self.problem.topology.cpus().iter().collect();
        farthest(&cpus, &self.problem.distances, items, limits)
    }

    /// The levels with a positive gain.
    fn levels(&self) -> Vec<LevelCapacities> {
        let levels = levels(&self.problem.distances).into_iter().enumerate();
        let of_level = |(at, TreeLevel { gain, key }): (usize, TreeLevel)| LevelCapacities {
            gain,
            capacities: match at {
                0 => self.cpu_rooms(),
                _ => self.capacities(key),
            },
            cores: at > 0 && self.is_cores(key),
        };
        levels
            .filter(|(_, level)| level.gain > 0)
            .map(of_level)
            .collect()
    }

    fn is_cores(&self, key: DomainKey) -> bool {
        let cpus = self.problem.topology.cpus();
        let count: std::collections::BTreeSet<u32> = cpus.iter().map(key).collect();
        count.len() == self.problem.topology.core_count()
    }

    fn cpu_rooms(&self) -> Vec<ThreadLimits> {
        let capacity = ThreadLimits {
            least: self.cpu.0,
            most: self.cpu.1,
            of_worker: self.on_cpu.min(self.cpu.1).min(self.threads),
        };
        vec![capacity; self.problem.topology.cpus().len()]
    }

    /// Capacity of each domain: the sum over its cores.
    fn capacities(&self, key: DomainKey) -> Vec<ThreadLimits> {
        let mut cores: BTreeMap<u32, (u32, i64)> = BTreeMap::new();
        for cpu in self.problem.topology.cpus() {
            cores.entry(cpu.core).or_insert((key(cpu), 0)).1 += 1;
        }
        let mut capacities: BTreeMap<u32, ThreadLimits> = BTreeMap::new();
        for (domain, cpus) in cores.into_values() {
            let most = (cpus * self.cpu.1).min(self.core.1);
            let capacity = capacities.entry(domain).or_default();
            capacity.least += (cpus * self.cpu.0).max(self.core.0.min(most));
            capacity.most += most;
            capacity.of_worker += (cpus * self.on_cpu).min(most);
        }
        let mut capacities: Vec<ThreadLimits> = capacities.into_values().collect();
        for capacity in &mut capacities {
            capacity.of_worker = capacity.of_worker.min(self.threads);
        }
        capacities.sort_by_key(|capacity| std::cmp::Reverse(capacity.of_worker));
        capacities
    }
}

/// Limits on the threads in a domain: fewest, most, and most of one worker.
#[derive(Clone, Copy, Default)]
struct ThreadLimits {
    least: i64,
    most: i64,
    of_worker: i64,
}

/// A level with the capacities of its domains, in descending order of `of_worker`.
struct LevelCapacities {
    gain: i64,
    capacities: Vec<ThreadLimits>,
    cores: bool,
}

impl LevelCapacities {
    /// Least closeness: volumes as even as allowed, and within each an even share per worker.
    fn least(&self, rules: &RelaxedRules<'_>) -> i64 {
        let mut volumes: Vec<i64> = self
            .capacities
            .iter()
            .map(|capacity| capacity.least)
            .collect();
        let placed: i64 = volumes.iter().sum();
        for _ in placed..rules.workers * rules.threads {
            let open = |&at: &usize| volumes[at] < self.capacities[at].most;
            let next = (0..volumes.len()).filter(open);
            if let Some(at) = next.min_by_key(|&at| volumes[at] / rules.workers) {
                volumes[at] += 1;
            }
        }
        let even = |n: i64| {
            let (each, more) = (n / rules.workers, n % rules.workers);
            more * pairs(each + 1) + (rules.workers - more) * pairs(each)
        };
        self.gain * volumes.into_iter().map(even).sum::<i64>()
    }

    /// Most closeness: the smaller of what workers can reach alone and what volumes allow for all.
    fn most(&self, rules: &RelaxedRules<'_>) -> i64 {
        self.gain * self.bound_alone(rules).min(self.bound_together(rules))
    }

    fn bound_alone(&self, rules: &RelaxedRules<'_>) -> i64 {
        let sizes = |count: usize| {
            self.capacities[..count]
                .iter()
                .map(|capacity| capacity.of_worker)
        };
        let free = fill(sizes(self.capacities.len()), rules.threads);
        let full_main_limits = rules.full_main_cores.min(rules.workers);
        if !self.cores || rules.mains_on_core > 1 {
            return rules.workers * free;
        }
        let others = self.capacities.len() - 1;
        let below = (rules.full_core - 1).min(rules.threads);
        let bound_by_main = (1..=below)
            .map(|here| pairs(here) + fill(sizes(others), rules.threads - here))
            .max()
            .unwrap_or(free);
        full_main_limits * free + (rules.workers - full_main_limits) * free.min(bound_by_main)
    }

    /// The best volumes, by dynamic programming over domains and threads beyond the fewest.
    fn bound_together(&self, rules: &RelaxedRules<'_>) -> i64 {
        let least: i64 = self.capacities.iter().map(|capacity| capacity.least).sum();
        let extras = (rules.workers * rules.threads - least).max(0) as usize;
        let mut best: Vec<Option<i64>> = vec![None; extras + 1];
        best[0] = Some(0);
        for capacity in &self.capacities {
            let whole = |n: i64| {
                let cap = capacity.of_worker.max(1);
                n / cap * pairs(cap) + pairs(n % cap)
            };
            let mut next: Vec<Option<i64>> = vec![None; extras + 1];
            for more in 0..=(capacity.most - capacity.least).max(0) as usize {
                for total in more..=extras {
                    let sum =
                        best[total - more].map(|sum| sum + whole(capacity.least + more as i64));
                    next[total] = next[total].max(sum);
                }
            }
            best = next;
        }
        // no volumes sum to WT: there is no bound
        best[extras].unwrap_or(i64::MAX / 1_000_000_000)
    }
}
