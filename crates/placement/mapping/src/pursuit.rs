//! Better deals and better bounds in turn, until they meet.
//!
//! **Problem.** Many means, 50 ms. **Approach.** The cheapest first; on large machines with several
//! L3 caches, annealed descents before anything that looks at single threads: there a climb costs
//! as much as a descent and gains a hundredth of it. **Proof sketch.** Every step keeps the best
//! deal and the lowest bound. **Limits.** Each step has a bound of its own; the budget is asked
//! between and in them.

use crate::bound::{Bargained, tightened};
use crate::deal::deal_within;
use crate::descend::descend;
use crate::domains::{Domains, LEVELS};
use crate::improve::{Allowed, Search};
use crate::limits::{CLIMB_WORK_MAX, DESCENTS, LARGE, SHAKE_PARTS, WANDER_MOVES_MAX};
use crate::reduced::{Found, solve_reduced};
use crate::shake::shake;
use crate::solve::Branch;
use crate::volumes::Volumes;
use crate::wander::wander;
use crate::{Mode, Proof};

/// What nothing exceeds, and how that is known: the proof if a value meets it.
#[derive(Clone, Copy)]
pub(crate) struct Limit {
    pub(crate) bound: i64,
    pub(crate) proof: Proof,
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

/// Whether sharing out to L3 caches is most of the problem.
fn is_large(domains: &Domains) -> bool {
    let size = domains.workers * domains.threads * domains.cpus;
    domains.mode == Mode::Compact && domains.count(LEVELS - 1) > 1 && size > LARGE
}

/// The first deal: workers end to end if that is all there can be, else a better one.
pub(crate) fn start<'a>(
    domains: &'a Domains,
    allowed: &Allowed,
    (volumes, bound): (&Volumes, i64),
    out_of_budget: &mut dyn FnMut() -> bool,
) -> (Search<'a>, Branch) {
    let plain = descend(domains, allowed, 0, out_of_budget)
        .and_then(|mut plain| (plain.repair(out_of_budget) && plain.is_valid()).then_some(plain));
    if let Some(plain) = plain.as_ref().filter(|plain| plain.objective() >= bound) {
        return (plain.clone(), Branch::Constructed);
    }
    let (other, branch) = is_large(domains)
        .then(|| annealed(domains, allowed, (DESCENTS[0], bound), out_of_budget))
        .flatten()
        .map_or_else(
            || {
                let dealt = deal_within(domains, volumes, out_of_budget);
                let greedy = Search::of(domains, allowed, &dealt);
                (greedy, Branch::Constructed)
            },
            |annealed| (annealed, Branch::Annealed),
        );
    match plain.filter(|plain| plain.objective() > other.objective()) {
        Some(plain) => (plain, Branch::Constructed),
        None => (other, branch),
    }
}

/// An annealed descent, its breaches mended; `None` if that failed.
fn annealed<'a>(
    domains: &'a Domains,
    allowed: &Allowed,
    (seed, bound): (u64, i64),
    out_of_budget: &mut dyn FnMut() -> bool,
) -> Option<Search<'a>> {
    let mut found = descend(domains, allowed, seed, out_of_budget)?;
    found.repair(out_of_budget);
    if found.broken() > 0 {
        wander(&mut found, bound, WANDER_MOVES_MAX / 4, out_of_budget);
    }
    found.is_valid().then_some(found)
}

/// A deal and a limit that approach each other.
pub(crate) struct Pursuit<'a> {
    pub(crate) best: Search<'a>,
    pub(crate) limit: Limit,
    pub(crate) branch: Branch,
    /// What the bound was bargained with.
    pub(crate) bargained: Vec<Bargained>,
}

impl Pursuit<'_> {
    /// Until value and bound meet or all means are used. Where a mapping in force is worth
    /// `in_force`, no less than exchanges reach, an earlier search has been here: the long ones are
    /// not made again.
    pub(crate) fn run(&mut self, in_force: Option<i64>, out_of_budget: &mut dyn FnMut() -> bool) {
        let large = is_large(self.best.domains);
        let work = CLIMB_WORK_MAX / if large { 4 } else { 1 };
        let steps = work / (self.best.threads() + self.best.domains.cpus) + 1;
        self.try_better(Branch::Climbed, |best, bound| {
            climb_some(best, bound, steps, out_of_budget);
        });
        self.tighten(out_of_budget);
        let again = in_force.is_some_and(|value| value >= self.best.objective());
        let seeds = if again { 1 } else { DESCENTS.len() };
        let first = usize::from(large && self.branch != Branch::Constructed);
        for &seed in DESCENTS.iter().take(seeds).skip(first) {
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
            shake(best, bound, 0..1, out_of_budget);
        });
        self.tighten_more(out_of_budget);
        self.try_better(Branch::Annealed, |best, bound| {
            shake(best, bound, 1..SHAKE_PARTS, out_of_budget);
        });
        self.tighten_more(out_of_budget);
    }

    /// Lowers the bound by prices.
    fn tighten(&mut self, out_of_budget: &mut dyn FnMut() -> bool) {
        let (bound, bargained) = tightened(&self.best, self.limit.bound, out_of_budget);
        self.limit = self.limit.lowered(bound, Proof::Prices);
        self.bargained = bargained;
    }

    /// Lowers it further, from those prices on.
    fn tighten_more(&mut self, out_of_budget: &mut dyn FnMut() -> bool) {
        for at in 0..self.bargained.len() {
            if self.is_over(out_of_budget) {
                return;
            }
            let group = &mut self.bargained[at];
            let bound = group.forked(&self.best, self.limit.bound, out_of_budget);
            self.limit = self.limit.lowered(bound, Proof::Prices);
        }
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
        let goal = (seed, self.limit.bound);
        let Some(mut other) = annealed(domains, &allowed, goal, out_of_budget) else {
            return;
        };
        climb_some(&mut other, self.limit.bound, steps, out_of_budget);
        if other.objective() > self.best.objective() {
            self.best = other;
            self.branch = Branch::Annealed;
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
