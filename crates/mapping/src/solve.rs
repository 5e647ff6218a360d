//! From a problem to a certified mapping: volumes, deal, exchanges, bound, ranks.
//!
//! **Problem.** The best mapping there is, or the best that can be had in time, with what is known of
//! its quality. **Approach.** A mapping in force that meets the bound is the answer (`kept`). Else construct:
//! workers end to end down the tree (`descend`), or dealt greedily (`volumes`, `deal`). Where value
//! and bound differ: climb (`improve`), lower the bound by prices (`bound`, `prices`), anneal in
//! counts (`descend`, `anneal`), solve the reduced program if it is small (`reduced`), anneal in
//! threads (`wander`) and shake (`shake`). A mapping in force stays unless something better was
//! found; only then a deal is brought close to it (`settle`) and named (`name`). **Proof sketch.** Optimal
//! is said only where value and bound meet, or where the program was solved to its end and its answer
//! was counted again; which of them it was goes into the certificate (`Limit`). **Limits.** The
//! caller's budget is asked between steps; once it is spent, the rest is construction without choices,
//! O(W (T + C log C)). Every search has a bound of its own too.
//! Compact with several L3 caches and volumes that leave a remainder is where value and bound most
//! often stay apart. Ties: no thread moves if the mapping in force is as good; where it is not, moves
//! are few but not proven fewest, and names are the smallest of the deal found, not of all deals of
//! equal value.

use crate::bound::{tightened, upper_bound};
use crate::check::report;
use crate::deal::deal_within;
use crate::descend::descend;
use crate::domains::Domains;
use crate::error::validate;
use crate::improve::{Allowed, Search};
use crate::kept::{Kept, strict};
use crate::limits::{CLIMB_WORK_MAX, DESCENTS, WANDER_MOVES_MAX};
use crate::name::name;
use crate::reduced::{Found, solve_reduced};
use crate::settle::settle;
use crate::shake::shake;
use crate::volumes::volumes_within;
use crate::wander::wander;
use crate::{Certificate, CheckReport, Mapping, Problem, ProblemError, Proof, Solution};

/// What nothing exceeds, and how that is known: the proof if a value meets it.
#[derive(Clone, Copy)]
struct Limit {
    bound: i64,
    proof: Proof,
}

impl Limit {
    /// The lower of the two; as it was where both are the same.
    fn lowered(self, bound: i64, proof: Proof) -> Self {
        if bound < self.bound {
            Self { bound, proof }
        } else {
            self
        }
    }
}

/// The best mapping that can be found before `out_of_budget` says true; whatever it says, the
/// answer is valid and its gap to the bound is honest.
///
/// # Errors
/// The problem is outside the limits or its distances fall with the level.
pub fn solve(
    problem: &Problem,
    out_of_budget: &mut dyn FnMut() -> bool,
) -> Result<Solution, ProblemError> {
    solve_telling(problem, out_of_budget).map(|(solution, _)| solution)
}

/// The step that an answer came from, in the order of [`solve()`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Branch {
    /// The mapping in force was kept.
    Settled,
    /// The construction; nothing better was found, or needed.
    Constructed,
    /// Exchanges and shifts that each gain.
    Climbed,
    /// A search that accepts losses on its way: of counts, of threads, or by shakes.
    Annealed,
    /// The reduced program found it or proved it.
    Reduced,
}

/// [`solve()`], and the step that the answer came from: for tables.
///
/// # Errors
/// As [`solve()`].
pub fn solve_telling(
    problem: &Problem,
    out_of_budget: &mut dyn FnMut() -> bool,
) -> Result<(Solution, Branch), ProblemError> {
    validate(problem)?;
    let domains = Domains::of(problem);
    let kept = Kept::of(problem, &domains);
    if let Some(kept) = kept.as_ref().filter(|kept| kept.is_strict()) {
        let bound = upper_bound(&domains, &strict(&domains));
        if kept.objective >= bound {
            return Ok((kept.solution((bound, Proof::Bound)), Branch::Settled));
        }
    }
    let volumes = volumes_within(&domains, out_of_budget);
    let allowed = Allowed::by(&domains, &volumes);
    let bound = upper_bound(&domains, &allowed);
    let kept = kept.filter(|kept| kept.is_within(&domains, &allowed));
    if let Some(kept) = kept.as_ref().filter(|kept| kept.objective >= bound) {
        return Ok((kept.solution((bound, Proof::Bound)), Branch::Settled));
    }
    let plain = descend(&domains, &allowed, 0, out_of_budget)
        .and_then(|mut plain| (plain.repair(out_of_budget) && plain.is_valid()).then_some(plain));
    let start = match plain {
        Some(plain) if plain.objective() >= bound => plain,
        plain => {
            let dealt = deal_within(&domains, &volumes, out_of_budget);
            let greedy = Search::of(&domains, &allowed, &dealt);
            plain
                .filter(|plain| plain.objective() > greedy.objective())
                .unwrap_or(greedy)
        }
    };
    let in_force = kept.as_ref().map(|kept| kept.objective);
    let mut pursuit = Pursuit {
        best: start,
        limit: Limit {
            bound,
            proof: Proof::Bound,
        },
        branch: Branch::Constructed,
    };
    pursuit.run(in_force, out_of_budget);
    let Pursuit {
        best,
        limit,
        branch,
    } = pursuit;
    let value = best.objective();
    if let Some(kept) = kept.filter(|kept| kept.objective >= value) {
        let kept = kept.solution((limit.bound, limit.proof));
        return Ok((kept, Branch::Settled));
    }
    let deal = match &problem.current {
        Some(now) => {
            let deal = best.deal();
            settle(problem, (&domains, &allowed), now, &deal, out_of_budget)
        }
        None => best.deal(),
    };
    let mapping = name(problem, &domains, &deal);
    Ok((certified(problem, mapping, limit), branch))
}

