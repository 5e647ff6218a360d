//! Common parts of the integer programs for one deployment and for several.
//!
//! The only decision variables are `x[w,c]`, the threads of a worker on a cpu, and `m[w,c]`, its
//! main; every other variable is determined by them and records how ([`Derived`]), so that a known
//! placement can be passed to microlp as a start. Pairs are counted per domain: if closeness is
//! minimized, by the tangents of x(x-1)/2; if it is maximized, by binary steps that must be taken
//! in order. Both are exact at integers. Objective values are integers, so microlp is given a gap
//! below one clock cycle: with `|objective| <= magnitude`, a relative gap of 0.9 / magnitude is an
//! absolute one below 0.9. It computes in floating point, so its bound is rounded down with a
//! relative tolerance of 1e-6.

use std::collections::HashMap;

use good_lp::solvers::microlp::microlp;
use good_lp::{
    Constraint, Expression, ProblemVariables, Solution, SolverModel, Variable, WithInitialSolution,
    WithMipGap, WithTimeLimit, constraint, variable,
};

use crate::levels::pairs;

/// Gap for microlp in cycles: below 1, so that no integer lies between objective and bound.
const GAP: f64 = 0.9;

/// Column of a worker's main, and columns of its peers.
pub(crate) type WorkerColumns = (u16, Vec<u16>);

/// Result of microlp.
pub(crate) struct Solved {
    pub(crate) workers: Vec<WorkerColumns>,
    pub(crate) proven: bool,
}

/// A cpu or core that may be full.
pub(crate) struct FullDomain {
    pub(crate) threads: Expression,
    /// Groups of mains; at most one main of each group is here.
    pub(crate) mains: Vec<Expression>,
    /// Fewest and most threads that it holds.
    pub(crate) range: (u32, u32),
}

/// A variable that is determined by the decision variables.
enum Derived {
    /// x(x-1)/2 for the number of items.
    Pairs(Variable, Expression),
    /// Ordered binary steps: as many are 1 as there are items beyond a base.
    Steps(Vec<Variable>, Expression, usize),
    /// 1 if there are at least so many threads; and 1 if there is a main as well.
    Full([Variable; 2], Expression, Expression, u32),
}

/// The program under construction.
pub(crate) struct IntegerProgram {
    pub(crate) variables: ProblemVariables,
    objective: Expression,
    constraints: Vec<Constraint>,
    /// Threads of each worker on its cpus.
    pub(crate) threads: Vec<Vec<Variable>>,
    /// 1 in the column of each worker's main; columns as in `threads`.
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

    /// Adds pairs that cost, among at least `least` and at most `most` items: bounded below by
    /// every tangent of x(x-1)/2.
    pub(crate) fn add_pair_cost(
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

    /// Adds pairs that gain, among at least `least` and at most `most` items: the k-th item gains
    /// k-1 and requires all items before it.
    pub(crate) fn add_pair_reward(
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
        for (&step, earlier_items) in steps.iter().zip(least..) {
            if earlier_items > 0 {
                self.objective += gain * earlier_items as f64 * step;
            }
        }
        for pair in steps.windows(2) {
            self.constraints.push(constraint!(pair[1] <= pair[0]));
        }
        self.derived
            .push(Derived::Steps(steps, items.clone(), least));
    }

    /// Requires that the worker has its threads and one main, on a cpu with one of its threads.
    pub(crate) fn require_threads(&mut self, worker: usize, threads: usize) {
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

    /// Symmetry breaking between two interchangeable workers: the main of the first is in no later
    /// column.
    pub(crate) fn break_symmetry(&mut self, first: usize, second: usize) {
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

    /// At most `most` domains hold both `full` threads and a main. If a domain holds `full` or one
    /// less, the constraint is an equation: the same integer solutions, fewer fractional ones.
    pub(crate) fn limit_full_mains(&mut self, domains: Vec<FullDomain>, full: u32, most: u32) {
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

    /// Solves the program from a feasible start. The absolute value of the objective must not
    /// exceed `magnitude`.
    pub(crate) fn solve(
        mut self,
        start: &[WorkerColumns],
        magnitude: f64,
        seconds: f64,
    ) -> Option<Solved> {
        let start = self.initial_solution(start);
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

    /// Values of all variables for a placement of the workers.
    fn initial_solution(&self, workers: &[WorkerColumns]) -> Vec<(Variable, f64)> {
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
            derived.push_start_values(&values, &mut start);
        }
        start.extend(values);
        start
    }
}

impl Derived {
    /// Adds the values that follow from the decision variables.
    fn push_start_values(&self, values: &HashMap<Variable, f64>, start: &mut Vec<(Variable, f64)>) {
        let whole = |items: &Expression| items.eval_with(values).round() as u32;
        match self {
            Self::Pairs(variable, items) => start.push((*variable, pairs(whole(items)) as f64)),
            Self::Steps(steps, items, least) => {
                let count = whole(items) as usize;
                let value = |k: usize| f64::from(u8::from(least + k < count));
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

/// The workers of a solution, from a row of threads and a row of mains for each.
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
