//! The reduced program, in terms of good_lp.

use good_lp::{Expression, Variable, constraint, variable};

use crate::Mode;
use crate::integer_program::{FullDomain, IntegerProgram};
use crate::single::allowed::Allowed;
use crate::single::domains::{CORE, CPU, Domains, LEVELS, pairs};

/// Number of integer variables of the program, except the few of rules (12) and (12+).
pub(crate) fn size(domains: &Domains) -> usize {
    let cells = domains.workers * domains.cpus;
    let steps = |level: usize, domain: usize| match most_of_worker(domains, level, domain) {
        0 | 1 => 0,
        most => most,
    };
    let level = |level: usize| {
        (0..domains.count(level))
            .map(|d| steps(level, d))
            .sum::<usize>()
    };
    let counted = (0..LEVELS).filter(|&level| domains.gain[level] > 0);
    match domains.mode {
        Mode::Scatter => 2 * cells,
        Mode::Compact => 2 * cells + domains.workers * counted.map(level).sum::<usize>(),
    }
}

/// Most threads of one worker in a domain.
fn most_of_worker(domains: &Domains, level: usize, domain: usize) -> usize {
    let cpus = domains.members(level, domain).len();
    (cpus * domains.rules.worker_cap as usize).min(domains.threads)
}

/// Upper bound of the absolute value of the objective.
pub(crate) fn magnitude(domains: &Domains) -> f64 {
    let farthest: i64 = domains.gain.iter().sum();
    let (workers, threads) = (domains.workers, domains.threads);
    let most = pairs(workers as u32) + workers as i64 * pairs(threads as u32);
    (farthest * most) as f64
}

/// The program under construction.
pub(crate) struct SingleModel<'a> {
    domains: &'a Domains,
    allowed: &'a Allowed,
    program: IntegerProgram,
}

impl<'a> SingleModel<'a> {
    /// The whole program; its objective is the value of a mapping up to a constant.
    pub(crate) fn of(domains: &'a Domains, allowed: &'a Allowed) -> IntegerProgram {
        let mut model = Self::new(domains, allowed);
        model.count_pairs();
        model.constrain_rules();
        model.program
    }

    fn new(domains: &'a Domains, allowed: &'a Allowed) -> Self {
        let mut program = IntegerProgram::new();
        let mut table = |most: f64| -> Vec<Vec<Variable>> {
            let mut row = || -> Vec<Variable> {
                (0..domains.cpus)
                    .map(|_| {
                        let cell = variable().integer().min(0).max(most);
                        program.variables.add(cell)
                    })
                    .collect()
            };
            (0..domains.workers).map(|_| row()).collect()
        };
        let (threads, mains) = (table(domains.rules.worker_cap.into()), table(1.0));
        (program.threads, program.mains) = (threads, mains);
        Self {
            domains,
            allowed,
            program,
        }
    }

    /// Adds closeness to the objective.
    fn count_pairs(&mut self) {
        for level in 0..LEVELS {
            let gain = self.domains.gain[level] as f64;
            if gain == 0.0 {
                continue;
            }
            for domain in 0..self.domains.count(level) {
                let members = self.domains.members(level, domain);
                let program = &mut self.program;
                let all = program.mains.iter().flat_map(|row| &row[members.clone()]);
                let mains: Expression = all.sum();
                program.add_pair_cost(&mains, (0, self.domains.workers), gain);
                for worker in 0..self.domains.workers {
                    let own: Expression = program.threads[worker][members.clone()].iter().sum();
                    let range = (0, most_of_worker(self.domains, level, domain));
                    match self.domains.mode {
                        Mode::Scatter => program.add_pair_cost(&own, range, gain),
                        Mode::Compact => program.add_pair_reward(&own, range, gain),
                    }
                }
            }
        }
    }

    fn constrain_rules(&mut self) {
        for worker in 0..self.domains.workers {
            self.program.require_threads(worker, self.domains.threads);
            if worker + 1 < self.domains.workers {
                self.program.break_symmetry(worker, worker + 1);
            }
        }
        self.constrain_volumes();
        let (cpus, cores) = (self.allowed.full_main_cpus, self.allowed.full_main_cores);
        let range = self.domains.rules.cpu_volume;
        self.constrain_full_mains(CPU, range, self.domains.rules.cpu_volume.1, cpus);
        let range = self.allowed.core_volume;
        self.constrain_full_mains(CORE, range, self.domains.rules.core_volume.1, cores);
    }

    /// Threads and mains of a domain, over all workers.
    fn held(&self, level: usize, domain: usize) -> (Expression, Expression) {
        let members = self.domains.members(level, domain);
        let sum = |table: &[Vec<Variable>]| -> Expression {
            table.iter().flat_map(|row| &row[members.clone()]).sum()
        };
        (sum(&self.program.threads), sum(&self.program.mains))
    }

    fn constrain_volumes(&mut self) {
        let peers = self.domains.rules.rank_cap as f64 * (self.domains.threads as f64 - 1.0);
        for cpu in 0..self.domains.cpus {
            let (threads, mains) = self.held(CPU, cpu);
            let (lower, upper) = floats(self.domains.rules.cpu_volume);
            let rank_cap = self.domains.rules.rank_cap;
            self.program.require(constraint!(threads.clone() >= lower));
            self.program.require(constraint!(threads.clone() <= upper));
            self.program.require(constraint!(mains.clone() <= rank_cap));
            self.program.require(constraint!(threads - mains <= peers));
        }
        for core in 0..self.domains.count(CORE) {
            let (threads, mains) = self.held(CORE, core);
            let (lower, upper) = floats(self.allowed.core_volume);
            let core_mains = self.allowed.core_mains;
            self.program.require(constraint!(threads.clone() >= lower));
            self.program.require(constraint!(threads <= upper));
            self.program.require(constraint!(mains <= core_mains));
        }
    }

    /// At most `most` domains hold both `full` threads and a main. If a domain holds at most one
    /// main, one constraint covers all workers.
    fn constrain_full_mains(&mut self, level: usize, range: (u32, u32), full: u32, most: u32) {
        let at_most_one = match level {
            CPU => self.domains.rules.rank_cap == 1,
            _ => self.allowed.core_mains == 1,
        };
        let domain = |domain: usize| {
            let (threads, all) = self.held(level, domain);
            let members = self.domains.members(level, domain);
            let of_worker = |row: &Vec<Variable>| row[members.clone()].iter().sum();
            let mains = match at_most_one {
                true => vec![all],
                false => self.program.mains.iter().map(of_worker).collect(),
            };
            FullDomain {
                threads,
                mains,
                range,
            }
        };
        let domains = (0..self.domains.count(level)).map(domain).collect();
        self.program.limit_full_mains(domains, full, most);
    }
}

fn floats((lower, upper): (u32, u32)) -> (f64, f64) {
    (lower.into(), upper.into())
}