/// A mapping with what can be counted of it.
fn certified(problem: &Problem, mapping: Mapping, limit: Limit) -> Solution {
    let CheckReport { objective, relaxed } = report(problem, &mapping);
    let certificate = Certificate::of(objective, (limit.bound, limit.proof), relaxed);
    Solution {
        mapping,
        certificate,
    }
}

/// Better deals and better bounds in turn.
struct Pursuit<'a> {
    best: Search<'a>,
    limit: Limit,
    branch: Branch,
}

impl Pursuit<'_> {
    /// Until value and bound meet or all means are used. Where a mapping in force is worth
    /// `in_force`, no less than exchanges reach, an earlier search has been here: the long ones are
    /// not made again.
    fn run(&mut self, in_force: Option<i64>, out_of_budget: &mut dyn FnMut() -> bool) {
        let steps = CLIMB_WORK_MAX / (self.best.threads() + self.best.domains.cpus) + 1;
        self.try_better(Branch::Climbed, |best, bound| {
            climb_some(best, bound, steps, out_of_budget);
        });
        self.tighten(out_of_budget);
        let again = in_force.is_some_and(|value| value >= self.best.objective());
        let seeds = if again { 1 } else { DESCENTS.len() };
        for seed in DESCENTS.into_iter().take(seeds) {
            if self.is_over(out_of_budget) {
                return;
            }
            self.descend(seed, steps, out_of_budget);
        }
        // before the long searches: a program that is small has come here in a few milliseconds
        self.prove(out_of_budget);
        if again || self.is_over(out_of_budget) {
            return;
        }
        self.try_better(Branch::Annealed, |best, bound| {
            wander(best, bound, WANDER_MOVES_MAX, out_of_budget);
            shake(best, bound, out_of_budget);
        });
        self.tighten(out_of_budget);
    }

    /// Lowers the bound by prices.
    fn tighten(&mut self, out_of_budget: &mut dyn FnMut() -> bool) {
        let bound = tightened(&self.best, self.limit.bound, out_of_budget);
        self.limit = self.limit.lowered(bound, Proof::Prices);
    }

    fn is_over(&self, out_of_budget: &mut dyn FnMut() -> bool) -> bool {
        self.best.objective() >= self.limit.bound || out_of_budget()
    }

    /// Runs a search on the best that there is; a better one came from `branch`.
    fn try_better(&mut self, branch: Branch, search: impl FnOnce(&mut Search<'_>, i64)) {
        let before = self.best.objective();
        search(&mut self.best, self.limit.bound);
        if self.best.objective() > before {
            self.branch = branch;
        }
    }

    /// A start of its own, annealed and climbed.
    fn descend(&mut self, seed: u64, steps: usize, out_of_budget: &mut dyn FnMut() -> bool) {
        let Search {
            domains, allowed, ..
        } = self.best;
        let Some(mut other) = descend(domains, &allowed, seed, out_of_budget) else {
            return;
        };
        other.repair(out_of_budget);
        if other.broken() > 0 {
            wander(
                &mut other,
                self.limit.bound,
                WANDER_MOVES_MAX / 4,
                out_of_budget,
            );
        }
        if other.is_valid() {
            climb_some(&mut other, self.limit.bound, steps, out_of_budget);
            if other.objective() > self.best.objective() {
                self.best = other;
                self.branch = Branch::Annealed;
            }
        }
    }

    /// The reduced program where it is small enough.
    fn prove(&mut self, out_of_budget: &mut dyn FnMut() -> bool) {
        if self.is_over(out_of_budget) {
            return;
        }
        let domains = self.best.domains;
        let Some(Found { deal, proven }) = solve_reduced(domains, &self.best.allowed) else {
            return;
        };
        // the program works with floats: its deal is taken only if counting confirms it, and its
        // proof only together with its deal
        let found = Search::of(domains, &self.best.allowed, &deal);
        if !found.is_valid() {
            return;
        }
        let value = found.objective();
        if value > self.best.objective() {
            self.best = found;
            self.branch = Branch::Reduced;
        }
        if proven && value == self.best.objective() {
            self.limit = self.limit.lowered(value, Proof::Search);
            self.branch = Branch::Reduced;
        }
    }
}

/// Climbs for so many steps at most.
fn climb_some(
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
