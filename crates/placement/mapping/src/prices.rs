//! A bound from prices: workers and domains bargain over parts.
//!
//! **Problem.** Of the classes of a group (`classes`), bound the worth of all workers together.
//! What one worker could reach alone (times W) and what each domain could make of its volume alone
//! are both bounds; the truth is often below both. **Approach.** Every domain d splits its volume
//! into parts, k threads for one worker each, with or without its main; every worker is made of one
//! part from each domain, one of them with the main. Put a price on the part (class, k, main or
//! not): workers are paid the price, domains get the worth less the price, and pay for the
//! closeness of their mains. For any prices, W times the best row of parts plus the best split of
//! every domain, over all volumes that sum to WT, is a bound. Prices equal to the worth give the
//! first bound above, zero prices the second. Better ones are found by following the difference
//! between the parts that workers want and those that domains offer. **Mains and volumes.** Where
//! rule (12+) applies every main has a core to itself, and only so many of these cores may be full:
//! a domain with m mains holds less than it could by what m cores forgo that stay below full
//! (`Class::cores_needed`), but for those it has a permit for, and a worker whose main is on such a
//! core cannot have that core whole. Rule (12) does the same to cpus. Permits of both have a price.
//! A main without a permit of either kind keeps both its core and its cpu from being full: on half
//! cores that asks for more permits than each rule does alone (`Class::either_needed`). What must
//! go beside mains is counted last, from good prices on. The domains' side is `splits`. **Proof
//! sketch.** Weak duality: in a mapping, parts taken and parts offered are the same, so prices
//! cancel, and each side is no better than its best. All numbers are integers ([`SCALE`] to the
//! cycle), so nothing is lost to rounding. **Limits.** The steps stop after [`PRICE_STEPS_MAX`];
//! whatever the prices then are, the bound is one. That a domain has no more than W parts is not
//! asked but through the price of a part of 0.

use crate::classes::Class;
use crate::limits::{PRICE_IDLE_MAX, PRICE_STEPS_MAX, PRICE_WORK_MAX};
use crate::splits::{splits, work_of_splits};

/// Price units to the clock cycle.
pub(crate) const SCALE: i64 = 1 << 10;
/// Below every sum there is.
pub(crate) const NEVER: i64 = i64::MIN / 4;

/// What is shared out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) workers: i64,
    pub(crate) threads: usize,
    /// How many cores, and cpus, may be full and hold a main; `None` where that does not matter.
    pub(crate) permits: [Option<i64>; 2],
    /// Where rule (12) asks for something: how many threads a cpu with a main that is not full has
    /// beside it.
    pub(crate) beside: Option<i64>,
}

/// A price, or a number, for every part: `[class][main or not][k]`, one for the permits of cores
/// and of cpus, and for each class what it charges itself for a main (`splits::Count::Charged`) and
/// for a thread beside a main.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Prices {
    pub(crate) parts: Vec<[Vec<i64>; 2]>,
    pub(crate) permits: [i64; 2],
    pub(crate) tolls: Vec<i64>,
    pub(crate) beside: Vec<i64>,
}

impl Prices {
    fn like(classes: &[Class], of: impl Fn(&Class, bool, usize) -> i64) -> Self {
        let row =
            |class: &Class, main| (0..class.worth.len()).map(|k| of(class, main, k)).collect();
        Self {
            parts: classes
                .iter()
                .map(|class| [row(class, false), row(class, true)])
                .collect(),
            permits: [0; 2],
            beside: vec![0; classes.len()],
            tolls: vec![0; classes.len()],
        }
    }

