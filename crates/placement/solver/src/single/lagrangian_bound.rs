//! A Lagrangian bound that decouples workers and domains.
//!
//! **Problem.** Bound the value of all workers together on the levels of a group
//! (`domain_classes`). W times what one worker could reach alone is a bound, and so is what every
//! domain could make of its volume alone; the optimum is often below both. **Model.** A *part* is k
//! threads of one worker in one domain, with or without its main. Every domain partitions its
//! volume into parts, and every worker consists of one part of each domain, one of them with the
//! main. The coupling constraint is that both sides choose the same parts. **Approach.** Lagrangian
//! relaxation of that constraint (Geoffrion 1974) with one multiplier per (class, k, main or not):
//! workers are paid the multiplier of a part, domains get the value of the part minus the
//! multiplier, and pay for the closeness of their mains. For any multipliers, W times the best row
//! of parts (`best_row`, a knapsack over domains) plus the best partition of every domain
//! (`domain_subproblem`) is a bound. Multipliers equal to the values give the first bound above,
//! zeros the second. Better ones are found by the volume algorithm (Barahona and Anbil 2000), a
//! subgradient method that follows a mean of the subgradients. **Mains and volumes.** Where rule
//! (12+) binds, no two mains share a core, and only a limited number of the cores with mains may be
//! full: the volume of a domain with m mains is limited to its capacity minus the capacity that m
//! cores that are not full forgo (`Class::full_cores_needed`), and a worker whose main is on such a
//! core cannot have the whole core. Rule (12) has the same effect on cpus. The limits of both rules
//! are relaxed with a multiplier each. A main below both limits keeps both its core and its cpu
//! from being full, which on half cores requires more than each rule alone
//! (`Class::full_units_needed`). Peers that must share a cpu with a main are counted last, starting
//! from good multipliers. **Proof sketch.** Weak duality: in a mapping, parts taken and parts
//! offered are the same, so multipliers cancel, and each side is no better than its optimum. All
//! numbers are integers ([`SCALE`] units per cycle), so nothing is lost to rounding. **Limits.** At
//! most [`DUAL_STEPS_MAX`] steps; the bound holds at any multipliers. The constraint that a domain
//! has at most W parts is relaxed as well, by the multiplier of the part of 0 threads.

use crate::WorkBudget;
use crate::limits::{DUAL_IDLE_MAX, DUAL_STEPS_MAX, DUAL_WORK_MAX};
use crate::single::domain_classes::Class;
use crate::single::domain_subproblem::{domain_work, solve_domains};

/// Units of multipliers per clock cycle.
pub(crate) const SCALE: i64 = 1 << 10;
/// The value of an infeasible choice; below every sum.
pub(crate) const INFEASIBLE: i64 = i64::MIN / 4;

/// Sizes and limits that all domains share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dimensions {
    pub(crate) workers: i64,
    pub(crate) threads: usize,
    /// How many cores, and cpus, may be full and hold a main; `None` where the rule does not bind.
    pub(crate) full_main_limits: [Option<i64>; 2],
    /// Where rule (12) binds: number of peers that fit beside a main on a cpu that is not full.
    pub(crate) peers_beside_main: Option<i64>,
}

/// Lagrange multipliers, or a subgradient with respect to them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Multipliers {
    /// Multipliers of parts: `[class][main or not][k]`.
    pub(crate) parts: Vec<[Vec<i64>; 2]>,
    /// Multipliers of the limits on full cores, and on full cpus, that hold a main; nonnegative.
    pub(crate) full_mains: [i64; 2],
    /// By class, multiplier of the equation that the mains counted are the parts with a main.
    pub(crate) mains: Vec<i64>,
    /// By class, multiplier of the limit on peers beside mains; nonnegative.
    pub(crate) crowding: Vec<i64>,
}

