//! Simulated annealing on counts: distributes the threads of many workers over a few domains.
//!
//! **Problem.** How many threads of each worker, and which mains, go to each of the domains inside
//! one node of the tree: a greedy assignment, one worker after the other, gets this wrong where
//! whole workers, volumes and mains compete. **Approach.** Counts only: moving any number of a
//! worker's threads from one domain to another, in exchange for those of a second worker or alone,
//! changes a few terms. The value of a count is taken from `domain_classes`, as if the inside of
//! each domain could be arranged at will. Violated volumes cost a penalty above anything that they
//! could gain. **Proof sketch.** None is needed: the result is assigned and counted like any other
//! start. **Limits.** A fixed number of moves with a fixed random seed.

use albacore_values::XorShift64;

use crate::WorkBudget;
use crate::single::domain_classes::Class;

/// The threads of one worker that are distributed, and whether its main is among them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkerPart {
    pub(crate) worker: usize,
    pub(crate) threads: u32,
    pub(crate) main: bool,
}

/// The subproblem of one node of the tree.
pub(crate) struct Subproblem<'a> {
    /// The class of each child domain.
    pub(crate) children: Vec<&'a Class>,
    pub(crate) parts: &'a [WorkerPart],
    /// How many cores, and cpus, may be full and hold a main; `None` where the rule does not bind.
    pub(crate) full_main_limits: [Option<i64>; 2],
    /// Where few cpus with a main may be full: how many threads the others hold beside their mains.
    pub(crate) peers_beside_main: Option<i64>,
}

/// A distribution of the parts over the children.
#[derive(Clone)]
pub(crate) struct Distribution {
    /// `held[part * children + child]`.
    pub(crate) held: Vec<u16>,
    /// The child that has the main of each part that has one.
    pub(crate) main: Vec<u16>,
    volume: Vec<i64>,
    mains: Vec<i64>,
    /// Threads that must share cpus with mains, because the other cpus of the child are too few.
    beside: Vec<i64>,
    /// How many cores, and cpus, of each child must be full and hold a main, and how many more
    /// of either kind.
    needs: Vec<[i64; 3]>,
}

impl Distribution {
    /// Counts a distribution.
    pub(crate) fn of(node: &Subproblem<'_>, held: Vec<u16>, main: Vec<u16>) -> Self {
        let width = node.children.len();
        let mut counts = Self {
            held,
            main,
            volume: vec![0; width],
            mains: vec![0; width],
            beside: vec![0; width],
            needs: vec![[0; 3]; width],
        };
        for (at, part) in node.parts.iter().enumerate() {
            for child in 0..width {
                counts.volume[child] += i64::from(counts.held[at * width + child]);
            }
            if part.main {
                counts.mains[usize::from(counts.main[at])] += 1;
            }
        }
        for child in 0..width {
            counts.count_beside(node, child);
            counts.count_needs(node, child);
        }
        counts
    }

    fn count_needs(&mut self, node: &Subproblem<'_>, child: usize) {
        let class = node.children[child];
        let (volume, mains) = (self.volume[child], self.mains[child]);
        let cores = class.full_cores_needed(volume, mains);
        let cpus = class.full_cpus_needed(volume, mains);
        let cpus = cpus.max(self.full_cpus_needed_for_room(node, child));
        let more = class.full_units_needed(volume, mains) - cores - cpus;
        self.needs[child] = [cores, cpus, more.max(0)];
    }

    /// How many cpus with a main must be full so that there is room for all threads that must go
    /// beside mains.
    fn full_cpus_needed_for_room(&self, node: &Subproblem<'_>, child: usize) -> i64 {
        let (Some(each), mains) = (node.peers_beside_main, self.mains[child]) else {
            return 0;
        };
        let excess = self.beside[child] - each * mains;
        if excess <= 0 || node.full_main_limits[1] == Some(0) {
            return excess.max(0);
        }
        // each makes room for one thread of every part that lacks room, and takes away its own
        let short = (0..node.parts.len())
            .filter(|&part| self.must_go_beside(node, part, child) > 0)
            .count() as i64;
        let eased = (short - each).max(1);
        ((excess + eased - 1) / eased).min(mains)
    }

    /// The limits on full units of each child: its need, and its share of the rest.
    pub(crate) fn full_main_limits(&self, node: &Subproblem<'_>) -> Vec<[Option<i64>; 2]> {
        let width = node.children.len();
        let of = |child: usize, rule: usize| {
            let full_main_limits = node.full_main_limits[rule]?;
            // full units of either kind are split in halves between cores and cpus
            let wants = |needs: &[i64; 3]| needs[rule] + (needs[2] + rule as i64) / 2;
            let needed: i64 = self.needs.iter().map(wants).sum();
            let rest = (full_main_limits - needed).max(0) as usize;
            let share = rest * (child + 1) / width - rest * child / width;
            Some(wants(&self.needs[child]) + share as i64)
        };
        (0..width)
            .map(|child| [of(child, 0), of(child, 1)])
            .collect()
    }

