//! What no mapping can exceed, from counts alone.
//!
//! **Problem.** A value is only worth something beside a limit that nothing can pass. **Approach.**
//! The objective is a constant minus the closeness of the mains, minus (scatter) or plus (compact)
//! the closeness within workers. Each of the two is bounded alone. Within workers there are two
//! limits: what one worker could reach with the machine to itself, W times; and what the volumes
//! leave to all of them together, level by level. **Proof sketch.** (a) Spreading one thing at a
//! time where it adds least closeness minimizes a sum of convex functions of nested counts, so
//! nothing is less close than [`spread`]. (b) In a domain of volume n where a worker can have at
//! most k threads, sum over workers of x(x-1)/2 is greatest if as many workers as possible have k
//! (convexity), and least if all have n/W, rounded. (c) The volumes of a level's domains sum to WT
//! and each lies between what the rules on cpus and cores leave it; the best such volumes come from
//! a table over domains and threads (compact, where the function of (b) is not convex in n) or one
//! at a time (scatter, where it is). A bound on every level bounds their sum. **Limits.** Which
//! worker gets what, and whether mains may be where the best volumes want them, is not asked, so
//! the bound can be above every mapping.

use crate::Mode;
use crate::classes::{Class, Permits, Room, beside_mains, classes, fill, fill_with_main, rooms};
use crate::domains::{CORE, Domains, LEVELS, pairs};
use crate::forks::forked;
use crate::improve::{Allowed, Search};
use crate::prices::{Prices, Sizes, lowest};
use crate::spread::{no_counts, spread};
use crate::volumes::main_limits;

/// Where bargaining in a group of levels ended, to be gone on from.
pub(crate) struct Bargained {
    inner: usize,
    outer: usize,
    classes: Vec<Class>,
    bound: i64,
    prices: Prices,
    /// What is to be added to its bound.
    rest: i64,
}

impl Bargained {
    /// A bound that is at most `bound`: more bargaining, then domain by domain (`forks`).
    pub(crate) fn forked(
        &mut self,
        search: &Search<'_>,
        bound: i64,
        out_of_budget: &mut dyn FnMut() -> bool,
    ) -> i64 {
        let levels = self.inner..=self.outer;
        let goal = levels.map(|level| reached(search, level)).sum();
        let sizes = sizes(search.domains, &search.allowed);
        let from = Some(self.prices.clone());
        let (lower, prices) = lowest(&self.classes, sizes, (goal, from), out_of_budget);
        if lower < self.bound {
            (self.bound, self.prices) = (lower, prices);
        }
        let guide = (goal, self.bound, &self.prices);
        self.bound = forked(&self.classes, sizes, guide, out_of_budget);
        bound.min(self.bound.saturating_add(self.rest))
    }
}

/// What a deal makes of a level.
fn reached(search: &Search<'_>, level: usize) -> i64 {
    search.sign * search.closeness()[level] - search.closeness_of_mains()[level]
}