impl Multipliers {
    fn from_fn(classes: &[Class], of: impl Fn(&Class, bool, usize) -> i64) -> Self {
        let row =
            |class: &Class, main| (0..class.value.len()).map(|k| of(class, main, k)).collect();
        Self {
            parts: classes
                .iter()
                .map(|class| [row(class, false), row(class, true)])
                .collect(),
            full_mains: [0; 2],
            crowding: vec![0; classes.len()],
            mains: vec![0; classes.len()],
        }
    }

    fn all(&self) -> impl Iterator<Item = i64> {
        let parts = self.parts.iter().flatten().flatten();
        let parts = parts.chain(&self.mains).chain(&self.crowding);
        parts.chain(&self.full_mains).copied()
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut i64> {
        let parts = self.parts.iter_mut().flatten().flatten();
        let parts = parts.chain(&mut self.mains).chain(&mut self.crowding);
        parts.chain(&mut self.full_mains)
    }
}

/// The dual function at some multipliers.
struct DualPoint {
    /// Its value, a bound, in units of multipliers.
    bound: i64,
    /// Parts that workers take minus parts that domains offer.
    subgradient: Multipliers,
}

/// A bound, in units of multipliers, and the multipliers that give it.
struct DualBound {
    bound: i64,
    multipliers: Multipliers,
}

/// The lowest bound found, in cycles; `goal` is a value that is known to be attainable.
pub(crate) fn minimize_dual(
    classes: &[Class],
    dimensions: Dimensions,
    goal: i64,
    budget: &mut WorkBudget,
) -> i64 {
    // crowding takes many more tables: it is counted only once multipliers are good
    let plain = Dimensions {
        peers_beside_main: None,
        ..dimensions
    };
    let mut best: Option<DualBound> = None;
    for halves in [2, 0, 1] {
        // the first is evaluated regardless of the budget: without a bound of one group, all others
        // are useless
        if budget.spend(work(classes, plain)) && best.is_some() {
            break;
        }
        let multipliers = initial_multipliers(classes, dimensions, halves);
        let bound = evaluate_dual(classes, plain, &multipliers).bound;
        if best.as_ref().is_none_or(|best| bound < best.bound) {
            best = Some(DualBound { bound, multipliers });
        }
    }
    let mut best = best.unwrap_or_else(|| DualBound {
        bound: i64::MAX,
        multipliers: initial_multipliers(classes, dimensions, 0),
    });
    follow_subgradient(classes, plain, goal, &mut best, budget);
    if dimensions.peers_beside_main.is_some() {
        follow_subgradient(classes, dimensions, goal, &mut best, budget);
    }
    best.bound.div_euclid(SCALE)
}

/// Initial multipliers of parts: their values times `halves` / 2.
fn initial_multipliers(classes: &[Class], dimensions: Dimensions, halves: i64) -> Multipliers {
    // without a payment for mains, domains would offer none
    let per_main = SCALE * marginal_main_cost(classes, dimensions);
    let mut multipliers = Multipliers::from_fn(classes, |class, main, k| {
        let loss = match main && dimensions.full_main_limits[0].is_some() {
            true => class.main_loss[k],
            false => 0,
        };
        (class.value[k] - loss) * SCALE * halves / 2 - i64::from(main) * per_main
    });
    multipliers.mains = vec![per_main; classes.len()];
    multipliers
}

/// Takes steps of the volume algorithm, starting from the best multipliers, as long as they lower
/// the bound; `best.bound` is in units of multipliers.
fn follow_subgradient(
    classes: &[Class],
    dimensions: Dimensions,
    goal: i64,
    best: &mut DualBound,
    budget: &mut WorkBudget,
) {
    let steps_of_one = work(classes, dimensions);
    let steps = match domains(classes) {
        1 => 0,
        _ => DUAL_STEPS_MAX.min(DUAL_WORK_MAX / steps_of_one),
    };
    let mut algorithm: Option<VolumeAlgorithm> = None;
    for _ in 0..steps {
        let is_idle = algorithm
            .as_ref()
            .is_some_and(|algorithm| algorithm.idle > DUAL_IDLE_MAX);
        if is_idle || best.bound.div_euclid(SCALE) <= goal || budget.spend(steps_of_one) {
            break;
        }
        let Some(algorithm) = &mut algorithm else {
            let point = evaluate_dual(classes, dimensions, &best.multipliers);
            best.bound = best.bound.min(point.bound);
            algorithm = Some(VolumeAlgorithm::new(&point.subgradient));
            continue;
        };
        let gap = best.bound - goal * SCALE;
        let Some(multipliers) = algorithm.step(&best.multipliers, gap) else {
            break;
        };
        let point = evaluate_dual(classes, dimensions, &multipliers);
        let is_better = point.bound < best.bound;
        algorithm.update(&point.subgradient, is_better);
        if is_better {
            let bound = point.bound;
            *best = DualBound { bound, multipliers };
        }
    }
}

/// Number of domains in all classes.
pub(crate) fn domains(classes: &[Class]) -> usize {
    classes.iter().map(|class| class.count).sum()
}

/// Steps of the dynamic programs in one evaluation of the dual.
fn work(classes: &[Class], dimensions: Dimensions) -> usize {
    let rows = |class: &Class| class.count * dimensions.threads * class.value.len() * 3 / 2;
    classes.iter().map(rows).sum::<usize>() + domain_work(classes, dimensions) + 1
}

/// The volume algorithm of Barahona and Anbil: steps along a mean of the subgradients, which
/// oscillates less than the last subgradient alone.
struct VolumeAlgorithm {
    mean: Vec<f64>,
    /// Factor of Polyak's step length.
    step_factor: f64,
    /// Consecutive steps that did not lower the bound.
    idle: u32,
}

impl VolumeAlgorithm {
    fn new(subgradient: &Multipliers) -> Self {
        Self {
            mean: subgradient.all().map(|x| x as f64).collect(),
            step_factor: 1.0,
            idle: 0,
        }
    }