    fn count_beside(&mut self, node: &Subproblem<'_>, child: usize) {
        if node.peers_beside_main.is_some() {
            let parts = 0..node.parts.len();
            self.beside[child] = parts
                .map(|part| self.must_go_beside(node, part, child))
                .sum();
        }
    }

    /// Number of threads of a part that must go to cpus of the child that hold mains of others.
    fn must_go_beside(&self, node: &Subproblem<'_>, part: usize, child: usize) -> i64 {
        let main = node.parts[part].main && usize::from(self.main[part]) == child;
        let held = i64::from(self.held[part * node.children.len() + child]);
        let apart = i64::from(node.children[child].cpus) - self.mains[child];
        (held - i64::from(main) - apart).max(0)
    }
}

struct Annealing<'a> {
    node: &'a Subproblem<'a>,
    counts: Distribution,
    width: usize,
    penalty: i64,
    /// Cores, and cpus, that must be full and hold a main, and how many more of either kind, over
    /// all children.
    excess: [i64; 3],
    /// Whether a limit on full units couples mains and volumes.
    coupled: bool,
}

/// A move: `count` threads of `part` from a child to another.
#[derive(Clone, Copy)]
struct CountMove {
    part: usize,
    from: usize,
    to: usize,
    count: u16,
    main: bool,
}

/// The best distribution found, and whether it is within all limits.
pub(crate) fn anneal_counts(
    node: &Subproblem<'_>,
    start: Distribution,
    moves: usize,
    seed: u64,
    budget: &mut WorkBudget,
) -> (Distribution, bool) {
    let marginal = |class: &&Class| {
        let steps = class.value.windows(2).map(|pair| (pair[1] - pair[0]).abs());
        steps.max().unwrap_or(0)
    };
    let steep = node.children.iter().map(marginal).max().unwrap_or(0).max(1);
    let mut annealing = Annealing {
        width: node.children.len(),
        penalty: steep + steep / 4 + 1,
        excess: [0; 3],
        coupled: node.full_main_limits[0]
            .or(node.full_main_limits[1])
            .is_some(),
        node,
        counts: start,
    };
    for child in 0..annealing.width {
        annealing.count_above(child, 1);
    }
    let mut random = XorShift64::new(seed | 1);
    let mut best: Option<(i64, Distribution)> = None;
    let mut cost = 0i64;
    let (hot, cold) = (steep as f64 * 0.7, 1.0f64.max(steep as f64 * 0.01));
    let cooling = (cold / hot).powf(1.0 / (moves as f64 / 64.0).max(1.0));
    let mut temperature = hot;
    for iteration in 0..moves {
        if iteration % 64 == 0 {
            temperature *= cooling;
            if iteration % 1_024 == 0 && budget.spend(60 * 1_024) {
                break;
            }
        }
        let Some(steps) = annealing.propose(&mut random) else {
            continue;
        };
        let change = annealing.try_steps(&steps);
        let chance = random.below(1 << 20) as f64 / f64::from(1 << 20);
        if change <= 0 || chance < (-(change as f64) / temperature).exp() {
            cost += change;
            if best.as_ref().is_none_or(|best| cost < best.0) && annealing.is_within_limits() {
                best = Some((cost, annealing.counts.clone()));
            }
        } else {
            for step in steps.iter().rev().flatten() {
                annealing.apply(CountMove {
                    from: step.to,
                    to: step.from,
                    ..*step
                });
            }
        }
    }
    match best {
        Some((_, counts)) => (counts, true),
        None => {
            let is_within_limits = annealing.is_within_limits();
            (annealing.counts, is_within_limits)
        }
    }
}

