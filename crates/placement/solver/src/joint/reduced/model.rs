//! The integer program of several deployments, in terms of good_lp.

use std::collections::BTreeMap;
use std::ops::Range;

use good_lp::{Expression, Variable, constraint, variable};

use super::super::enumerate::RuleExcess;
use super::super::instance::{Instance, Tenant, pairs};
use super::super::load_ranges::LoadRanges;
use super::super::rules::Rules;
use super::super::volumes::JointVolumes;
use super::symmetry::{LOAD_WEIGHT, interchangeable_classes};
use crate::integer_program::{FullDomain, IntegerProgram};

/// Whether the program has at most `most` integer variables, except the few of rules (12) and
/// (12+).
pub(super) fn has_at_most(instance: &Instance, most: usize) -> bool {
    // fast path: most problems are far larger
    let cells: usize = instance.tenants.iter().map(cells).sum();
    let steps = |tenant: &Tenant| steps(instance, tenant);
    cells <= most && cells + instance.tenants.iter().map(steps).sum::<usize>() <= most
}

/// Number of variables for the positions of mains and threads of a tenant.
fn cells(tenant: &Tenant) -> usize {
    let mains = rows(tenant) * tenant.cpus.len();
    let (least, most) = on_cpus(tenant, 1);
    let varies = least < most && tenant.threads > 1;
    mains + if varies { mains } else { 0 }
}

/// Number of variables that count pairs of a compact tenant.
fn steps(instance: &Instance, tenant: &Tenant) -> usize {
    if tenant.sign > 0 || tenant.threads == 1 {
        return 0;
    }
    let in_domain = |(columns, _): (Vec<u16>, i64)| match on_cpus(tenant, columns.len()) {
        (_, 0 | 1) => 0,
        (least, most) => most - least,
    };
    let domains = domains(instance, &tenant.cpus).into_iter();
    tenant.workers * domains.map(in_domain).sum::<usize>()
}

/// Upper bound of the absolute value of the objective.
pub(super) fn magnitude(instance: &Instance) -> f64 {
    let farthest: i64 = instance.gain.iter().sum();
    let within = |tenant: &Tenant| tenant.workers as i64 * pairs(tenant.threads as u32);
    let most = pairs(instance.workers as u32) + instance.tenants.iter().map(within).sum::<i64>();
    (farthest * most) as f64
}

/// Rows of variables of a tenant: one per worker, or one for all workers of one thread.
pub(super) fn rows(tenant: &Tenant) -> usize {
    match tenant.threads {
        1 => 1,
        _ => tenant.workers,
    }
}

/// Fewest and most threads of a worker on `cpus` cpus of its cpuset.
fn on_cpus(tenant: &Tenant, cpus: usize) -> (usize, usize) {
    let cap = usize::from(tenant.worker_cap);
    let elsewhere = (tenant.cpus.len() - cpus) * cap;
    let most = (cpus * cap).min(tenant.threads);
    (tenant.threads.saturating_sub(elsewhere), most)
}

/// The domains that contain any of these positions, as indices into `cpus`, and the closeness of a
/// pair there; domains with the same indices are merged.
fn domains(instance: &Instance, cpus: &[u16]) -> Vec<(Vec<u16>, i64)> {
    let mut gains: BTreeMap<Vec<u16>, i64> = BTreeMap::new();
    for level in (0..instance.levels).filter(|&level| instance.gain[level] > 0) {
        let mut members: BTreeMap<u16, Vec<u16>> = BTreeMap::new();
        for (index, &cpu) in (0u16..).zip(cpus) {
            let domain = instance.of[level][usize::from(cpu)];
            members.entry(domain).or_default().push(index);
        }
        for members in members.into_values() {
            *gains.entry(members).or_insert(0) += instance.gain[level];
        }
    }
    gains.into_iter().collect()
}

/// The program under construction.
pub(super) struct JointModel<'a> {
    instance: &'a Instance,
    rules: &'a Rules,
    excess: RuleExcess,
    loads: &'a [u32],
    ranges: LoadRanges,
    /// The rows of each tenant.
    rows: Vec<Range<usize>>,
    program: IntegerProgram,
}

/// Threads and mains on a cpu or core.
struct ThreadsAndMains {
    threads: Expression,
    /// Mains of each tenant on each cpu.
    mains: Vec<Expression>,
}

/// A cpu or core.
struct Unit {
    /// The usable positions in it.
    cpus: Vec<u16>,
    load: u32,
    /// Part of the load that is due to obstacles.
    obstacles: u32,
    /// Range of its load over all balanced placements.
    range: (u32, u32),
}

