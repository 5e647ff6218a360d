//! A lower bound where domains are few: prices, case by case.
//!
//! **Problem.** Prices (`prices`) let every domain mix splits: half of one volume, half of another.
//! With few domains that is most of what the bound is off by. **Approach.** Every domain is a class
//! of its own. Where the splits that a bargain went through mix volumes or numbers of mains of a
//! domain, two cases are made of it: at most so many, or more. The case with the highest bound is
//! next. Domains that nothing tells apart are in order of their volumes. **Proof sketch.** The
//! cases cover all mappings, up to names of equal domains, and each has a bound of its own, so the
//! highest bound of those that are open, or the value that is reached where there are none, is a
//! bound. **Limits.** [`FORK_WORK_MAX`] and [`FORK_CASES_MAX`]: what is mixed inside a domain, of
//! L2 caches and cores, stays mixed.

use crate::classes::Class;
use crate::limits::{FORK_CASES_MAX, FORK_DOMAINS_MAX, FORK_STEPS, FORK_WORK_MAX};
use crate::prices::{Bargain, Course, Prices, SCALE, Sizes, bargain, domains, work};

/// A case: domains with fewer volumes or mains than there is room for, and its bound in price
/// units.
struct Case {
    domains: Vec<Class>,
    bound: i64,
    prices: Prices,
    /// What to make two cases of.
    fork: Option<Fork>,
}

/// At most `most` threads (or mains) in a domain, or more.
#[derive(Clone, Copy)]
struct Fork {
    domain: usize,
    mains: bool,
    most: u32,
}

/// The lowest bound found, in cycles, from that of all domains together and its prices on.
pub(crate) fn forked(
    classes: &[Class],
    sizes: Sizes,
    (goal, bound, prices): (i64, i64, &Prices),
    out_of_budget: &mut dyn FnMut() -> bool,
) -> i64 {
    let count = domains(classes);
    if !(2..=FORK_DOMAINS_MAX).contains(&count) || bound <= goal {
        return bound;
    }
    let root = Case {
        domains: apart(classes),
        bound: (bound + 1) * SCALE - 1,
        prices: prices_apart(classes, prices),
        fork: None,
    };
    let work = work(&root.domains, sizes);
    let mut bargains = FORK_WORK_MAX / work;
    if bargains < 2 * FORK_STEPS {
        return bound;
    }
    let same: Vec<usize> = classes
        .iter()
        .enumerate()
        .flat_map(|(at, class)| std::iter::repeat_n(at, class.count))
        .collect();
    let mut open = vec![root];
    open[0].settle(sizes, goal, out_of_budget);
    // bound: every round takes a bargain, or a case that is none
    while bargains > 0 && open.len() < FORK_CASES_MAX && !out_of_budget() {
        let highest = (0..open.len()).max_by_key(|&at| open[at].bound);
        let Some((at, fork)) = highest.and_then(|at| Some((at, open[at].fork?))) else {
            break;
        };
        let case = open.swap_remove(at);
        for more in [false, true] {
            let mut next = case.with(fork, more, &same);
            let used = next.settle(sizes, goal, out_of_budget);
            bargains = bargains.saturating_sub(used);
            if next.bound.div_euclid(SCALE) > goal {
                open.push(next);
            }
        }
    }
    let highest = open.iter().map(|case| case.bound.div_euclid(SCALE)).max();
    highest.unwrap_or(goal).clamp(goal, bound)
}

/// Each domain as a class of its own.
fn apart(classes: &[Class]) -> Vec<Class> {
    let one = |class: &Class| {
        let mut one = class.clone();
        one.count = 1;
        one
    };
    classes
        .iter()
        .flat_map(|class| std::iter::repeat_n(one(class), class.count))
        .collect()
}

fn prices_apart(classes: &[Class], prices: &Prices) -> Prices {
    fn each<T: Clone>(classes: &[Class], of: &[T]) -> Vec<T> {
        let pairs = classes.iter().zip(of);
        pairs
            .flat_map(|(class, one)| std::iter::repeat_n(one.clone(), class.count))
            .collect()
    }
    Prices {
        parts: each(classes, &prices.parts),
        permits: prices.permits,
        tolls: each(classes, &prices.tolls),
        beside: each(classes, &prices.beside),
    }
}