impl Annealing<'_> {
    /// Proposes one step, or two in opposite directions.
    fn propose(&self, random: &mut XorShift64) -> Option<[Option<CountMove>; 2]> {
        let width = self.width;
        let (from, to) = (random.below(width), random.below(width));
        if from == to {
            return None;
        }
        let part = random.below(self.node.parts.len());
        if random.below(8) == 0 {
            return self
                .main_step(part, from, to)
                .map(|step| [Some(step), None]);
        }
        let most = self.movable(part, from, to);
        if most == 0 {
            return None;
        }
        let some = |most: u16, random: &mut XorShift64| match random.below(3) {
            0 => most,
            1 => 1,
            _ => 1 + random.below(most.into()) as u16,
        };
        let count = some(most, random);
        let step = |part, from, to, count| CountMove {
            part,
            from,
            to,
            count,
            main: false,
        };
        let first = self.with_main(step(part, from, to, count));
        let other = random.below(self.node.parts.len());
        if other == part || random.below(6) == 0 {
            return Some([Some(first), None]);
        }
        let back = self.movable(other, to, from);
        if back == 0 {
            return Some([Some(first), None]);
        }
        let count = match random.below(4) {
            0 => some(back, random),
            _ => back.min(count),
        };
        let second = self.with_main(step(other, to, from, count));
        Some([Some(first), Some(second)])
    }

    /// Number of threads of a part that can move.
    fn movable(&self, part: usize, from: usize, to: usize) -> u16 {
        let held = |child: usize| self.counts.held[part * self.width + child];
        let cap = self.node.children[to].capacity.per_worker as u16;
        held(from).min(cap.saturating_sub(held(to)))
    }

    /// The main moves as well if no other thread of the part stays.
    fn with_main(&self, step: CountMove) -> CountMove {
        let here = self.node.parts[step.part].main
            && usize::from(self.counts.main[step.part]) == step.from;
        let all = self.counts.held[step.part * self.width + step.from] == step.count;
        CountMove {
            main: here && all,
            ..step
        }
    }

    /// Moves only the main.
    fn main_step(&self, part: usize, _: usize, to: usize) -> Option<CountMove> {
        let from = usize::from(self.counts.main[part]);
        let ok = self.node.parts[part].main
            && from != to
            && self.counts.held[part * self.width + to] > 0;
        ok.then_some(CountMove {
            part,
            from,
            to,
            count: 0,
            main: true,
        })
    }

    fn try_steps(&mut self, steps: &[Option<CountMove>; 2]) -> i64 {
        let Some(first) = steps[0] else {
            return 0;
        };
        let before = self.cost_of(steps, first);
        for step in steps.iter().flatten() {
            self.apply(*step);
        }
        self.cost_of(steps, first) - before
    }

    fn apply(&mut self, step: CountMove) {
        let (a, b) = (step.from, step.to);
        self.count_above(a, -1);
        self.count_above(b, -1);
        let strict = self.node.peers_beside_main.is_some();
        if strict && !step.main {
            for child in [a, b] {
                let now = self.counts.must_go_beside(self.node, step.part, child);
                self.counts.beside[child] -= now;
            }
        }
        let at = step.part * self.width;
        self.counts.held[at + a] -= step.count;
        self.counts.held[at + b] += step.count;
        self.counts.volume[a] -= i64::from(step.count);
        self.counts.volume[b] += i64::from(step.count);
        if step.main {
            self.counts.main[step.part] = b as u16;
            self.counts.mains[a] -= 1;
            self.counts.mains[b] += 1;
        }
        for child in [a, b] {
            if strict && step.main {
                self.counts.count_beside(self.node, child);
            } else if strict {
                let now = self.counts.must_go_beside(self.node, step.part, child);
                self.counts.beside[child] += now;
            }
        }
        for child in [a, b] {
            self.counts.count_needs(self.node, child);
            self.count_above(child, 1);
        }
    }

    /// All terms that the steps change; both steps are between the same two children.
    fn cost_of(&self, steps: &[Option<CountMove>; 2], first: CountMove) -> i64 {
        let mut sum = self.child_cost(first.from) + self.child_cost(first.to);
        sum += self.penalty * self.beyond_limits();
        for step in steps.iter().flatten() {
            for child in [first.from, first.to] {
                let class = self.node.children[child];
                let k = usize::from(self.counts.held[step.part * self.width + child]);
                sum -= class.value[k];
                let main = self.coupled
                    && self.node.parts[step.part].main
                    && usize::from(self.counts.main[step.part]) == child;
                if main {
                    sum += class.main_loss[k];
                }
            }
        }
        sum
    }

    fn child_cost(&self, child: usize) -> i64 {
        let class = self.node.children[child];
        let (volume, mains) = (self.counts.volume[child], self.counts.mains[child]);
        let capacity = class.capacity;
        let off = (i64::from(capacity.least) - volume)
            .max(volume - i64::from(capacity.most))
            .max(0);
        let last = class.main_closeness.len() as i64 - 1;
        let crowd = (mains - last).max(0);
        self.penalty * (off + crowd) + class.main_closeness[mains.min(last) as usize]
    }

    /// Adds or subtracts the full units that a child needs.
    fn count_above(&mut self, child: usize, sign: i64) {
        let needs = self.counts.needs[child];
        for (excess, needed) in self.excess.iter_mut().zip(needs) {
            *excess += sign * needed;
        }
    }

    /// Number of full units with a main beyond the limits.
    fn beyond_limits(&self) -> i64 {
        let [cores, cpus] = self.node.full_main_limits;
        let above = |full_main_limits: Option<i64>, needed: i64| {
            full_main_limits.map_or(0, |full_main_limits| (needed - full_main_limits).max(0))
        };
        let [of_cores, of_cpus, more] = self.excess;
        let both = cores.and_then(|cores| Some(cores + cpus?));
        let either = above(both, of_cores + of_cpus + more).min(more);
        above(cores, of_cores) + above(cpus, of_cpus) + either
    }

    fn is_within_limits(&self) -> bool {
        let within = (0..self.width).all(|child| {
            let (volume, class) = (self.counts.volume[child], self.node.children[child]);
            (i64::from(class.capacity.least)..=i64::from(class.capacity.most)).contains(&volume)
                && self.counts.mains[child] < class.main_closeness.len() as i64
        });
        within && self.beyond_limits() == 0
    }
}
