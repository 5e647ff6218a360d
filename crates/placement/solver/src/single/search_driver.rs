//! Improves assignment and bound in turn, until they meet.
//!
//! **Problem.** Many methods, 50 ms. **Approach.** The cheapest method first; on large machines
//! with several L3 caches, annealed constructions before anything that evaluates single threads,
//! because a local search costs as much as a construction there and gains a hundredth of it.
//! **Proof sketch.** Every step keeps the best assignment and the lowest bound. **Limits.** Each
//! step has its own limit; the budget is checked between and within steps.

use crate::limits::{
    ANNEALING_MOVES_MAX, CLIMB_WORK_MAX, CONSTRUCTION_SEEDS, LARGE_PROBLEM, REDUCED_STEPS,
};
use crate::single::allowed::Allowed;
use crate::single::assignment::assign_in_budget;
use crate::single::bound::lagrangian_bound;
use crate::single::domains::{Domains, L3};
use crate::single::enumeration::enumerate;
use crate::single::hierarchical_construction::construct;
use crate::single::local_search::Search;
use crate::single::perturbation::perturb;
use crate::single::reduced::{Found, is_small, solve_reduced};
use crate::single::simulated_annealing::anneal_threads;
use crate::single::solve::Stage;
use crate::single::volumes::Volumes;
use crate::{Mode, Proof, ProvenBound, WorkBudget};

/// Whether the choice of L3 caches dominates the problem.
fn is_large(domains: &Domains) -> bool {
    let size = domains.workers * domains.threads * domains.cpus;
    domains.mode == Mode::Compact && domains.count(L3) > 1 && size > LARGE_PROBLEM
}

/// The first assignment: workers laid end to end if that reaches the bound, else the better of that
/// and a second construction.
pub(crate) fn start<'a>(
    domains: &'a Domains,
    allowed: &Allowed,
    volumes: &Volumes,
    bound: i64,
    budget: &mut WorkBudget,
) -> (Search<'a>, Stage) {
    let plain = construct(domains, allowed, 0, budget)
        .and_then(|mut plain| (plain.repair(budget) && plain.is_valid()).then_some(plain));
    if let Some(plain) = plain.as_ref().filter(|plain| plain.objective() >= bound) {
        return (plain.clone(), Stage::Constructed);
    }
    let (other, stage) = is_large(domains)
        .then(|| {
            annealed_start(
                domains,
                allowed,
                AnnealingParams {
                    seed: CONSTRUCTION_SEEDS[0],
                    bound,
                },
                budget,
            )
        })
        .flatten()
        .map_or_else(
            || {
                let assigned = assign_in_budget(domains, volumes, budget);
                let greedy = Search::of(domains, allowed, &assigned);
                (greedy, Stage::Constructed)
            },
            |annealed| (annealed, Stage::Annealed),
        );
    match plain.filter(|plain| plain.objective() > other.objective()) {
        Some(plain) => (plain, Stage::Constructed),
        None => (other, stage),
    }
}

/// The random seed of a construction, and the value at which annealing may stop.
#[derive(Clone, Copy)]
struct AnnealingParams {
    seed: u64,
    bound: i64,
}

/// An annealed construction with its violations repaired; `None` if that failed.
fn annealed_start<'a>(
    domains: &'a Domains,
    allowed: &Allowed,
    params: AnnealingParams,
    budget: &mut WorkBudget,
) -> Option<Search<'a>> {
    let mut found = construct(domains, allowed, params.seed, budget)?;
    found.repair(budget);
    if found.violation() > 0 {
        anneal_threads(&mut found, params.bound, ANNEALING_MOVES_MAX / 4, budget);
    }
    found.is_valid().then_some(found)
}

/// The best assignment and the lowest bound so far.
pub(crate) struct SearchDriver<'a> {
    pub(crate) best: Search<'a>,
    pub(crate) upper: ProvenBound,
    pub(crate) stage: Stage,
}

