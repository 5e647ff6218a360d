//! The reduced program as good_lp takes it.
//!
//! `x[w,c]` and `m[w,c]` are the only decisions; every other variable is determined by them and
//! says how ([`Derived`]), so that a known assignment can be handed to microlp as a start.

use std::collections::HashMap;

use good_lp::{Constraint, Expression, ProblemVariables, Variable, constraint, variable};

use crate::Mode;
use crate::single::allowed::Allowed;
use crate::single::assignment::Assignment;
use crate::single::domains::{CORE, CPU, Domains, LEVELS, pairs};

/// How many integer variables the program has, but for the few of rules (12) and (12+).
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

/// A variable that follows from the decisions.
enum Derived {
    /// x(x-1)/2 of so many items.
    Pairs(Variable, Expression),
    /// Ordered: as many are 1 as there are items.
    Steps(Vec<Variable>, Expression),
    /// 1 if there are at least so many threads, and 1 if there is a main too.
    Full([Variable; 2], Expression, Expression, u32),
}

/// The program while it is built.
pub(crate) struct Model<'a> {
    domains: &'a Domains,
    allowed: &'a Allowed,
    pub(crate) variables: ProblemVariables,
    pub(crate) objective: Expression,
    pub(crate) constraints: Vec<Constraint>,
    /// Threads of worker w on cpu c.
    pub(crate) threads: Vec<Vec<Variable>>,
    /// 1 if the main of worker w is on cpu c.
    pub(crate) mains: Vec<Vec<Variable>>,
    derived: Vec<Derived>,
}

impl<'a> Model<'a> {
    /// The whole program: `objective` is the value of a mapping but for its constant.
    pub(crate) fn of(domains: &'a Domains, allowed: &'a Allowed) -> Self {
        let mut model = Self::new(domains, allowed);
        model.count_pairs();
        model.keep_rules();
        model
    }

    /// The objective never exceeds this, nor falls below its negative.
    pub(crate) fn magnitude(&self) -> f64 {
        let farthest: i64 = self.domains.gain.iter().sum();
        let (workers, threads) = (self.domains.workers, self.domains.threads);
        let most = pairs(workers as u32) + workers as i64 * pairs(threads as u32);
        (farthest * most) as f64
    }

    /// The values of all variables for an assignment whose mains are in order.
    pub(crate) fn start(&self, assignment: &Assignment) -> Vec<(Variable, f64)> {
        let mut values: HashMap<Variable, f64> = HashMap::new();
        for worker in 0..self.domains.workers {
            let (main, peers) = (assignment.mains[worker], &assignment.peers[worker]);
            for cpu in 0..self.domains.cpus {
                let is_here = |at: &u16| usize::from(*at) == cpu;
                let mains = f64::from(u8::from(is_here(&main)));
                let here = peers.iter().filter(|at| is_here(at)).count() as f64;
                values.insert(self.mains[worker][cpu], mains);
                values.insert(self.threads[worker][cpu], mains + here);
            }
        }
        let mut start: Vec<(Variable, f64)> = Vec::new();
        for derived in &self.derived {
            derived.follow(&values, &mut start);
        }
        start.extend(values);
        start
    }

