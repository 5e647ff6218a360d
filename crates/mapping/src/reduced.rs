//! The reduced integer program, for the small problems on which value and bound do not meet.
//!
//! **Problem.** Prove that a value is the best, or find the better one. **Approach.** The program
//! of `deal` instead of that of the article: `x[w,c]` threads of a worker on a cpu and `m[w,c]` its
//! main; ranks do not appear (`label` finds them). Pairs are counted in domains: where closeness is
//! to be small, by the tangents of x(x-1)/2, where it is to be large, by steps that must be taken
//! in order. Workers are alike, so their mains are asked to be in order. **Proof sketch.** Every
//! mapping that keeps the rules gives such x and m with the same value, and the reverse holds by
//! `label`; tangents and ordered steps are exact at integers. **Limits.** Only up to
//! [`REDUCED_VARIABLES_MAX`] integer variables and for [`REDUCED_SECONDS_MAX`]; microlp is a plain
//! simplex with branch and bound.

use good_lp::solvers::microlp::{MicroLpProblem, microlp};
use good_lp::{
    Expression, ProblemVariables, Solution, SolutionStatus, SolverModel, Variable, WithTimeLimit,
    constraint, variable,
};

use crate::Mode;
use crate::deal::Deal;
use crate::domains::{CORE, CPU, Domains, LEVELS};
use crate::improve::Allowed;
use crate::limits::{REDUCED_SECONDS_MAX, REDUCED_VARIABLES_MAX};

/// What the program found.
pub(crate) struct Found {
    /// The deal.
    pub(crate) deal: Deal,
    /// Nothing is better.
    pub(crate) proven: bool,
}

/// Solves the program if it is small enough.
pub(crate) fn solve_reduced(domains: &Domains, allowed: &Allowed) -> Option<Found> {
    if size(domains) > REDUCED_VARIABLES_MAX {
        return None;
    }
    let mut program = Program::new(domains, allowed);
    program.count_pairs();
    program.keep_rules();
    let Program {
        variables,
        objective,
        constraints,
        threads,
        mains,
        ..
    } = program;
    let mut model: MicroLpProblem = variables.maximise(objective).using(microlp);
    for constraint in constraints {
        model.add_constraint(constraint);
    }
    let solution = model.with_time_limit(REDUCED_SECONDS_MAX).solve().ok()?;
    let proven = matches!(solution.status(), SolutionStatus::Optimal);
    let whole = |variable: Variable| solution.value(variable).round().max(0.0) as usize;
    let mut deal = Deal {
        mains: Vec::new(),
        peers: Vec::new(),
    };
    for (threads, mains) in threads.iter().zip(&mains) {
        let main = mains.iter().position(|&main| whole(main) > 0)?;
        let mut peers: Vec<u16> = Vec::new();
        for (cpu, &thread) in threads.iter().enumerate() {
            let here = whole(thread).checked_sub(usize::from(cpu == main))?;
            peers.extend(std::iter::repeat_n(cpu as u16, here));
        }
        deal.mains.push(main as u16);
        deal.peers.push(peers);
    }
    Some(Found { deal, proven })
}

/// How many integer variables the program has, but for the few of rules (12) and (12+).
fn size(domains: &Domains) -> usize {
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
    (cpus * domains.worker_cap as usize).min(domains.threads)
}

struct Program<'a> {
    domains: &'a Domains,
    allowed: &'a Allowed,
    variables: ProblemVariables,
    objective: Expression,
    constraints: Vec<good_lp::Constraint>,
    /// Threads of worker w on cpu c.
    threads: Vec<Vec<Variable>>,
    /// 1 if the main of worker w is on cpu c.
    mains: Vec<Vec<Variable>>,
}

impl<'a> Program<'a> {
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
        let (threads, mains) = (table(domains.worker_cap.into()), table(1.0));
        let (objective, constraints) = (Expression::from(0), Vec::new());
        Self {
            domains,
            allowed,
            variables,
            objective,
            constraints,
            threads,
            mains,
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
    fn few_pairs(&mut self, things: &Expression, most: usize, gain: f64) {
        if most < 2 {
            return;
        }
        let pairs = self.variables.add(variable().min(0));
        for k in 1..most {
            let k = k as f64;
            self.constraints.push(constraint!(
                pairs >= k * things.clone() - k * (k + 1.0) / 2.0
            ));
        }
        self.objective -= gain * pairs;
    }

    /// Pairs that pay: the k-th thing brings k - 1, after all things before it.
    fn many_pairs(&mut self, things: &Expression, most: usize, gain: f64) {
        if most < 2 {
            return;
        }
        let steps: Vec<Variable> = (0..most)
            .map(|_| self.variables.add(variable().binary()))
            .collect();
        let all: Expression = steps.iter().sum();
        self.constraints.push(constraint!(all == things.clone()));
        for (k, pair) in steps.windows(2).enumerate() {
            self.constraints.push(constraint!(pair[1] <= pair[0]));
            self.objective += gain * (k + 1) as f64 * pair[1];
        }
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
            self.domains.cpu_volume,
            self.domains.cpu_volume.1,
            cpus,
        );
        let range = self.allowed.core_volume;
        self.keep_full_mains(CORE, range, self.domains.core_volume.1, cores);
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
        let peers = self.domains.rank_cap as f64 * (self.domains.threads as f64 - 1.0);
        for cpu in 0..self.domains.cpus {
            let (threads, mains) = self.held(CPU, cpu);
            let (lower, upper) = floats(self.domains.cpu_volume);
            self.constraints.push(constraint!(threads.clone() >= lower));
            self.constraints.push(constraint!(threads.clone() <= upper));
            self.constraints
                .push(constraint!(mains.clone() <= self.domains.rank_cap));
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

    /// At most `most` domains hold both `full` threads and a main.
    fn keep_full_mains(&mut self, level: usize, range: (u32, u32), full: u32, most: u32) {
        if most as usize >= self.domains.count(level) {
            return;
        }
        let mut both = Expression::from(0);
        for domain in 0..self.domains.count(level) {
            let is_full = self.variables.add(variable().binary());
            let has_both = self.variables.add(variable().min(0).max(1));
            let (threads, _) = self.held(level, domain);
            let (below, above) = (
                f64::from(full) - 1.0,
                f64::from(range.1) - f64::from(full) + 1.0,
            );
            self.constraints
                .push(constraint!(threads <= below + above * is_full));
            let members = self.domains.members(level, domain);
            for row in &self.mains {
                let main: Expression = row[members.clone()].iter().sum();
                self.constraints
                    .push(constraint!(has_both >= main + is_full - 1.0));
            }
            both += has_both;
        }
        self.constraints.push(constraint!(both <= most));
    }
}

fn floats((lower, upper): (u32, u32)) -> (f64, f64) {
    (lower.into(), upper.into())
}