    fn all(&self) -> impl Iterator<Item = i64> {
        let parts = self.parts.iter().flatten().flatten();
        let parts = parts.chain(&self.tolls).chain(&self.beside);
        parts.chain(&self.permits).copied()
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut i64> {
        let parts = self.parts.iter_mut().flatten().flatten();
        let parts = parts.chain(&mut self.tolls).chain(&mut self.beside);
        parts.chain(&mut self.permits)
    }
}

/// The bound that the prices give, in price units, and what workers want more than domains offer.
pub(crate) struct Bargain {
    pub(crate) bound: i64,
    pub(crate) wanted: Prices,
    /// Threads and mains of each class in the domains' best splits.
    pub(crate) held: Vec<[i64; 2]>,
}

/// The lowest bound found, in cycles, and its prices; `goal` is what is known to be reachable,
/// `from` are prices to go on from.
pub(crate) fn lowest(
    classes: &[Class],
    sizes: Sizes,
    (goal, from): (i64, Option<Prices>),
    out_of_budget: &mut dyn FnMut() -> bool,
) -> (i64, Prices) {
    // domains that are paid nothing for mains would offer none
    let toll = SCALE * last_main(classes, sizes);
    let start = |numerator: i64| {
        let prices = Prices::like(classes, |class, main, k| {
            let loss = if main && sizes.permits[0].is_some() {
                class.loss[k]
            } else {
                0
            };
            (class.worth[k] - loss) * SCALE * numerator / 2 - i64::from(main) * toll
        });
        let tolls = vec![toll; classes.len()];
        Prices { tolls, ..prices }
    };
    let plain = Sizes {
        beside: None,
        ..sizes
    };
    let mut best = (i64::MAX, start(0));
    // the first is made in any case: a group without a bound would make all others worthless
    let starts = match from {
        Some(from) => vec![from],
        None => vec![start(2), start(0), start(1)],
    };
    for prices in starts {
        if best.0 < i64::MAX && out_of_budget() {
            break;
        }
        let bound = bargain(classes, plain, &prices).bound;
        if bound < best.0 {
            best = (bound, prices);
        }
    }
    follow(classes, plain, goal, &mut best, out_of_budget);
    // what must go beside mains takes many more tables: from good prices on
    if sizes.beside.is_some() {
        follow(classes, sizes, goal, &mut best, out_of_budget);
    }
    (best.0.div_euclid(SCALE), best.1)
}

/// Follows what is wanted from the best prices on, as long as that lowers the bound.
fn follow(
    classes: &[Class],
    sizes: Sizes,
    goal: i64,
    best: &mut (i64, Prices),
    out_of_budget: &mut dyn FnMut() -> bool,
) {
    let steps = match domains(classes) {
        1 => 0,
        _ => PRICE_STEPS_MAX.min(PRICE_WORK_MAX / work(classes, sizes)),
    };
    let mut course: Option<Course> = None;
    for _ in 0..steps {
        let idle = course
            .as_ref()
            .is_some_and(|course| course.idle > PRICE_IDLE_MAX);
        if idle || best.0.div_euclid(SCALE) <= goal || out_of_budget() {
            break;
        }
        let Some(on) = &mut course else {
            let Bargain { bound, wanted, .. } = bargain(classes, sizes, &best.1);
            best.0 = best.0.min(bound);
            course = Some(Course::new(&wanted));
            continue;
        };
        let Some(next) = on.step(&best.1, best.0 - goal * SCALE) else {
            break;
        };
        let Bargain { bound, wanted, .. } = bargain(classes, sizes, &next);
        on.learn(&wanted, bound < best.0);
        if bound < best.0 {
            *best = (bound, next);
        }
    }
}

pub(crate) fn domains(classes: &[Class]) -> usize {
    classes.iter().map(|class| class.count).sum()
}

/// Looks at parts and volumes in one bargain.
pub(crate) fn work(classes: &[Class], sizes: Sizes) -> usize {
    let rows = |class: &Class| class.count * sizes.threads * class.worth.len() * 3 / 2;
    classes.iter().map(rows).sum::<usize>() + work_of_splits(classes, sizes) + 1
}

/// Where the prices go: against a mean of what was wanted (the volume algorithm of Barahona and
/// Anbil), which swings less than the last wish alone.
pub(crate) struct Course {
    mean: Vec<f64>,
    eager: f64,
    idle: u32,
}

impl Course {
    pub(crate) fn new(wanted: &Prices) -> Self {
        Self {
            mean: wanted.all().map(|x| x as f64).collect(),
            eager: 1.0,
            idle: 0,
        }
    }

    pub(crate) fn step(&self, from: &Prices, above: i64) -> Option<Prices> {
        let square: f64 = self.mean.iter().map(|x| x * x).sum();
        if square < 1e-9 {
            return None;
        }
        let step = self.eager * above as f64 / square;
        let mut next = from.clone();
        for (price, wanted) in next.all_mut().zip(&self.mean) {
            *price -= (step * wanted) as i64;
        }
        for price in next.permits.iter_mut().chain(&mut next.beside) {
            *price = (*price).max(0);
        }
        Some(next)
    }

