//! Better assignments and better bounds in turn, until they meet.
//!
//! **Problem.** Many methods, 50 ms. **Approach.** The cheapest method first; on large machines
//! with several L3 caches, annealed constructions before anything that evaluates single threads:
//! there a local search costs as much as a construction and gains a hundredth of it. **Proof
//! sketch.** Every step keeps the best assignment and the lowest bound. **Limits.** Each step has
//! a limit of its own; the budget is asked between and in them.

use crate::assignment::assign;
use crate::bound::lagrangian_bound;
use crate::domains::{Domains, LEVELS};
use crate::enumeration::enumerate;
use crate::hierarchical_construction::construct;
use crate::limits::{ANNEALING_MOVES_MAX, CLIMB_WORK_MAX, CONSTRUCTION_SEEDS, LARGE_PROBLEM};
use crate::local_search::{Allowed, Search};
use crate::perturbation::perturb;
use crate::simulated_annealing::anneal_threads;
use crate::volumes::Volumes;
use crate::{Mode, Proof, ProvenBound};

/// Whether the choice of L3 caches dominates the problem.
fn is_large(domains: &Domains) -> bool {
    let size = domains.workers * domains.threads * domains.cpus;
    domains.mode == Mode::Compact && domains.count(LEVELS - 1) > 1 && size > LARGE_PROBLEM
}

/// The first assignment, and whether it is annealed: workers laid end to end where that reaches the
/// bound, else the better of that and a second construction.
pub(crate) fn start<'a>(
    domains: &'a Domains,
    allowed: &Allowed,
    volumes: &Volumes,
    bound: i64,
    out_of_budget: &mut dyn FnMut() -> bool,
) -> (Search<'a>, bool) {
    let plain = construct(domains, allowed, 0, out_of_budget)
        .and_then(|mut plain| (plain.repair(out_of_budget) && plain.is_valid()).then_some(plain));
    if let Some(plain) = plain.as_ref().filter(|plain| plain.objective() >= bound) {
        return (plain.clone(), false);
    }
    let goal = Goal {
        seed: CONSTRUCTION_SEEDS[0],
        bound,
    };
    let annealed = is_large(domains)
        .then(|| annealed_start(domains, allowed, goal, out_of_budget))
        .flatten();
    let is_annealed = annealed.is_some();
    let other = annealed.unwrap_or_else(|| {
        let greedy = assign(domains, volumes, out_of_budget);
        Search::of(domains, allowed, &greedy)
    });
    match plain.filter(|plain| plain.objective() > other.objective()) {
        Some(plain) => (plain, false),
        None => (other, is_annealed),
    }
}

/// The random seed of a construction, and the value at which annealing may stop.
#[derive(Clone, Copy)]
struct Goal {
    seed: u64,
    bound: i64,
}

/// An annealed construction with its violations repaired; `None` if that failed.
fn annealed_start<'a>(
    domains: &'a Domains,
    allowed: &Allowed,
    goal: Goal,
    out_of_budget: &mut dyn FnMut() -> bool,
) -> Option<Search<'a>> {
    let mut found = construct(domains, allowed, goal.seed, out_of_budget)?;
    found.repair(out_of_budget);
    if found.violation() > 0 {
        anneal_threads(
            &mut found,
            goal.bound,
            ANNEALING_MOVES_MAX / 4,
            out_of_budget,
        );
    }
    found.is_valid().then_some(found)
}

/// The best assignment and the lowest bound so far.
pub(crate) struct SearchDriver<'a> {
    pub(crate) best: Search<'a>,
    pub(crate) upper: ProvenBound,
}

impl SearchDriver<'_> {
    /// Runs all methods until value and bound meet. Where the mapping in force has the value
    /// `in_force`, no less than a local search reaches, an earlier search has found it: the long
    /// searches are not repeated.
    pub(crate) fn run(
        &mut self,
        is_annealed: bool,
        in_force: Option<i64>,
        out_of_budget: &mut dyn FnMut() -> bool,
    ) {
        let large = is_large(self.best.domains);
        let work = CLIMB_WORK_MAX / if large { 4 } else { 1 };
        let steps = work / (self.best.threads() + self.best.domains.cpus) + 1;
        let before = self.best.objective();
        climb_sample(&mut self.best, self.upper.bound, steps, out_of_budget);
        let is_improved = self.best.objective() > before;
        self.tighten(out_of_budget);
        let again = in_force.is_some_and(|value| value >= self.best.objective());
        let seeds = if again { 1 } else { CONSTRUCTION_SEEDS.len() };
        let first = usize::from(large && (is_annealed || is_improved));
        for &seed in CONSTRUCTION_SEEDS.iter().take(seeds).skip(first) {
            if self.is_over(out_of_budget) {
                return;
            }
            self.restart(seed, steps, out_of_budget);
        }
        // before the long searches: a small problem reaches this point in a few milliseconds
        self.prove(out_of_budget);
        if again || self.is_over(out_of_budget) {
            return;
        }
        let (best, bound) = (&mut self.best, self.upper.bound);
        anneal_threads(best, bound, ANNEALING_MOVES_MAX, out_of_budget);
        perturb(best, bound, out_of_budget);
    }

    /// Lowers the bound by Lagrangian relaxation.
    fn tighten(&mut self, out_of_budget: &mut dyn FnMut() -> bool) {
        let bound = lagrangian_bound(&self.best, self.upper.bound, out_of_budget);
        self.upper = self.upper.lowered(bound, Proof::Lagrangian);
    }

    fn is_over(&self, out_of_budget: &mut dyn FnMut() -> bool) -> bool {
        self.best.objective() >= self.upper.bound || out_of_budget()
    }

    /// An annealed construction from another seed, then local search.
    fn restart(&mut self, seed: u64, steps: usize, out_of_budget: &mut dyn FnMut() -> bool) {
        let Search {
            domains, allowed, ..
        } = self.best;
        let goal = Goal {
            seed,
            bound: self.upper.bound,
        };
        let Some(mut other) = annealed_start(domains, &allowed, goal, out_of_budget) else {
            return;
        };
        climb_sample(&mut other, self.upper.bound, steps, out_of_budget);
        if other.objective() > self.best.objective() {
            self.best = other;
        }
    }

    /// Enumerates all assignments where they are few.
    fn prove(&mut self, out_of_budget: &mut dyn FnMut() -> bool) {
        if self.is_over(out_of_budget) {
            return;
        }
        let Some(better) = enumerate(&self.best, out_of_budget) else {
            return;
        };
        if let Some(better) = better {
            self.best = better;
        }
        self.upper = self.upper.lowered(self.best.objective(), Proof::Search);
    }
}

/// Local search for so many steps at most.
fn climb_sample(
    search: &mut Search<'_>,
    goal: i64,
    steps: usize,
    out_of_budget: &mut dyn FnMut() -> bool,
) {
    let mut taken = 0;
    search.climb(goal, &mut || {
        taken += 1;
        taken > steps || out_of_budget()
    });
}