    fn new(domains: &'a Domains, allowed: &'a Allowed) -> Self {
        let mut variables = ProblemVariables::new();
        let mut table = |most: f64| -> Vec<Vec<Variable>> {
            let mut row = || -> Vec<Variable> {
                (0..domains.cpus)
                    .map(|_| variables.add(variable().integer().min(0).max(most)))
                    .collect()
            };
            (0..domains.workers).map(|_| row()).collect()
        };
        let (threads, mains) = (table(domains.rules.worker_cap.into()), table(1.0));
        let (objective, constraints) = (Expression::from(0), Vec::new());
        Self {
            domains,
            allowed,
            variables,
            objective,
            constraints,
            threads,
            mains,
            derived: Vec::new(),
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
                let all = self.mains.iter().flat_map(|row| &row[members.clone()]);
                let mains: Expression = all.sum();
                self.few_pairs(&mains, self.domains.workers, gain);
                for worker in 0..self.domains.workers {
                    let own: Expression = self.threads[worker][members.clone()].iter().sum();
                    let most = most_of_worker(self.domains, level, domain);
                    match self.domains.mode {
                        Mode::Scatter => self.few_pairs(&own, most, gain),
                        Mode::Compact => self.many_pairs(&own, most, gain),
                    }
                }
            }
        }
    }

    /// Pairs that cost: at least every tangent of x(x-1)/2.
    fn few_pairs(&mut self, items: &Expression, most: usize, gain: f64) {
        if most < 2 {
            return;
        }
        let pairs = self.variables.add(variable().min(0));
        for k in 1..most {
            let k = k as f64;
            self.constraints.push(constraint!(
                pairs >= k * items.clone() - k * (k + 1.0) / 2.0
            ));
        }
        self.objective -= gain * pairs;
        self.derived.push(Derived::Pairs(pairs, items.clone()));
    }

    /// Pairs that pay: the k-th item brings k - 1, after all items before it.
    fn many_pairs(&mut self, items: &Expression, most: usize, gain: f64) {
        if most < 2 {
            return;
        }
        let steps: Vec<Variable> = (0..most)
            .map(|_| self.variables.add(variable().binary()))
            .collect();
        let all: Expression = steps.iter().sum();
        self.constraints.push(constraint!(all == items.clone()));
        for (k, pair) in steps.windows(2).enumerate() {
            self.constraints.push(constraint!(pair[1] <= pair[0]));
            self.objective += gain * (k + 1) as f64 * pair[1];
        }
        self.derived.push(Derived::Steps(steps, items.clone()));
    }

    fn keep_rules(&mut self) {
        let threads = self.domains.threads as f64;
        for worker in 0..self.domains.workers {
            let (own, mains) = (&self.threads[worker], &self.mains[worker]);
            self.constraints
                .push(constraint!(own.iter().sum::<Expression>() == threads));
            self.constraints
                .push(constraint!(mains.iter().sum::<Expression>() == 1.0));
            for (&main, &thread) in mains.iter().zip(own) {
                self.constraints.push(constraint!(main <= thread));
            }
            if let Some(next) = self.mains.get(worker + 1) {
                let place = |mains: &[Variable]| -> Expression {
                    mains
                        .iter()
                        .enumerate()
                        .map(|(cpu, &main)| cpu as f64 * main)
                        .sum()
                };
                self.constraints
                    .push(constraint!(place(mains) <= place(next)));
            }
        }
        self.keep_volumes();
        let (cpus, cores) = (self.allowed.full_mains, self.allowed.full_core_mains);
        self.keep_full_mains(
            CPU,
            self.domains.rules.cpu_volume,
            self.domains.rules.cpu_volume.1,
            cpus,
        );
        let range = self.allowed.core_volume;
        self.keep_full_mains(CORE, range, self.domains.rules.core_volume.1, cores);
    }

    /// Threads and mains of a domain, over all workers.
    fn held(&self, level: usize, domain: usize) -> (Expression, Expression) {
        let members = self.domains.members(level, domain);
        let sum = |table: &[Vec<Variable>]| -> Expression {
            table.iter().flat_map(|row| &row[members.clone()]).sum()
        };
        (sum(&self.threads), sum(&self.mains))
    }

    fn keep_volumes(&mut self) {
        let peers = self.domains.rules.rank_cap as f64 * (self.domains.threads as f64 - 1.0);
        for cpu in 0..self.domains.cpus {
            let (threads, mains) = self.held(CPU, cpu);
            let (lower, upper) = floats(self.domains.rules.cpu_volume);
            self.constraints.push(constraint!(threads.clone() >= lower));
            self.constraints.push(constraint!(threads.clone() <= upper));
            self.constraints
                .push(constraint!(mains.clone() <= self.domains.rules.rank_cap));
            self.constraints.push(constraint!(threads - mains <= peers));
        }
        for core in 0..self.domains.count(CORE) {
            let (threads, mains) = self.held(CORE, core);
            let (lower, upper) = floats(self.allowed.core_volume);
            self.constraints.push(constraint!(threads.clone() >= lower));
            self.constraints.push(constraint!(threads <= upper));
            self.constraints
                .push(constraint!(mains <= self.allowed.core_mains));
        }
    }

    /// At most `most` domains hold both `full` threads and a main. Where a domain holds `full` or
    /// one less, it is written as an equation, and where it holds one main at most, for all workers
    /// at once: the same mappings, fewer fractions.
    fn keep_full_mains(&mut self, level: usize, range: (u32, u32), full: u32, most: u32) {
        if most as usize >= self.domains.count(level) {
            return;
        }
        let at_most_one = match level {
            CPU => self.domains.rules.rank_cap == 1,
            _ => self.allowed.core_mains == 1,
        };
        let mut both = Expression::from(0);
        for domain in 0..self.domains.count(level) {
            let is_full = self.variables.add(variable().binary());
            let has_both = self.variables.add(variable().min(0).max(1));
            let (threads, mains) = self.held(level, domain);
            let (below, above) = (
                f64::from(full) - 1.0,
                f64::from(range.1) - f64::from(full) + 1.0,
            );
            self.constraints.push(if range == (full - 1, full) {
                constraint!(threads.clone() == below + is_full)
            } else {
                constraint!(threads.clone() <= below + above * is_full)
            });
            if at_most_one {
                self.constraints
                    .push(constraint!(has_both >= mains.clone() + is_full - 1.0));
            } else {
                let members = self.domains.members(level, domain);
                for row in &self.mains {
                    let main: Expression = row[members.clone()].iter().sum();
                    self.constraints
                        .push(constraint!(has_both >= main + is_full - 1.0));
                }
            }
            both += has_both;
            let derived = Derived::Full([is_full, has_both], threads, mains, full);
            self.derived.push(derived);
        }
        self.constraints.push(constraint!(both <= most));
    }
}

impl Derived {
    /// Adds what the decisions make of it.
    fn follow(&self, values: &HashMap<Variable, f64>, start: &mut Vec<(Variable, f64)>) {
        let whole = |items: &Expression| items.eval_with(values).round() as u32;
        match self {
            Self::Pairs(variable, items) => start.push((*variable, pairs(whole(items)) as f64)),
            Self::Steps(steps, items) => {
                let taken = whole(items) as usize;
                let value = |k: usize| f64::from(u8::from(k < taken));
                start.extend(steps.iter().enumerate().map(|(k, &step)| (step, value(k))));
            }
            Self::Full([is_full, has_both], threads, mains, full) => {
                let full = whole(threads) >= *full;
                let both = full && whole(mains) > 0;
                start.push((*is_full, f64::from(u8::from(full))));
                start.push((*has_both, f64::from(u8::from(both))));
            }
        }
    }
}

fn floats((lower, upper): (u32, u32)) -> (f64, f64) {
    (lower.into(), upper.into())
}