    /// The next multipliers, given that the bound is `gap` above the goal; `None` if the mean is 0:
    /// the multipliers are then optimal.
    fn step(&self, from: &Multipliers, gap: i64) -> Option<Multipliers> {
        let square: f64 = self.mean.iter().map(|x| x * x).sum();
        if square < 1e-9 {
            return None;
        }
        let step = self.step_factor * gap as f64 / square;
        let mut next = from.clone();
        for (multiplier, mean) in next.all_mut().zip(&self.mean) {
            *multiplier -= (step * mean) as i64;
        }
        for multiplier in next.full_mains.iter_mut().chain(&mut next.crowding) {
            *multiplier = (*multiplier).max(0);
        }
        Some(next)
    }

    /// Adds a subgradient to the mean.
    fn update(&mut self, subgradient: &Multipliers, better: bool) {
        // the share that minimizes the length of the mean
        let (mut both, mut apart) = (0.0, 0.0);
        for (mean, new) in self.mean.iter().zip(subgradient.all()) {
            let more = new as f64 - mean;
            both -= mean * more;
            apart += more * more;
        }
        let share = if apart > 0.0 {
            (both / apart).clamp(0.03, 0.5)
        } else {
            0.5
        };
        for (mean, new) in self.mean.iter_mut().zip(subgradient.all()) {
            *mean += share * (new as f64 - *mean);
        }
        if better {
            self.idle = 0;
            self.step_factor = (self.step_factor * 1.1).min(2.0);
        } else {
            self.idle += 1;
            if self.idle.is_multiple_of(3) {
                self.step_factor *= 0.7;
            }
        }
    }
}

/// Evaluates the dual function: the optima of both sides at these multipliers.
fn evaluate_dual(
    classes: &[Class],
    dimensions: Dimensions,
    multipliers: &Multipliers,
) -> DualPoint {
    let mut subgradient = Multipliers::from_fn(classes, |_, _, _| 0);
    let limits = dimensions.full_main_limits.map(|limit| limit.unwrap_or(0));
    subgradient.full_mains = limits;
    let row = best_row(classes, dimensions, multipliers, &mut subgradient);
    let value = solve_domains(classes, dimensions, multipliers, &mut subgradient);
    let of_workers = dimensions.workers * row;
    let of_limits = limits[0] * multipliers.full_mains[0] + limits[1] * multipliers.full_mains[1];
    DualPoint {
        bound: of_workers.saturating_add(value) + of_limits,
        subgradient,
    }
}

/// Closeness that the last of all mains adds: for this payment, domains offer as many mains as
/// there are workers.
fn marginal_main_cost(classes: &[Class], dimensions: Dimensions) -> i64 {
    let mut costs: Vec<i64> = Vec::new();
    for class in classes {
        for pair in class.main_closeness.windows(2) {
            costs.extend(std::iter::repeat_n(pair[1] - pair[0], class.count));
        }
    }
    costs.sort_unstable();
    let last = (dimensions.workers as usize).min(costs.len());
    last.checked_sub(1).map_or(0, |last| costs[last])
}

/// Number of threads that a step of a dynamic program chose for a domain, and whether the main
/// thread is one of them, in one word.
#[derive(Clone, Copy, Default)]
pub(crate) struct Pick(u16);

impl Pick {
    const MAIN: u16 = 1 << 15;

