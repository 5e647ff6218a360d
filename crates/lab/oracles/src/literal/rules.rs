//! The constraints of the article, one function each, with their numbers; `+` marks those for
//! physical cores, which the article derives "by near similar reasoning" and does not print.

use albacore_solver::Problem;
use good_lp::{Constraint, Expression, ProblemVariables, Variable, constraint, variable};

/// Number of rules that may be relaxed: (8+), mains-per-core, (12), (12+), in this order.
pub(super) const RULES: usize = 4;

/// State of the slack of a rule.
#[derive(Clone, Copy)]
pub(super) enum Slack {
    Free,
    Fixed(u32),
}

/// Threads whose number per core is bounded.
#[derive(Clone, Copy)]
pub(super) enum OnCore {
    /// All threads: (8+).
    Threads,
    /// Mains: mains-per-core.
    Mains,
}

/// `Y` and the rules.
pub(super) struct Rules {
    pub(super) variables: ProblemVariables,
    pub(super) constraints: Vec<Constraint>,
    /// `Y[w][t][c]`.
    pub(super) places: Vec<Vec<Vec<Variable>>>,
    /// Slack added to each right-hand side.
    pub(super) slacks: [Expression; RULES],
    free: [Option<Variable>; RULES],
    fixed: [Option<u32>; RULES],
    size: Size,
}

/// W, T, C and P, and the cpus of each core.
struct Size {
    workers: u32,
    threads: u32,
    cpus: u32,
    cores: Vec<Vec<usize>>,
}

impl Size {
    fn of(problem: &Problem) -> Self {
        let mut cores = std::collections::BTreeMap::<u32, Vec<usize>>::new();
        for (index, cpu) in problem.topology.cpus().iter().enumerate() {
            cores.entry(cpu.core).or_default().push(index);
        }
        Self {
            workers: problem.workers.into(),
            threads: problem.threads.into(),
            cpus: problem.topology.cpus().len() as u32,
            cores: cores.into_values().collect(),
        }
    }

    fn slots(&self) -> u32 {
        self.workers * self.threads
    }

    /// Right-hand side of (12) for `units` cpus or cores; `None` if the rule does not apply.
    fn max_full_units_with_main(&self, units: u32) -> Option<u32> {
        let rest = self.slots() % units;
        let applies = rest > 0 && self.slots() > units && self.workers <= units;
        applies.then(|| (self.workers + rest).saturating_sub(units))
    }
}

impl Rules {
    /// All constraints, with free or fixed slacks.
    pub(super) fn of(problem: &Problem, slacks: &[Slack; RULES]) -> Self {
        let size = Size::of(problem);
        let mut variables = ProblemVariables::new();
        let places = (0..size.workers)
            .map(|_| {
                let row = |_| variables.add_vector(variable().binary(), size.cpus as usize);
                (0..size.threads).map(row).collect()
            })
            .collect();
        let mut free = [None; RULES];
        let mut fixed = [None; RULES];
        for (rule, slack) in slacks.iter().enumerate() {
            match *slack {
                Slack::Fixed(amount) => fixed[rule] = Some(amount),
                Slack::Free => {
                    let slack = variable().integer().min(0).max(size.slots());
                    free[rule] = Some(variables.add(slack));
                }
            }
        }
        let added = |rule: usize| match free[rule] {
            Some(variable) => Expression::from(variable),
            None => Expression::from(f64::from(fixed[rule].unwrap_or(0))),
        };
        let mut rules = Self {
            variables,
            constraints: Vec::new(),
            places,
            slacks: std::array::from_fn(added),
            free,
            fixed,
            size,
        };
        rules.one_cpu_for_each_thread();
        rules.equal_ranks_apart();
        rules.worker_apart();
        rules.volume_of_cpus();
        rules.volume_of_cores();
        rules.mains_of_cores();
        rules.overloaded_mains_of_cpus();
        rules.overloaded_mains_of_cores();
        rules
    }

    /// The slacks to be determined, and the fixed ones.
    pub(super) fn free_slacks(&self) -> (Vec<Variable>, [Option<u32>; RULES]) {
        (self.free.iter().flatten().copied().collect(), self.fixed)
    }

    /// Maximum number of threads or mains on one core, given the fixed slacks.
    pub(super) fn max_per_core(&self, which: OnCore) -> u32 {
        let (most, slack) = match which {
            OnCore::Threads => (self.core_volume().1, self.fixed[0]),
            OnCore::Mains => (self.core_mains(), self.fixed[1]),
        };
        most + slack.unwrap_or(self.size.slots())
    }

    /// Per cpu, the number of its threads for which `counts(worker, rank)` is true.
    pub(super) fn threads_per_cpu(&self, counts: impl Fn(usize, usize) -> bool) -> Vec<Expression> {
        let mut held = vec![Expression::from(0); self.size.cpus as usize];
        for (worker, ranks) in self.places.iter().enumerate() {
            for (rank, cpus) in ranks.iter().enumerate() {
                if counts(worker, rank) {
                    for (sum, &place) in held.iter_mut().zip(cpus) {
                        *sum += place;
                    }
                }
            }
        }
        held
    }

    /// The same for each core.
    fn threads_per_core(&self, counts: impl Fn(usize, usize) -> bool) -> Vec<Expression> {
        let held = self.threads_per_cpu(counts);
        let sum = |core: &Vec<usize>| core.iter().map(|&cpu| held[cpu].clone()).sum();
        self.size.cores.iter().map(sum).collect()
    }

    fn at_most(&mut self, sums: Vec<Expression>, most: &Expression) {
        let rows = sums.into_iter().map(|sum| constraint!(sum <= most.clone()));
        self.constraints.extend(rows);
    }