impl Case {
    /// One of the two cases that a fork makes; domains of a class hold the less the later they
    /// come.
    fn with(&self, fork: Fork, more: bool, same: &[usize]) -> Self {
        let mut domains = self.domains.clone();
        for (at, domain) in domains.iter_mut().enumerate() {
            let alike = same[at] == same[fork.domain];
            let ordered = !fork.mains
                && alike
                && if more {
                    at <= fork.domain
                } else {
                    at >= fork.domain
                };
            if at != fork.domain && !ordered {
                continue;
            }
            let range = if fork.mains {
                &mut domain.main_counts
            } else {
                &mut domain.volumes
            };
            if more {
                range.0 = range.0.max(fork.most + 1);
            } else {
                range.1 = range.1.min(fork.most);
            }
        }
        Self {
            domains,
            bound: self.bound,
            prices: self.prices.clone(),
            fork: None,
        }
    }

    /// Bargains for a while; finds the next fork. How many bargains it took.
    fn settle(
        &mut self,
        sizes: Sizes,
        goal: i64,
        out_of_budget: &mut dyn FnMut() -> bool,
    ) -> usize {
        let empty = |class: &Class| {
            class.volumes.0 > class.volumes.1 || class.main_counts.0 > class.main_counts.1
        };
        let slots = sizes.workers * sizes.threads as i64;
        let sum = |of: fn(&Class) -> u32| {
            self.domains
                .iter()
                .map(|class| i64::from(of(class)))
                .sum::<i64>()
        };
        let covers = |least: i64, most: i64, all: i64| (least..=most).contains(&all);
        let possible = !self.domains.iter().any(empty)
            && covers(
                sum(|class| class.volumes.0),
                sum(|class| class.volumes.1),
                slots,
            )
            && covers(
                sum(|class| class.main_counts.0),
                sum(|class| class.main_counts.1),
                sizes.workers,
            );
        if !possible {
            self.bound = i64::MIN;
            return 0;
        }
        let Bargain {
            bound,
            wanted,
            held,
        } = bargain(&self.domains, sizes, &self.prices);
        self.bound = self.bound.min(bound);
        let mut lowest = bound;
        let mut course = Course::new(&wanted);
        let mut mixed = Mixed::of(&held);
        let mut used = 1;
        for _ in 0..FORK_STEPS {
            if self.bound.div_euclid(SCALE) <= goal || out_of_budget() {
                break;
            }
            let Some(next) = course.step(&self.prices, lowest - goal * SCALE) else {
                break;
            };
            let Bargain {
                bound,
                wanted,
                held,
            } = bargain(&self.domains, sizes, &next);
            used += 1;
            let share = course.learn(&wanted, bound < lowest);
            mixed.learn(&held, share);
            if bound < lowest {
                lowest = bound;
                self.prices = next;
                self.bound = self.bound.min(bound);
            }
        }
        self.fork = mixed.fork(&self.domains);
        used
    }
}

/// Means of what the domains held, and of its squares: threads, mains.
struct Mixed(Vec<[(f64, f64); 2]>);

impl Mixed {
    fn of(held: &[[i64; 2]]) -> Self {
        let both = |x: i64| (x as f64, (x * x) as f64);
        Self(held.iter().map(|held| held.map(both)).collect())
    }

    fn learn(&mut self, held: &[[i64; 2]], share: f64) {
        let all = self.0.iter_mut().flatten().zip(held.iter().flatten());
        for ((mean, square), &now) in all {
            *mean += share * (now as f64 - *mean);
            *square += share * ((now * now) as f64 - *square);
        }
    }

    /// Where most is mixed.
    fn fork(&self, domains: &[Class]) -> Option<Fork> {
        let mut best: Option<(f64, Fork)> = None;
        for (domain, (mixed, class)) in self.0.iter().zip(domains).enumerate() {
            let ranges = [class.volumes, class.main_counts];
            for (mains, (&(mean, square), (least, most))) in
                [false, true].into_iter().zip(mixed.iter().zip(ranges))
            {
                if least >= most {
                    continue;
                }
                let spread = (square - mean * mean).max(0.0).sqrt() * if mains { 2.0 } else { 1.0 };
                let cut = (mean as u32).clamp(least, most - 1);
                if best.is_none_or(|(highest, _)| spread > highest) {
                    best = Some((
                        spread,
                        Fork {
                            domain,
                            mains,
                            most: cut,
                        },
                    ));
                }
            }
        }
        best.map(|(_, fork)| fork)
    }
}