impl<'a> JointModel<'a> {
    /// The whole program; its objective is the value of a placement up to a constant.
    pub(super) fn of(
        instance: &'a Instance,
        rules: &'a Rules,
        volume: &'a JointVolumes,
        excess: RuleExcess,
    ) -> IntegerProgram {
        let mut model = Self {
            instance,
            rules,
            excess,
            loads: &volume.loads,
            ranges: LoadRanges::of(instance, volume),
            rows: Vec::with_capacity(instance.tenants.len()),
            program: IntegerProgram::new(),
        };
        model.add_decisions();
        model.count_mains();
        model.count_workers();
        model.constrain_workers();
        model.constrain_cpus();
        model.constrain_cores();
        model.order_interchangeable_domains();
        model.program
    }

    fn add_decisions(&mut self) {
        for tenant in &self.instance.tenants {
            let first = self.program.mains.len();
            self.rows.push(first..first + rows(tenant));
            let mut row = |(least, most): (usize, usize)| -> Vec<Variable> {
                let cell = || variable().integer().min(least as f64).max(most as f64);
                let columns = tenant.cpus.iter();
                columns
                    .map(|_| self.program.variables.add(cell()))
                    .collect()
            };
            let only = usize::from(tenant.cpus.len() == 1);
            for _ in 0..rows(tenant) {
                let (mains, threads) = if tenant.threads == 1 {
                    let mains = row((only * tenant.workers, tenant.rank_cap.into()));
                    (mains.clone(), mains)
                } else {
                    (row((only, 1)), row(on_cpus(tenant, 1)))
                };
                self.program.mains.push(mains);
                self.program.threads.push(threads);
            }
        }
    }

    /// Adds the closeness of mains.
    fn count_mains(&mut self) {
        let used = self.usable_positions();
        for (members, gain) in domains(self.instance, &used) {
            let mut mains = Expression::from(0);
            let (mut least, mut most) = (0, 0);
            for (tenant, rows) in self.instance.tenants.iter().zip(&self.rows) {
                let cap = usize::from(tenant.rank_cap);
                let columns: Vec<usize> = members
                    .iter()
                    .filter_map(|&at| tenant.cpus.binary_search(&used[usize::from(at)]).ok())
                    .collect();
                most += (columns.len() * cap).min(tenant.workers);
                let elsewhere = (tenant.cpus.len() - columns.len()) * cap;
                least += tenant.workers.saturating_sub(elsewhere);
                for row in &self.program.mains[rows.clone()] {
                    mains += columns.iter().map(|&at| row[at]).sum::<Expression>();
                }
            }
            self.program
                .add_pair_cost(&mains, (least, most), gain as f64);
        }
    }

    /// Adds the closeness within workers.
    fn count_workers(&mut self) {
        let tenants = self.instance.tenants.iter().zip(&self.rows);
        for (tenant, rows) in tenants.filter(|(tenant, _)| tenant.threads > 1) {
            for (members, gain) in domains(self.instance, &tenant.cpus) {
                let range = on_cpus(tenant, members.len());
                for worker in rows.clone() {
                    let row = &self.program.threads[worker];
                    let own = members.iter().map(|&at| row[usize::from(at)]).sum();
                    match tenant.sign {
                        1.. => self.program.add_pair_cost(&own, range, gain as f64),
                        _ => self.program.add_pair_reward(&own, range, gain as f64),
                    }
                }
            }
        }
    }

    fn constrain_workers(&mut self) {
        for (tenant, rows) in self.instance.tenants.iter().zip(&self.rows) {
            if tenant.threads == 1 {
                let all: Expression = self.program.mains[rows.start].iter().sum();
                let workers = tenant.workers as f64;
                self.program.require(constraint!(all == workers));
                continue;
            }
            for worker in rows.clone() {
                self.program.require_threads(worker, tenant.threads);
                if worker + 1 < rows.end {
                    self.program.break_symmetry(worker, worker + 1);
                }
            }
        }
    }

    /// The positions that any tenant may use.
    fn usable_positions(&self) -> Vec<u16> {
        let used = (0u16..).zip(&self.instance.is_used);
        used.filter(|&(_, &used)| used)
            .map(|(cpu, _)| cpu)
            .collect()
    }

    /// Threads and mains on some positions.
    fn threads_and_mains(&self, cpus: &[u16]) -> ThreadsAndMains {
        let mut held = ThreadsAndMains {
            threads: Expression::from(0),
            mains: Vec::new(),
        };
        for (tenant, rows) in self.instance.tenants.iter().zip(&self.rows) {
            let columns = cpus
                .iter()
                .filter_map(|cpu| tenant.cpus.binary_search(cpu).ok());
            for column in columns {
                let sum = |table: &[Vec<Variable>]| -> Expression {
                    table[rows.clone()].iter().map(|row| row[column]).sum()
                };
                held.threads += sum(&self.program.threads);
                held.mains.push(sum(&self.program.mains));
            }
        }
        held
    }