impl SearchDriver<'_> {
    /// Runs all methods until value and bound meet. If the value of the mapping in force,
    /// `in_force`, is no less than a local search reaches, an earlier search has found that
    /// mapping: the long searches are not repeated.
    pub(crate) fn run(&mut self, in_force: Option<i64>, budget: &mut WorkBudget) {
        let large = is_large(self.best.domains);
        let work = CLIMB_WORK_MAX / if large { 4 } else { 1 };
        let steps = work / (self.best.threads() + self.best.domains.cpus) + 1;
        self.keep_if_better(Stage::LocalSearch, |best, bound| {
            best.climb(bound, steps, budget);
        });
        self.tighten_bound(budget);
        let rerun = in_force.is_some_and(|value| value >= self.best.objective());
        let seeds = if rerun { 1 } else { CONSTRUCTION_SEEDS.len() };
        let first = usize::from(large && self.stage != Stage::Constructed);
        for &seed in CONSTRUCTION_SEEDS.iter().take(seeds).skip(first) {
            if self.is_finished(budget) {
                return;
            }
            self.restart(seed, steps, budget);
        }
        // before the long searches: a small problem reaches this point in a few milliseconds
        self.prove(budget);
        if rerun || self.is_finished(budget) {
            return;
        }
        self.keep_if_better(Stage::Annealed, |best, bound| {
            anneal_threads(best, bound, ANNEALING_MOVES_MAX, budget);
            perturb(best, bound, budget);
        });
    }

    /// Lowers the bound by Lagrangian relaxation.
    fn tighten_bound(&mut self, budget: &mut WorkBudget) {
        let bound = lagrangian_bound(&self.best, self.upper.bound, budget);
        self.upper = self.upper.lowered(bound, Proof::Lagrangian);
    }

    fn is_finished(&self, budget: &WorkBudget) -> bool {
        self.best.objective() >= self.upper.bound || budget.is_exhausted()
    }

    /// Runs a search on the best assignment; an improvement is attributed to `stage`.
    fn keep_if_better(&mut self, stage: Stage, search: impl FnOnce(&mut Search<'_>, i64)) {
        let before = self.best.objective();
        search(&mut self.best, self.upper.bound);
        if self.best.objective() > before {
            self.stage = stage;
        }
    }

    /// An annealed construction from another seed, then local search.
    fn restart(&mut self, seed: u64, steps: usize, budget: &mut WorkBudget) {
        let Search {
            domains, allowed, ..
        } = self.best;
        let params = AnnealingParams {
            seed,
            bound: self.upper.bound,
        };
        let Some(mut other) = annealed_start(domains, &allowed, params, budget) else {
            return;
        };
        other.climb(self.upper.bound, steps, budget);
        if other.objective() > self.best.objective() {
            self.best = other;
            self.stage = Stage::Annealed;
        }
    }

    /// Enumerates all assignments if there are few; otherwise solves the reduced program if it is
    /// small enough.
    fn prove(&mut self, budget: &mut WorkBudget) {
        if self.is_finished(budget) {
            return;
        }
        match enumerate(&self.best, budget) {
            Some(better) => {
                self.best = better.unwrap_or_else(|| self.best.clone());
                self.upper = self.upper.lowered(self.best.objective(), Proof::Search);
                self.stage = Stage::Enumerated;
            }
            None => self.solve_reduced(budget),
        }
    }

    fn solve_reduced(&mut self, budget: &mut WorkBudget) {
        let domains = self.best.domains;
        if self.is_finished(budget) || !is_small(domains) || budget.spend(REDUCED_STEPS) {
            return;
        }
        let Some(Found { assignment, proven }) = solve_reduced(domains, &self.best.allowed) else {
            return;
        };
        // the program computes in floating point: its assignment is accepted only if counting
        // confirms it, and its proof only together with its assignment
        let found = Search::of(domains, &self.best.allowed, &assignment);
        if !found.is_valid() {
            return;
        }
        let value = found.objective();
        if value > self.best.objective() {
            self.best = found;
            self.stage = Stage::Reduced;
        }
        if proven && value == self.best.objective() {
            self.upper = self.upper.lowered(value, Proof::Search);
            self.stage = Stage::Reduced;
        }
    }
}
