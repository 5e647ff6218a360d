//! A tighter bound where domains are few: branch and bound over the Lagrangian bound.
//!
//! **Problem.** The Lagrangian bound (`lagrangian_bound`) lets every domain mix partitions: half of
//! one volume, half of another. With few domains that is most of its gap. **Approach.** Every
//! domain is a class of its own. Where the partitions that the dual went through mix volumes or
//! numbers of mains of a domain, the problem branches: at most so many, or more. The open node with
//! the highest bound is next (best first). Equal domains are ordered by their volumes, which breaks
//! the symmetry. **Proof sketch.** The nodes cover all mappings, up to exchanges of equal domains,
//! and each has a bound of its own, so the highest bound of the open nodes, or the value that is
//! reached where none is open, is a bound. **Limits.** [`BRANCH_WORK_MAX`] and [`OPEN_NODES_MAX`]:
//! what is mixed inside a domain, of L2 caches and cores, stays mixed.

use crate::limits::{BRANCH_DOMAINS_MAX, BRANCH_STEPS, BRANCH_WORK_MAX, OPEN_NODES_MAX};
use crate::single::domain_classes::Class;
use crate::single::lagrangian_bound::{
    Dimensions, DualBound, DualPoint, Multipliers, SCALE, VolumeAlgorithm, domains, evaluate_dual,
    work,
};

/// A node of the search tree: the domains, with narrowed ranges of volumes and of mains.
struct OpenNode {
    domains: Vec<Class>,
    /// In units of multipliers.
    bound: i64,
    multipliers: Multipliers,
    /// How to branch next.
    branching: Option<Branching>,
}

/// Two cases: at most `most` threads (or mains) in a domain, or more.
#[derive(Clone, Copy)]
struct Branching {
    domain: usize,
    mains: bool,
    most: u32,
}

/// The lowest bound found, in cycles, from the dual of all domains together on; `goal` is a value
/// that is known to be reachable.
pub(crate) fn branch_and_bound(
    classes: &[Class],
    dimensions: Dimensions,
    goal: i64,
    dual: &DualBound,
    out_of_budget: &mut dyn FnMut() -> bool,
) -> i64 {
    let DualBound { bound, multipliers } = dual;
    let (bound, count) = (*bound, domains(classes));
    if !(2..=BRANCH_DOMAINS_MAX).contains(&count) || bound <= goal {
        return bound;
    }
    let root = OpenNode {
        domains: split_classes(classes),
        bound: (bound + 1) * SCALE - 1,
        multipliers: split_multipliers(classes, multipliers),
        branching: None,
    };
    let work = work(&root.domains, dimensions);
    let mut evaluations = BRANCH_WORK_MAX / work;
    if evaluations < 2 * BRANCH_STEPS {
        return bound;
    }
    let same: Vec<usize> = classes
        .iter()
        .enumerate()
        .flat_map(|(at, class)| std::iter::repeat_n(at, class.count))
        .collect();
    let mut open = vec![root];
    open[0].evaluate(dimensions, goal, out_of_budget);
    // bound: every round takes an evaluation, or closes an infeasible node
    while evaluations > 0 && open.len() < OPEN_NODES_MAX && !out_of_budget() {
        let highest = (0..open.len()).max_by_key(|&at| open[at].bound);
        let Some((at, branching)) = highest.and_then(|at| Some((at, open[at].branching?))) else {
            break;
        };
        let node = open.swap_remove(at);
        for more in [false, true] {
            let mut next = node.child(branching, more, &same);
            let used = next.evaluate(dimensions, goal, out_of_budget);
            evaluations = evaluations.saturating_sub(used);
            if next.bound.div_euclid(SCALE) > goal {
                open.push(next);
            }
        }
    }
    let highest = open.iter().map(|node| node.bound.div_euclid(SCALE)).max();
    highest.unwrap_or(goal).clamp(goal, bound)
}