    pub(crate) fn without_main(threads: usize) -> Self {
        Self(threads as u16)
    }

    pub(crate) fn with_main(threads: usize) -> Self {
        Self(threads as u16 | Self::MAIN)
    }

    pub(crate) fn threads(self) -> usize {
        usize::from(self.0 & !Self::MAIN)
    }

    pub(crate) fn has_main(self) -> bool {
        self.0 & Self::MAIN > 0
    }
}

/// The greatest payment to a worker for T threads, one part of each domain, one of them with its
/// main: a knapsack over domains. Adds the parts of all workers to the subgradient.
fn best_row(
    classes: &[Class],
    dimensions: Dimensions,
    multipliers: &Multipliers,
    subgradient: &mut Multipliers,
) -> i64 {
    let domains: Vec<usize> = classes
        .iter()
        .enumerate()
        .flat_map(|(at, class)| std::iter::repeat_n(at, class.count))
        .collect();
    let width = dimensions.threads + 1;
    // indexed by threads so far, before and after the main is placed
    let mut paid = [vec![INFEASIBLE; width], vec![INFEASIBLE; width]];
    paid[0][0] = 0;
    let mut choices: Vec<[Vec<Pick>; 2]> = Vec::with_capacity(domains.len());
    for &at in &domains {
        let [peers, mains] = &multipliers.parts[at];
        let mut choice = [vec![Pick::default(); width], vec![Pick::default(); width]];
        let mut next = [vec![INFEASIBLE; width], vec![INFEASIBLE; width]];
        for total in 0..width {
            for k in 0..peers.len().min(total + 1) {
                let before = total - k;
                for placed in [0, 1] {
                    let sum = paid[placed][before] + peers[k];
                    if sum > next[placed][total] {
                        next[placed][total] = sum;
                        choice[placed][total] = Pick::without_main(k);
                    }
                }
                let sum = paid[0][before] + mains[k];
                if k > 0 && sum > next[1][total] {
                    next[1][total] = sum;
                    choice[1][total] = Pick::with_main(k);
                }
            }
        }
        paid = next;
        choices.push(choice);
    }
    let (mut placed, mut left) = (1, dimensions.threads);
    for (&at, choice) in domains.iter().zip(&choices).rev() {
        let part = choice[placed][left];
        let (main, k) = (usize::from(part.has_main()), part.threads());
        subgradient.parts[at][main][k] += dimensions.workers;
        placed -= main.min(placed);
        left -= k.min(left);
    }
    paid[1][dimensions.threads]
}