    fn constrain_cpus(&mut self) {
        let unit = |cpu: u16| Unit {
            cpus: vec![cpu],
            load: self.loads[usize::from(cpu)],
            obstacles: self.instance.obstacles[usize::from(cpu)],
            range: self.ranges.cpus[usize::from(cpu)],
        };
        let units: Vec<Unit> = self.usable_positions().into_iter().map(unit).collect();
        self.constrain_loads(&units);
        for cpu in self.usable_positions() {
            self.constrain_ranks(cpu);
        }
        if let Some((full, most)) = self.rules.full_cpus {
            let domains = self.full_domains(&units);
            let most = most + self.excess[2];
            self.program.limit_full_mains(domains, full, most);
        }
    }

    fn constrain_cores(&mut self) {
        let mut members: BTreeMap<usize, Vec<u16>> = BTreeMap::new();
        for cpu in self.usable_positions() {
            let core = self.instance.core(cpu.into());
            members.entry(core).or_default().push(cpu);
        }
        let loads = self.instance.core_loads(self.loads);
        let obstacles = self.instance.core_loads(&self.instance.obstacles);
        let unit = |(core, cpus): (usize, Vec<u16>)| Unit {
            cpus,
            load: loads[core],
            obstacles: obstacles[core],
            range: self.ranges.cores[core],
        };
        let units: Vec<Unit> = members.into_iter().map(unit).collect();
        self.constrain_loads(&units);
        let most = self.most_mains();
        for unit in &units {
            let mains: Expression = self.threads_and_mains(&unit.cpus).mains.into_iter().sum();
            self.program.require(constraint!(mains <= most));
        }
        if let Some((full, most)) = self.rules.full_cores {
            let domains = self.full_domains(&units);
            let most = most + self.excess[3];
            self.program.limit_full_mains(domains, full, most);
        }
    }

    /// Most mains on a core.
    fn most_mains(&self) -> u32 {
        self.rules.core_mains + self.excess[0]
    }

    /// Requires that loads are in their ranges, and fixes the sum of those with the same range.
    fn constrain_loads(&mut self, units: &[Unit]) {
        let mut sums: BTreeMap<u32, (Expression, u32)> = BTreeMap::new();
        for unit in units {
            let threads = self.threads_and_mains(&unit.cpus).threads;
            let (least, most) = unit.range;
            let [least, most] = [least, most].map(|load| f64::from(load - unit.obstacles));
            if least == most {
                self.program.require(constraint!(threads == least));
                continue;
            }
            self.program.require(constraint!(threads.clone() >= least));
            self.program.require(constraint!(threads.clone() <= most));
            let (sum, count) = sums.entry(unit.range.0).or_default();
            *sum += threads;
            *count += unit.load - unit.obstacles;
        }
        for (sum, count) in sums.into_values() {
            self.program.require(constraint!(sum == count));
        }
    }

    /// The domains that (12) and (12+) count. These rules need no more workers than cpus, so by (2)
    /// no tenant has two mains on a cpu.
    fn full_domains(&self, units: &[Unit]) -> Vec<FullDomain> {
        let domain = |unit: &Unit| {
            let held = self.threads_and_mains(&unit.cpus);
            let mains = match self.most_mains() {
                1 => vec![held.mains.into_iter().sum()],
                _ => held.mains,
            };
            FullDomain {
                threads: held.threads,
                mains,
                range: unit.range,
            }
        };
        units.iter().map(domain).collect()
    }

    /// Breaks symmetry: orders alike domains.
    fn order_interchangeable_domains(&mut self) {
        for class in interchangeable_classes(self.instance) {
            for pair in class.windows(2) {
                let [first, second] = [&pair[0], &pair[1]].map(|cpus| {
                    let held = self.threads_and_mains(cpus);
                    let mains: Expression = held.mains.into_iter().sum();
                    held.threads * LOAD_WEIGHT + mains
                });
                self.program.require(constraint!(first >= second));
            }
        }
    }

    /// Adds the constraints of (2) for each tenant on a cpu.
    fn constrain_ranks(&mut self, cpu: u16) {
        let tenants = self.instance.tenants.iter().zip(&self.rows);
        for (tenant, rows) in tenants.filter(|(tenant, _)| tenant.threads > 1) {
            let Ok(column) = tenant.cpus.binary_search(&cpu) else {
                continue;
            };
            let sum = |table: &[Vec<Variable>]| -> Expression {
                table[rows.clone()].iter().map(|row| row[column]).sum()
            };
            let (threads, mains) = (sum(&self.program.threads), sum(&self.program.mains));
            if tenant.workers > usize::from(tenant.rank_cap) {
                let cap = f64::from(tenant.rank_cap);
                self.program.require(constraint!(mains.clone() <= cap));
            }
            let most = tenant.workers * usize::from(tenant.worker_cap);
            if most > tenant.peers_cap() as usize {
                let cap = f64::from(tenant.peers_cap());
                self.program.require(constraint!(threads - mains <= cap));
            }
        }
    }
}