/// Each domain as a class of its own.
fn split_classes(classes: &[Class]) -> Vec<Class> {
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

fn split_multipliers(classes: &[Class], multipliers: &Multipliers) -> Multipliers {
    fn each<T: Clone>(classes: &[Class], of: &[T]) -> Vec<T> {
        let pairs = classes.iter().zip(of);
        pairs
            .flat_map(|(class, one)| std::iter::repeat_n(one.clone(), class.count))
            .collect()
    }
    Multipliers {
        parts: each(classes, &multipliers.parts),
        full_mains: multipliers.full_mains,
        mains: each(classes, &multipliers.mains),
        crowding: each(classes, &multipliers.crowding),
    }
}

impl OpenNode {
    /// One of the two cases of a branching; domains of a class hold the less the later they come.
    fn child(&self, branching: Branching, more: bool, same: &[usize]) -> Self {
        let mut domains = self.domains.clone();
        for (at, domain) in domains.iter_mut().enumerate() {
            let alike = same[at] == same[branching.domain];
            let ordered = !branching.mains
                && alike
                && if more {
                    at <= branching.domain
                } else {
                    at >= branching.domain
                };
            if at != branching.domain && !ordered {
                continue;
            }
            let range = if branching.mains {
                &mut domain.main_counts
            } else {
                &mut domain.volumes
            };
            if more {
                range.0 = range.0.max(branching.most + 1);
            } else {
                range.1 = range.1.min(branching.most);
            }
        }
        Self {
            domains,
            bound: self.bound,
            multipliers: self.multipliers.clone(),
            branching: None,
        }
    }

    /// Lowers the bound by some steps of the dual and chooses the next branching. Returns the
    /// number of evaluations.
    fn evaluate(
        &mut self,
        dimensions: Dimensions,
        goal: i64,
        out_of_budget: &mut dyn FnMut() -> bool,
    ) -> usize {
        let empty = |class: &Class| {
            class.volumes.0 > class.volumes.1 || class.main_counts.0 > class.main_counts.1
        };
        let slots = dimensions.workers * dimensions.threads as i64;
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
                dimensions.workers,
            );
        if !possible {
            self.bound = i64::MIN;
            return 0;
        }
        let DualPoint {
            bound,
            subgradient,
            held,
        } = evaluate_dual(&self.domains, dimensions, &self.multipliers);
        self.bound = self.bound.min(bound);
        let mut lowest = bound;
        let mut algorithm = VolumeAlgorithm::new(&subgradient);
        let mut means = SplitMeans::of(&held);
        let mut used = 1;
        for _ in 0..BRANCH_STEPS {
            if self.bound.div_euclid(SCALE) <= goal || out_of_budget() {
                break;
            }
            let Some(next) = algorithm.step(&self.multipliers, lowest - goal * SCALE) else {
                break;
            };
            let DualPoint {
                bound,
                subgradient,
                held,
            } = evaluate_dual(&self.domains, dimensions, &next);
            used += 1;
            let share = algorithm.update(&subgradient, bound < lowest);
            means.update(&held, share);
            if bound < lowest {
                lowest = bound;
                self.multipliers = next;
                self.bound = self.bound.min(bound);
            }
        }
        self.branching = means.branching(&self.domains);
        used
    }
}

/// Means of the threads and mains that each domain held, and of their squares.
struct SplitMeans(Vec<[(f64, f64); 2]>);

impl SplitMeans {
    fn of(held: &[[i64; 2]]) -> Self {
        let both = |x: i64| (x as f64, (x * x) as f64);
        Self(held.iter().map(|held| held.map(both)).collect())
    }

    fn update(&mut self, held: &[[i64; 2]], share: f64) {
        let all = self.0.iter_mut().flatten().zip(held.iter().flatten());
        for ((mean, square), &now) in all {
            *mean += share * (now as f64 - *mean);
            *square += share * ((now * now) as f64 - *square);
        }
    }

    /// Branches on the range with the largest deviation.
    fn branching(&self, domains: &[Class]) -> Option<Branching> {
        let mut best: Option<(f64, Branching)> = None;
        for (domain, (means, class)) in self.0.iter().zip(domains).enumerate() {
            let ranges = [class.volumes, class.main_counts];
            for (mains, (&(mean, square), (least, most))) in
                [false, true].into_iter().zip(means.iter().zip(ranges))
            {
                if least >= most {
                    continue;
                }
                let spread = (square - mean * mean).max(0.0).sqrt() * if mains { 2.0 } else { 1.0 };
                let cut = (mean as u32).clamp(least, most - 1);
                if best.is_none_or(|(highest, _)| spread > highest) {
                    best = Some((
                        spread,
                        Branching {
                            domain,
                            mains,
                            most: cut,
                        },
                    ));
                }
            }
        }
        best.map(|(_, branching)| branching)
    }
}