    pub(crate) fn learn(&mut self, wanted: &Prices, better: bool) -> f64 {
        // the share of the new wish that makes the mean shortest
        let (mut both, mut apart) = (0.0, 0.0);
        for (mean, new) in self.mean.iter().zip(wanted.all()) {
            let more = new as f64 - mean;
            both -= mean * more;
            apart += more * more;
        }
        let share = if apart > 0.0 {
            (both / apart).clamp(0.03, 0.5)
        } else {
            0.5
        };
        for (mean, new) in self.mean.iter_mut().zip(wanted.all()) {
            *mean += share * (new as f64 - *mean);
        }
        if better {
            self.idle = 0;
            self.eager = (self.eager * 1.1).min(2.0);
        } else {
            self.idle += 1;
            if self.idle.is_multiple_of(3) {
                self.eager *= 0.7;
            }
        }
        share
    }
}

/// Both sides' best at these prices.
pub(crate) fn bargain(classes: &[Class], sizes: Sizes, prices: &Prices) -> Bargain {
    let mut wanted = Prices::like(classes, |_, _, _| 0);
    let permits = sizes.permits.map(|permits| permits.unwrap_or(0));
    wanted.permits = permits;
    let rows = rows(classes, sizes, prices, &mut wanted);
    let (splits, held) = splits(classes, sizes, prices, &mut wanted);
    Bargain {
        bound: rows.saturating_add(splits)
            + permits[0] * prices.permits[0]
            + permits[1] * prices.permits[1],
        wanted,
        held,
    }
}

/// What the last of all mains adds: at this price domains offer as many mains as there are workers.
fn last_main(classes: &[Class], sizes: Sizes) -> i64 {
    let steps = steps_of_mains(classes);
    let last = (sizes.workers as usize).min(steps.len());
    last.checked_sub(1).map_or(0, |last| steps[last])
}

/// What each further main adds, the least first.
fn steps_of_mains(classes: &[Class]) -> Vec<i64> {
    let mut steps: Vec<i64> = Vec::new();
    for class in classes {
        for pair in class.mains.windows(2) {
            steps.extend(std::iter::repeat_n(pair[1] - pair[0], class.count));
        }
    }
    steps.sort_unstable();
    steps
}

/// Marks the part that holds the main.
pub(crate) const MAIN: u16 = 1 << 15;

/// The best rows of all workers.
fn rows(classes: &[Class], sizes: Sizes, prices: &Prices, wanted: &mut Prices) -> i64 {
    let domains: Vec<usize> = classes
        .iter()
        .enumerate()
        .flat_map(|(at, class)| std::iter::repeat_n(at, class.count))
        .collect();
    let width = sizes.threads + 1;
    // without and with the main placed, in turn
    let mut tables = [vec![NEVER; width], vec![NEVER; width]];
    tables[0][0] = 0;
    let mut choices: Vec<[Vec<u16>; 2]> = Vec::with_capacity(domains.len());
    for &at in &domains {
        let [peers, mains] = &prices.parts[at];
        let mut choice = [vec![0u16; width], vec![0u16; width]];
        let mut next = [vec![NEVER; width], vec![NEVER; width]];
        for total in 0..width {
            for k in 0..peers.len().min(total + 1) {
                let without = tables[0][total - k] + peers[k];
                if without > next[0][total] {
                    next[0][total] = without;
                    choice[0][total] = k as u16;
                }
                let with = tables[1][total - k] + peers[k];
                if with > next[1][total] {
                    next[1][total] = with;
                    choice[1][total] = k as u16;
                }
                let here = tables[0][total - k] + mains[k];
                if k > 0 && here > next[1][total] {
                    next[1][total] = here;
                    choice[1][total] = k as u16 | MAIN;
                }
            }
        }
        tables = next;
        choices.push(choice);
    }
    let (mut side, mut left) = (1, sizes.threads);
    for (&at, choice) in domains.iter().zip(&choices).rev() {
        let chosen = choice[side][left];
        let k = usize::from(chosen & !MAIN);
        let main = usize::from(chosen & MAIN > 0);
        side -= main.min(side);
        wanted.parts[at][main][k] += sizes.workers;
        left -= k.min(left);
    }
    sizes.workers * tables[1][sizes.threads]
}