/// A bound that is at most `bound`, by bargaining (`prices`) in every group of levels; what the
/// deal of `search` has reached guides the prices.
pub(crate) fn tightened(
    search: &Search<'_>,
    bound: i64,
    out_of_budget: &mut dyn FnMut() -> bool,
) -> (i64, Vec<Bargained>) {
    if search.objective() >= bound {
        return (bound, Vec::new());
    }
    let (domains, allowed) = (search.domains, &search.allowed);
    let constant = domains.objective(0, 0);
    let group = |inner: usize, outer: usize, out_of_budget: &mut dyn FnMut() -> bool| {
        let goal = (inner..=outer).map(|level| reached(search, level)).sum();
        let (classes, _) = classes(domains, allowed, (inner, outer));
        let sizes = sizes(domains, allowed);
        let (bound, prices) = lowest(&classes, sizes, (goal, None), out_of_budget);
        Bargained {
            inner,
            outer,
            classes,
            bound,
            prices,
            rest: 0,
        }
    };
    // a level alone, the outermost first: it is most of the objective
    let mut alone = [0i64; LEVELS];
    let mut kept: Vec<Bargained> = Vec::new();
    for level in (0..LEVELS).rev() {
        let of_level = group(level, level, out_of_budget);
        alone[level] = of_level.bound;
        if kept.is_empty() && domains.count(level) > 1 {
            kept.push(of_level);
        }
    }
    // the best bound on all levels below `level`: alone, or with all inside it; what is between
    // helps hardly ever
    let mut below = [0i64; LEVELS + 1];
    for outer in 0..LEVELS {
        below[outer + 1] = below[outer].saturating_add(alone[outer]);
        let gains = (0..=outer).filter(|&level| domains.gain[level] > 0).count();
        if gains > 1 && !out_of_budget() {
            let all = group(0, outer, out_of_budget);
            below[outer + 1] = below[outer + 1].min(all.bound);
            if kept.first().is_some_and(|group| group.outer == outer) {
                kept.push(all);
            }
        }
    }
    for group in &mut kept {
        let outside = alone[group.outer + 1..]
            .iter()
            .chain(&below[group.inner..=group.inner]);
        group.rest = outside.fold(constant, |sum, &level| sum.saturating_add(level));
    }
    kept.sort_by_key(|group| group.bound.saturating_add(group.rest));
    (bound.min(constant.saturating_add(below[LEVELS])), kept)
}

pub(crate) fn sizes(domains: &Domains, allowed: &Allowed) -> Sizes {
    Sizes {
        workers: domains.workers as i64,
        threads: domains.threads,
        permits: Permits::both(domains, allowed).map(|rule| rule.map(|permits| permits.count)),
        beside: beside_mains(domains, allowed),
    }
}

/// No mapping within `allowed` is above this.
pub(crate) fn upper_bound(domains: &Domains, allowed: &Allowed) -> i64 {
    let within = match domains.mode {
        Mode::Scatter => least_closeness(domains, allowed),
        Mode::Compact => most_closeness(domains, allowed),
    };
    domains.objective(least_closeness_of_mains(domains, allowed), within)
}

fn closeness(domains: &Domains, counts: &[Vec<u32>; LEVELS]) -> i64 {
    let level = |level: usize| counts[level].iter().map(|&x| pairs(x)).sum::<i64>();
    (0..LEVELS).map(|l| domains.gain[l] * level(l)).sum()
}

fn least_closeness_of_mains(domains: &Domains, allowed: &Allowed) -> i64 {
    let (_, most) = main_limits(domains);
    let mut counts = no_counts(domains);
    spread(domains, &mut counts, domains.workers, &|on_cpu, on_core| {
        on_cpu < most && on_core < allowed.core_mains
    });
    closeness(domains, &counts)
}

fn least_closeness(domains: &Domains, allowed: &Allowed) -> i64 {
    let mut counts = no_counts(domains);
    let most_on_core = allowed.core_volume.1;
    spread(domains, &mut counts, domains.threads, &|on_cpu, on_core| {
        on_cpu < domains.worker_cap && on_core < most_on_core
    });
    let alone = domains.workers as i64 * closeness(domains, &counts);
    let together: i64 = (0..LEVELS)
        .map(|level| domains.gain[level] * least_of_level(domains, &rooms(domains, allowed, level)))
        .sum();
    alone.max(together)
}

/// Fewest pairs of threads of one worker in one domain, over all workers and domains of a level.
fn least_of_level(domains: &Domains, rooms: &[Room]) -> i64 {
    let workers = domains.workers as u32;
    let mut volumes: Vec<u32> = rooms.iter().map(|room| room.least).collect();
    let least: u32 = volumes.iter().sum();
    for _ in least..workers * domains.threads as u32 {
        // the next thread adds as many pairs as its worker has there already: volume / W
        let next = (0..rooms.len())
            .filter(|&i| volumes[i] < rooms[i].most)
            .min_by_key(|&i| volumes[i] / workers);
        if let Some(next) = next {
            volumes[next] += 1;
        }
    }
    let even = |n: u32| {
        let (each, more) = (n / workers, n % workers);
        i64::from(more) * pairs(each + 1) + i64::from(workers - more) * pairs(each)
    };
    volumes.into_iter().map(even).sum()
}

