//! What the integer programs of one deployment and of several have in common.
//!
//! `x[w,c]` threads of a worker on a cpu and `m[w,c]` its main are the only decisions; every other
//! variable is determined by them and says how ([`Derived`]), so that a known placement can be
//! handed to microlp as a start. Pairs are counted in domains: where closeness is to be small, by
//! the tangents of x(x-1)/2, where it is to be large, by steps that must be taken in order. Both
//! are exact at integers. Values are whole numbers, so microlp is asked for a gap below one clock
//! cycle: with `|objective| <= magnitude`, a relative gap of 0.9 / magnitude is an absolute one
//! below 0.9. It computes with floats, so its bound is rounded down with a millionth to spare.

use std::collections::HashMap;

use good_lp::solvers::microlp::microlp;
use good_lp::{
    Constraint, Expression, ProblemVariables, Solution, SolverModel, Variable, WithInitialSolution,
    WithMipGap, WithTimeLimit, constraint, variable,
};

use crate::levels::pairs;

/// Asked of microlp in cycles: below 1, where nothing whole lies between value and bound.
const GAP: f64 = 0.9;

/// The column of a worker's main and those of its peers.
pub(crate) type WorkerColumns = (u16, Vec<u16>);

/// What microlp found.
pub(crate) struct Solved {
    pub(crate) workers: Vec<WorkerColumns>,
    pub(crate) proven: bool,
}

/// A cpu or core that may be full.
pub(crate) struct FullDomain {
    pub(crate) threads: Expression,
    /// Mains in groups of which at most one is here.
    pub(crate) mains: Vec<Expression>,
    /// Fewest and most threads that it holds.
    pub(crate) range: (u32, u32),
}

/// A variable that follows from the decisions.
enum Derived {
    /// x(x-1)/2 of so many items.
    Pairs(Variable, Expression),
    /// Ordered: as many are 1 as there are items beyond so many.
    Steps(Vec<Variable>, Expression, usize),
    /// 1 if there are at least so many threads, and 1 if there is a main too.
    Full([Variable; 2], Expression, Expression, u32),
}

/// The program while it is built.
pub(crate) struct IntegerProgram {
    pub(crate) variables: ProblemVariables,
    objective: Expression,
    constraints: Vec<Constraint>,
    /// Threads of each worker on its cpus.
    pub(crate) threads: Vec<Vec<Variable>>,
    /// 1 where the main of each worker is, in the same columns.
    pub(crate) mains: Vec<Vec<Variable>>,
    derived: Vec<Derived>,
}

impl IntegerProgram {
    pub(crate) fn new() -> Self {
        Self {
            variables: ProblemVariables::new(),
            objective: Expression::from(0),
            constraints: Vec::new(),
            threads: Vec::new(),
            mains: Vec::new(),
            derived: Vec::new(),
        }
    }

    pub(crate) fn require(&mut self, constraint: Constraint) {
        self.constraints.push(constraint);
    }

    /// Pairs that cost, of at least `least` and at most `most` items: at least every tangent of
    /// x(x-1)/2.
    pub(crate) fn few_pairs(
        &mut self,
        items: &Expression,
        (least, most): (usize, usize),
        gain: f64,
    ) {
        if most < 2 || least == most {
            return;
        }
        let pairs = self.variables.add(variable().min(0));
        for k in least.max(1)..most {
            let k = k as f64;
            self.constraints.push(constraint!(
                pairs >= k * items.clone() - k * (k + 1.0) / 2.0
            ));
        }
        self.objective -= gain * pairs;
        self.derived.push(Derived::Pairs(pairs, items.clone()));
    }

    /// Pairs that pay, of at least `least` and at most `most` items: the k-th item brings k - 1,
    /// after all items before it.
    pub(crate) fn many_pairs(
        &mut self,
        items: &Expression,
        (least, most): (usize, usize),
        gain: f64,
    ) {
        if most < 2 || least == most {
            return;
        }
        let steps: Vec<Variable> = (least..most)
            .map(|_| self.variables.add(variable().binary()))
            .collect();
        let all: Expression = steps.iter().sum();
        self.constraints
            .push(constraint!(all + least as f64 == items.clone()));
        for (&step, brings) in steps.iter().zip(least..) {
            if brings > 0 {
                self.objective += gain * brings as f64 * step;
            }
        }
        for pair in steps.windows(2) {
            self.constraints.push(constraint!(pair[1] <= pair[0]));
        }
        self.derived
            .push(Derived::Steps(steps, items.clone(), least));
    }

    /// Each worker has its threads and one main, where it has a thread.
    pub(crate) fn keep_worker(&mut self, worker: usize, threads: usize) {
        let (own, mains) = (&self.threads[worker], &self.mains[worker]);
        let threads = threads as f64;
        self.constraints
            .push(constraint!(own.iter().sum::<Expression>() == threads));
        self.constraints
            .push(constraint!(mains.iter().sum::<Expression>() == 1.0));
        for (&main, &thread) in mains
            .iter()
            .zip(own)
            .filter(|(main, thread)| main != thread)
        {
            self.constraints.push(constraint!(main <= thread));
        }
    }