    fn at_least(&mut self, sums: Vec<Expression>, least: &Expression) {
        let rows = sums
            .into_iter()
            .map(|sum| constraint!(sum >= least.clone()));
        self.constraints.extend(rows);
    }

    /// (1)
    fn one_cpu_for_each_thread(&mut self) {
        for cpus in self.places.iter().flatten() {
            let all: Expression = cpus.iter().sum();
            self.constraints.push(constraint!(all == 1.0));
        }
    }

    /// (2), at most ceil(W/C) where W > C.
    fn equal_ranks_apart(&mut self) {
        let most = Expression::from(f64::from(self.size.workers.div_ceil(self.size.cpus)));
        for rank in 0..self.size.threads as usize {
            self.at_most(self.threads_per_cpu(|_, other| other == rank), &most);
        }
    }

    /// (3), at most ceil(T/C) where T > C.
    fn worker_apart(&mut self) {
        let most = Expression::from(f64::from(self.size.threads.div_ceil(self.size.cpus)));
        for worker in 0..self.size.workers as usize {
            self.at_most(self.threads_per_cpu(|other, _| other == worker), &most);
        }
    }

    /// (8)
    fn volume_of_cpus(&mut self) {
        let (lower, upper) = self.cpu_volume();
        let held = self.threads_per_cpu(|_, _| true);
        self.at_least(held.clone(), &f64::from(lower).into());
        self.at_most(held, &f64::from(upper).into());
    }

    /// (8+)
    fn volume_of_cores(&mut self) {
        let (lower, upper) = self.core_volume();
        let held = self.threads_per_core(|_, _| true);
        let slack = self.slacks[0].clone();
        self.at_least(held.clone(), &(f64::from(lower) - slack.clone()));
        self.at_most(held, &(f64::from(upper) + slack));
    }

    /// mains-per-core
    fn mains_of_cores(&mut self) {
        let most = self.core_mains();
        let held = self.threads_per_core(|_, rank| rank == 0);
        let slack = self.slacks[1].clone();
        self.at_most(held, &(f64::from(most) + slack));
    }

    /// (9)-(12): `M[c]`: c has a main; `E[c]` = (n[c] - L) M[c], written as a product of binaries.
    fn overloaded_mains_of_cpus(&mut self) {
        let Some(most) = self.size.max_full_units_with_main(self.size.cpus) else {
            return;
        };
        let (lower, _) = self.cpu_volume();
        let volumes = self.threads_per_cpu(|_, _| true);
        let mut events = Expression::from(0);
        for (cpu, volume) in volumes.into_iter().enumerate() {
            let mains: Vec<Variable> = self.places.iter().map(|ranks| ranks[0][cpu]).collect();
            let is_held = self.variables.add(variable().binary());
            for &main in &mains {
                self.constraints.push(constraint!(is_held >= main)); // (9)
            }
            let all: Expression = mains.iter().sum();
            self.constraints.push(constraint!(is_held <= all)); // (10)
            let over = volume - f64::from(lower);
            let event = self.variables.add(variable().min(0).max(1)); // (11)
            self.constraints.push(constraint!(event <= over.clone()));
            self.constraints.push(constraint!(event <= is_held));
            self.constraints
                .push(constraint!(event >= over + is_held - 1.0));
            events += event;
        }
        let slack = self.slacks[2].clone();
        let most = f64::from(most) + slack;
        self.constraints.push(constraint!(events <= most)); // (12)
    }

    /// (9)-(12) for cores. If (8+) is relaxed, a core may hold other numbers than L+ or U+ threads,
    /// so "holds U+ or more" is a separate binary.
    fn overloaded_mains_of_cores(&mut self) {
        let Some(most) = self
            .size
            .max_full_units_with_main(self.size.cores.len() as u32)
        else {
            return;
        };
        let (_, upper) = self.core_volume();
        let volumes = self.threads_per_core(|_, _| true);
        let mains = self.threads_per_core(|_, rank| rank == 0);
        let mut events = Expression::from(0);
        for (core, (volume, mains)) in volumes.into_iter().zip(mains).enumerate() {
            let room = self.size.cores[core].len() as u32 * self.cpu_volume().1;
            let most = self.fixed[0].map_or(room, |slack| room.min(upper + slack));
            let is_full = self.variables.add(variable().binary());
            let below = f64::from(upper) - 1.0;
            let above = f64::from(most.max(upper)) - below;
            self.constraints
                .push(constraint!(volume <= below + above * is_full));
            let is_held = self.variables.add(variable().binary());
            for worker in 0..self.size.workers as usize {
                let own = &self.places[worker][0];
                let main: Expression = self.size.cores[core].iter().map(|&cpu| own[cpu]).sum();
                self.constraints.push(constraint!(is_held >= main)); // (9+)
            }
            self.constraints.push(constraint!(is_held <= mains)); // (10+)
            let event = self.variables.add(variable().min(0).max(1)); // (11+)
            self.constraints.push(constraint!(event <= is_full));
            self.constraints.push(constraint!(event <= is_held));
            self.constraints
                .push(constraint!(event >= is_full + is_held - 1.0));
            events += event;
        }
        let slack = self.slacks[3].clone();
        let most = f64::from(most) + slack;
        self.constraints.push(constraint!(events <= most)); // (12+)
    }

    /// ceil(W/P)
    fn core_mains(&self) -> u32 {
        self.size.workers.div_ceil(self.size.cores.len() as u32)
    }

    fn cpu_volume(&self) -> (u32, u32) {
        let (slots, cpus) = (self.size.slots(), self.size.cpus);
        (slots / cpus, slots.div_ceil(cpus))
    }

    fn core_volume(&self) -> (u32, u32) {
        let (slots, cores) = (self.size.slots(), self.size.cores.len() as u32);
        (slots / cores, slots.div_ceil(cores))
    }
}