/// Level by level, the smaller of what each worker could reach alone and what the volumes leave for
/// all.
fn most_closeness(domains: &Domains, allowed: &Allowed) -> i64 {
    (0..LEVELS)
        .filter(|&level| domains.gain[level] > 0)
        .map(|level| {
            let rooms = rooms(domains, allowed, level);
            let alone = most_of_workers(domains, allowed, level, &rooms);
            domains.gain[level] * alone.min(most_of_level(domains, &rooms))
        })
        .sum()
}

/// Most pairs of threads that share a worker and a domain if each worker had the machine to itself.
/// On the level of cores all but `full_core_mains` workers have their main on a core that is not
/// full, beside few peers.
fn most_of_workers(domains: &Domains, allowed: &Allowed, level: usize, rooms: &[Room]) -> i64 {
    let workers = domains.workers as i64;
    let mut caps: Vec<u32> = rooms.iter().map(|room| room.of_worker).collect();
    caps.sort_unstable_by(|a, b| b.cmp(a));
    let free = fill(&caps, domains.threads as u32);
    let beside_full = i64::from(allowed.full_core_mains);
    let cores = domains.count(level) == domains.count(CORE);
    if !cores || beside_full >= workers || allowed.core_mains > 1 {
        return workers * free;
    }
    let below_full = domains.core_volume.1 - 1;
    let with_main = fill_with_main(&caps, domains.threads as u32, below_full);
    beside_full * free + (workers - beside_full) * with_main
}

/// Most pairs of threads of one worker in one domain, over all workers and domains of a level.
fn most_of_level(domains: &Domains, rooms: &[Room]) -> i64 {
    const NEVER: i64 = i64::MIN / 2;
    let least: u32 = rooms.iter().map(|room| room.least).sum();
    let extras = ((domains.workers * domains.threads) as u32).saturating_sub(least) as usize;
    let mut best = vec![NEVER; extras + 1];
    best[0] = 0;
    let mut reached = 0;
    for room in rooms {
        let filled = |n: u32| {
            let cap = room.of_worker.max(1);
            i64::from(n / cap) * pairs(cap) + pairs(n % cap)
        };
        let more = (room.most - room.least.min(room.most)) as usize;
        let mut next = vec![NEVER; extras + 1];
        for (before, &value) in best.iter().enumerate().take(reached + 1) {
            for here in 0..=more.min(extras - before) {
                let sum = value + filled(room.least + here as u32);
                next[before + here] = next[before + here].max(sum);
            }
        }
        reached = (reached + more).min(extras);
        best = next;
    }
    best[extras]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::tightened;
    use crate::deal::deal;
    use crate::domains::Domains;
    use crate::improve::{Allowed, Search};
    use crate::limits::SHAKE_PARTS;
    use crate::sample::problems;
    use crate::shake::shake;
    use crate::volumes::volumes;

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 1_500, failure_persistence: None, ..ProptestConfig::default()
        })]

        #[test]
        fn no_search_passes_the_bound_of_prices(problem in problems(), steps in 0..400u32) {
            let domains = Domains::of(&problem);
            let volumes = volumes(&domains);
            let allowed = Allowed::by(&domains, &volumes);
            let start = Search::of(&domains, &allowed, &deal(&domains, &volumes));
            let mut asked = 0;
            let mut spent = || {
                asked += 1;
                asked > steps
            };
            let (bound, bargained) = tightened(&start, i64::MAX, &mut spent);
            let mut search = start.clone();
            search.climb(i64::MAX, &mut || false);
            shake(&mut search, i64::MAX, 0..SHAKE_PARTS, &mut || false);
            let value = search.objective();
            prop_assert!(bound >= value, "{value} above {bound}");
            for mut bargained in bargained {
                let forked = bargained.forked(&start, bound, &mut || false);
                prop_assert!(forked >= value, "{value} above {forked}, case by case");
            }
        }
    }
}
