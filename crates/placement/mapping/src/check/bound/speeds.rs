//! Bounds on pairs within workers by the speeds of cores, recomputed.
//!
//! **Problem.** Where cores differ in speed, the number of threads on the cores of each speed is
//! the same in every balanced placement; a bound that takes each worker alone would give all of
//! them the best cores. **Approach.** Per level and speed: pairs are fewest if threads are spread
//! evenly over all cells (pairs of a worker and a domain), and most if cells are filled one after
//! the other. A cell on slow cores holds no main except the `slow_mains`. **Limits.** Deployments
//! with the same cpus. On a level where a domain contains two speeds, scatter is bounded as if all
//! cores had one speed, and compact is not bounded.

use std::collections::{BTreeMap, BTreeSet};

use albacore_topology::Cpu;

use super::{DomainKey, pairs};
use crate::{Deployment, JointProblem, Mode};

/// The loads of a machine all of whose cpus are open to all deployments.
pub(super) struct Speeds<'a> {
    problem: &'a JointProblem,
    /// Each usable cpu with its load.
    loads: Vec<(&'a Cpu, i64)>,
}

/// The cores of one speed.
struct Speed {
    capacity: u16,
    /// The domains that contain them.
    domains: BTreeSet<u32>,
    threads: i64,
    /// Most threads of one worker in one domain.
    most: i64,
}

impl<'a> Speeds<'a> {
    /// `loads` are in the order of the topology's cpus.
    pub(super) fn of(problem: &'a JointProblem, loads: &[i64]) -> Self {
        let own = |id| problem.deployments.iter().any(|d| d.cpuset.contains(id));
        let cpus = problem.topology.cpus().iter().zip(loads.iter().copied());
        Self {
            problem,
            loads: cpus.filter(|(cpu, _)| own(cpu.id)).collect(),
        }
    }

    fn deployments(&self, mode: Mode) -> impl Iterator<Item = &'a Deployment> {
        let all = self.problem.deployments.iter();
        all.filter(move |deployment| deployment.mode == mode)
    }

    /// Fewest pairs of threads of scatter workers within domains of a level.
    pub(super) fn fewest(&self, level: usize, key: DomainKey) -> i64 {
        if self.deployments(Mode::Compact).next().is_some() {
            return 0;
        }
        let workers: i64 = self
            .deployments(Mode::Scatter)
            .map(|d| i64::from(d.workers))
            .sum();
        let speeds = self.speeds(level, key);
        let share = |threads: i64, domains: usize| {
            let cells = workers * domains as i64;
            let more = threads % cells;
            more * pairs(threads / cells + 1) + (cells - more) * pairs(threads / cells)
        };
        match speeds_are_separate(&speeds) {
            true => speeds
                .iter()
                .map(|speed| share(speed.threads, speed.domains.len()))
                .sum(),
            false => {
                let domains: BTreeSet<u32> = speeds
                    .iter()
                    .flat_map(|speed| speed.domains.iter().copied())
                    .collect();
                share(
                    speeds.iter().map(|speed| speed.threads).sum(),
                    domains.len(),
                )
            }
        }
    }

    /// Most pairs of threads of compact workers within domains of a level; `None` if not bounded.
    pub(super) fn most(&self, level: usize, key: DomainKey, slow_mains: i64) -> Option<i64> {
        let speeds = self.speeds(level, key);
        let fastest = speeds.iter().map(|speed| speed.capacity).max()?;
        let longest = self
            .deployments(Mode::Compact)
            .map(|d| i64::from(d.threads))
            .max()?;
        let threads = |d: &Deployment| i64::from(d.workers) * i64::from(d.threads);
        let all: i64 = self.deployments(Mode::Compact).map(threads).sum();
        if !speeds_are_separate(&speeds) {
            return None;
        }
        let of_speed = |speed: &Speed| {
            let is_slow = speed.capacity < fastest;
            let (mut left, mut sum, mut with_main) = (speed.threads.min(all), 0, slow_mains);
            while left > 0 {
                let longest = match is_slow && with_main == 0 {
                    true => longest - 1,
                    false => longest,
                };
                let here = left.min(speed.most).min(longest);
                if here < 2 {
                    break;
                }
                with_main = (with_main - 1).max(0);
                sum += pairs(here);
                left -= here;
            }
            sum
        };
        Some(speeds.iter().map(of_speed).sum())
    }

    fn speeds(&self, level: usize, key: DomainKey) -> Vec<Speed> {
        let count = self.loads.len() as i64;
        let caps = self.problem.deployments.iter();
        let on_cpu = caps.map(|d| (i64::from(d.threads) + count - 1) / count);
        let on_cpu = on_cpu.max().unwrap_or(0);
        let mut capacities: Vec<u16> = self.loads.iter().map(|(cpu, _)| cpu.capacity).collect();
        capacities.sort_unstable();
        capacities.dedup();
        let of = |capacity: u16| {
            let own = || {
                self.loads
                    .iter()
                    .filter(move |(cpu, _)| cpu.capacity == capacity)
            };
            // per core: room for one worker, load, domain
            let mut cores: BTreeMap<u32, (i64, i64, u32)> = BTreeMap::new();
            for &(cpu, load) in own() {
                let core = cores.entry(cpu.core).or_insert((0, 0, key(cpu)));
                (core.0, core.1) = (core.0 + on_cpu, core.1 + load);
            }
            let fullest = cores.values().map(|&(_, load, _)| load).max().unwrap_or(0);
            let mut rooms: BTreeMap<u32, i64> = BTreeMap::new();
            for &(room, _, domain) in cores.values() {
                *rooms.entry(domain).or_insert(0) += room.min(fullest);
            }
            let most = rooms.values().copied().max().unwrap_or(0);
            Speed {
                capacity,
                domains: own().map(|&(cpu, _)| key(cpu)).collect(),
                threads: own().map(|&(_, load)| load).sum(),
                most: if level == 0 { on_cpu } else { most },
            }
        };
        capacities.into_iter().map(of).collect()
    }
}

/// Whether no domain has cores of two speeds.
fn speeds_are_separate(speeds: &[Speed]) -> bool {
    let all: usize = speeds.iter().map(|speed| speed.domains.len()).sum();
    let distinct: BTreeSet<&u32> = speeds.iter().flat_map(|speed| &speed.domains).collect();
    all == distinct.len()
}
