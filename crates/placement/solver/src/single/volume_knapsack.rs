//! The volumes of all domains in the Lagrangian bound: they sum to WT.
//!
//! **Problem.** Given the best partition of every volume of every class (`domain_subproblem`),
//! choose a volume for each domain such that all threads are placed. **Approach.** A
//! multiple-choice knapsack over domains and extra threads (`exact_volumes`) or, if that takes too
//! long, a multiplier of a thread that is found by bisection (`priced_volumes`). **Proof sketch.**
//! The multiplier belongs to an equation that holds in every mapping, so the value is a bound at
//! any multiplier. **Limits.** Priced volumes differ from WT by less than one domain's choice,
//! which loosens the bound by as much.

use crate::single::domain_classes::Class;
use crate::single::domain_subproblem::Partitions;
use crate::single::lagrangian_bound::{Dimensions, INFEASIBLE};

/// Bisection steps for a thread's multiplier.
const BISECTIONS: u32 = 48;
/// Above the multiplier of any thread.
const THREAD_MULTIPLIER_MAX: i64 = 1 << 46;

/// Steps of [`exact_volumes`].
pub(crate) fn exact_volume_work(classes: &[Class], dimensions: Dimensions) -> usize {
    let of =
        |class: &Class| class.count * (class.capacity.most - class.capacity.least + 1) as usize;
    (extra_threads(classes, dimensions) + 1) * classes.iter().map(of).sum::<usize>()
}

/// Steps of [`priced_volumes`].
pub(crate) fn priced_volume_work(classes: &[Class]) -> usize {
    let of = |class: &Class| (class.capacity.most - class.capacity.least + 1) as usize;
    BISECTIONS as usize * classes.iter().map(of).sum::<usize>()
}

/// Threads beyond the least volumes of all domains.
fn extra_threads(classes: &[Class], dimensions: Dimensions) -> usize {
    let slots = dimensions.workers as usize * dimensions.threads;
    let least = |class: &Class| class.count * class.capacity.least as usize;
    slots.saturating_sub(classes.iter().map(least).sum())
}

/// A volume for some domains of a class.
#[derive(Clone, Copy)]
pub(crate) struct VolumeChoice {
    pub(crate) class: usize,
    pub(crate) volume: usize,
    /// Number of domains with this volume.
    pub(crate) domains: i64,
}

/// The best volumes of all domains.
pub(crate) struct Allocation {
    pub(crate) value: i64,
    pub(crate) choices: Vec<VolumeChoice>,
}

/// The best volumes that sum to WT: a multiple-choice knapsack over domains and extra threads.
pub(crate) fn exact_volumes(
    classes: &[Class],
    partitions: &[Partitions],
    dimensions: Dimensions,
) -> Allocation {
    let extras = extra_threads(classes, dimensions);
    let mut reachable = 0;
    let mut best = vec![INFEASIBLE; extras + 1];
    best[0] = 0;
    let mut taken: Vec<(usize, Vec<u16>)> = Vec::new();
    for (at, (class, partitions)) in classes.iter().zip(partitions).enumerate() {
        let (least, most) = (class.capacity.least as usize, class.capacity.most as usize);
        for _ in 0..class.count {
            let mut next = vec![INFEASIBLE; extras + 1];
            let mut choice = vec![0u16; extras + 1];
            for (before, &value) in best.iter().enumerate().take(reachable + 1) {
                if value <= INFEASIBLE / 2 {
                    continue;
                }
                for more in 0..=(most - least).min(extras - before) {
                    let sum = value + partitions.best[least + more].value;
                    if sum > next[before + more] {
                        next[before + more] = sum;
                        choice[before + more] = more as u16;
                    }
                }
            }
            reachable = (reachable + most - least).min(extras);
            best = next;
            taken.push((at, choice));
        }
    }
    let mut left = extras;
    let mut choices = Vec::with_capacity(taken.len());
    for (at, choice) in taken.iter().rev() {
        let more = usize::from(choice[left]);
        left -= more;
        choices.push(VolumeChoice {
            class: *at,
            volume: classes[*at].capacity.least as usize + more,
            domains: 1,
        });
    }
    Allocation {
        value: best[extras],
        choices,
    }
}

/// The best volumes at a multiplier of a thread.
struct PricedVolumes {
    value: i64,
    /// Sum of the volumes of all domains.
    threads: i64,
    /// The volume of the domains of each class.
    volumes: Vec<usize>,
}

impl PricedVolumes {
    fn at(
        multiplier: i64,
        classes: &[Class],
        partitions: &[Partitions],
        dimensions: Dimensions,
    ) -> Self {
        let slots = dimensions.workers * dimensions.threads as i64;
        let mut priced = Self {
            value: multiplier * slots,
            threads: 0,
            volumes: Vec::with_capacity(classes.len()),
        };
        for (class, partitions) in classes.iter().zip(partitions) {
            let (least, most) = (class.capacity.least as usize, class.capacity.most as usize);
            let value = |volume: usize| {
                let paid = multiplier * volume as i64;
                partitions.best[volume].value.saturating_sub(paid)
            };
            let best = (least..=most).max_by_key(|&v| value(v)).unwrap_or(least);
            priced.value += value(best).max(INFEASIBLE / 1_000) * class.count as i64;
            priced.threads += (best * class.count) as i64;
            priced.volumes.push(best);
        }
        priced
    }
}

/// Volumes at the multiplier of a thread for which their sum is closest to WT, found by bisection.
/// The value is a bound at any multiplier.
pub(crate) fn priced_volumes(
    classes: &[Class],
    partitions: &[Partitions],
    dimensions: Dimensions,
) -> Allocation {
    let slots = dimensions.workers * dimensions.threads as i64;
    let at = |multiplier| PricedVolumes::at(multiplier, classes, partitions, dimensions);
    let (mut low, mut high) = (-THREAD_MULTIPLIER_MAX, THREAD_MULTIPLIER_MAX);
    let (mut fewer, mut more) = (at(high), at(low));
    // bound: the range halves
    for _ in 0..BISECTIONS {
        let middle = low + (high - low) / 2;
        let now = at(middle);
        if now.threads > slots {
            (low, more) = (middle, now);
        } else {
            (high, fewer) = (middle, now);
        }
    }
    // class by class, domains take the larger volume as long as threads are left
    let mut left = slots - fewer.threads;
    let mut choices = Vec::with_capacity(2 * classes.len());
    for (at, class) in classes.iter().enumerate() {
        let (small, large) = (fewer.volumes[at], more.volumes[at]);
        let difference = large as i64 - small as i64;
        let count = class.count as i64;
        let with_large = match difference > 0 {
            true => (left / difference).clamp(0, count),
            false => 0,
        };
        left -= with_large * difference;
        for (volume, domains) in [(large, with_large), (small, count - with_large)] {
            choices.push(VolumeChoice {
                class: at,
                volume,
                domains,
            });
        }
    }
    Allocation {
        value: fewer.value.min(more.value),
        choices,
    }
}