    /// Of two workers that are alike, the main of the first is in no later column.
    pub(crate) fn keep_order(&mut self, first: usize, second: usize) {
        let place = |mains: &[Variable]| -> Expression {
            mains
                .iter()
                .enumerate()
                .map(|(column, &main)| column as f64 * main)
                .sum()
        };
        let (first, second) = (place(&self.mains[first]), place(&self.mains[second]));
        self.constraints.push(constraint!(first <= second));
    }

    /// At most `most` domains hold both `full` threads and a main. Where a domain holds `full` or
    /// one less, it is written as an equation: the same placements, fewer fractions.
    pub(crate) fn keep_full_mains(&mut self, domains: Vec<FullDomain>, full: u32, most: u32) {
        if most as usize >= domains.len() {
            return;
        }
        let mut both = Expression::from(0);
        for FullDomain {
            threads,
            mains,
            range,
        } in domains
        {
            let is_full = self.variables.add(variable().binary());
            let has_both = self.variables.add(variable().min(0).max(1));
            let (below, above) = (
                f64::from(full) - 1.0,
                f64::from(range.1) - f64::from(full) + 1.0,
            );
            self.constraints.push(if range == (full - 1, full) {
                constraint!(threads.clone() == below + is_full)
            } else {
                constraint!(threads.clone() <= below + above * is_full)
            });
            for main in &mains {
                self.constraints
                    .push(constraint!(has_both >= main.clone() + is_full - 1.0));
            }
            both += has_both;
            let derived = Derived::Full([is_full, has_both], threads, mains.iter().sum(), full);
            self.derived.push(derived);
        }
        self.constraints.push(constraint!(both <= most));
    }

    /// Solves the program from a start that keeps it. The objective never exceeds `magnitude`, nor
    /// falls below its negative.
    pub(crate) fn solve(
        mut self,
        start: &[WorkerColumns],
        magnitude: f64,
        seconds: f64,
    ) -> Option<Solved> {
        let start = self.start(start);
        let gap = (GAP / magnitude.max(1.0)) as f32;
        let objective = std::mem::take(&mut self.objective);
        let mut program = self.variables.maximise(objective).using(microlp);
        for constraint in self.constraints {
            program.add_constraint(constraint);
        }
        let program = program
            .with_initial_solution(start)
            .with_time_limit(seconds);
        let solution = program.with_mip_gap(gap).ok()?.solve().ok()?;
        let values = |row: &Vec<_>| row.iter().map(|&cell| solution.value(cell)).collect();
        let threads: Vec<Vec<f64>> = self.threads.iter().map(values).collect();
        let mains: Vec<Vec<f64>> = self.mains.iter().map(values).collect();
        let solution = solution.into_inner();
        let bound = solution
            .stats()
            .best_bound
            .filter(|bound| bound.is_finite());
        let whole = |bound: f64| (bound + 1e-6 * bound.abs().max(1.0)).floor();
        Some(Solved {
            workers: columns_of(&threads, &mains)?,
            proven: bound.is_some_and(|bound| whole(bound) <= solution.objective().round()),
        })
    }

    /// The values of all variables for such workers.
    fn start(&self, workers: &[WorkerColumns]) -> Vec<(Variable, f64)> {
        let mut values: HashMap<Variable, f64> = HashMap::new();
        for ((main, peers), (threads, mains)) in
            workers.iter().zip(self.threads.iter().zip(&self.mains))
        {
            for (column, (&thread, &main_here)) in threads.iter().zip(mains).enumerate() {
                let is_here = |at: &u16| usize::from(*at) == column;
                let mains = f64::from(u8::from(is_here(main)));
                let here = peers.iter().filter(|at| is_here(at)).count() as f64;
                values.insert(main_here, mains);
                values.insert(thread, mains + here);
            }
        }
        let mut start: Vec<(Variable, f64)> = Vec::new();
        for derived in &self.derived {
            derived.follow(&values, &mut start);
        }
        start.extend(values);
        start
    }
}

impl Derived {
    /// Adds what the decisions make of it.
    fn follow(&self, values: &HashMap<Variable, f64>, start: &mut Vec<(Variable, f64)>) {
        let whole = |items: &Expression| items.eval_with(values).round() as u32;
        match self {
            Self::Pairs(variable, items) => start.push((*variable, pairs(whole(items)) as f64)),
            Self::Steps(steps, items, least) => {
                let taken = whole(items) as usize;
                let value = |k: usize| f64::from(u8::from(least + k < taken));
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

/// The workers of a solution: a row of threads and a row of mains for each.
fn columns_of(threads: &[Vec<f64>], mains: &[Vec<f64>]) -> Option<Vec<WorkerColumns>> {
    let whole = |value: f64| value.round().max(0.0) as usize;
    let columns = |(threads, mains): (&Vec<f64>, &Vec<f64>)| {
        let main = mains.iter().position(|&main| whole(main) > 0)?;
        let mut peers: Vec<u16> = Vec::new();
        for (column, &thread) in threads.iter().enumerate() {
            let here = whole(thread).checked_sub(usize::from(column == main))?;
            peers.extend(std::iter::repeat_n(column as u16, here));
        }
        Some((main as u16, peers))
    };
    threads.iter().zip(mains).map(columns).collect()
}
