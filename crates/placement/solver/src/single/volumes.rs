//! The number of threads and mains on each cpu, before they are assigned to workers.
//!
//! **Problem.** Find volumes n and mains m per cpu that keep (8), (8+), mains-per-core, (12) and
//! (12+), with the mains as far apart as possible, and such that workers and ranks can be assigned
//! afterwards. **Approach.** Mains first, one at a time on the cpu that adds least closeness. Every
//! cpu holds floor(WT/C) threads; the remaining r "extras" are placed one at a time on the core and
//! the cpu where they violate least. **Proof sketch.** One main at a time is exact (`spread`). The
//! assignment requires m <= n and n - m <= rank_cap (T-1) on every cpu and nothing else
//! (`assignment`, `rank_coloring`), so both are limits here and the rest is free. On equal cores
//! every core gets floor(r/P) extras and r mod P cores one more; violations of cores are
//! independent, so the greedy choice is optimal. **Limits.** With unequal cores the core rules are
//! best effort: the greatest excess of a core is kept small in the order (8+), (12), (12+).

use crate::single::domains::{CORE, CPU, Domains, LEVELS};
use crate::single::relaxation::reduce_excess;
use crate::single::spread::{add, spread, zero_counts};
use crate::{Mode, WorkBudget};

/// Threads and mains on each cpu.
#[derive(Clone)]
pub(crate) struct Volumes {
    pub(crate) threads: Vec<u32>,
    pub(crate) mains: Vec<u32>,
}

/// Volumes that keep the rules, or break them as little as this order of steps allows.
pub(crate) fn volumes(domains: &Domains) -> Volumes {
    volumes_in_budget(domains, &mut WorkBudget::unlimited())
}

/// The same; once the budget is spent, the remaining excess is not reduced.
pub(crate) fn volumes_in_budget(domains: &Domains, budget: &mut WorkBudget) -> Volumes {
    let mains = spread_mains(domains);
    let threads = spread_extras(domains, &mains);
    let mut volumes = Volumes { threads, mains };
    reduce_excess(domains, &mut volumes, budget);
    volumes
}

/// Fewest and most mains on a cpu.
pub(crate) fn main_limits(domains: &Domains) -> (u32, u32) {
    let peers = domains.rules.rank_cap * (domains.threads as u32 - 1);
    let (lower, upper) = domains.rules.cpu_volume;
    (
        lower.saturating_sub(peers),
        domains.rules.rank_cap.min(upper),
    )
}

/// Places mains as far apart as the caps allow; the cap of a core is raised if the cores are too
/// small for it. If an extra needs one more main on its cpu (its peers alone would be too many for
/// T-1 ranks), enough cpus get one first.
fn spread_mains(domains: &Domains) -> Vec<u32> {
    let (least, most) = main_limits(domains);
    let mut counts = zero_counts(domains);
    for cpu in 0..domains.cpus {
        for _ in 0..least {
            add(domains, &mut counts, cpu);
        }
    }
    let left = domains.workers - (least as usize * domains.cpus).min(domains.workers);
    let peers = domains.rules.rank_cap * (domains.threads as u32 - 1);
    // with so few peers that (8+) needs mains on every core, those are placed before the rest is
    // spread
    let widest = (0..domains.count(CORE)).map(|core| domains.members(CORE, core).len());
    let held = widest.max().unwrap_or(1) as u32 * peers;
    let floor = domains.rules.core_volume.0.saturating_sub(held);
    let ahead = spread(domains, &mut counts, left, &|on_cpu, on_core| {
        on_cpu < most.min(least + 1) && on_core < floor
    });
    let left = left - ahead;
    let extras = domains.workers * domains.threads % domains.cpus;
    let first = if domains.rules.cpu_volume.1 > peers {
        extras.saturating_sub(ahead).min(left)
    } else {
        0
    };
    spread_capped(domains, &mut counts, first, (least + 1).min(most));
    spread_capped(domains, &mut counts, left - first, most);
    std::mem::take(&mut counts[CPU])
}

/// Spreads mains with at most `most` on a cpu and as few as possible above the cap of a core.
fn spread_capped(domains: &Domains, counts: &mut [Vec<u32>; LEVELS], mains: usize, most: u32) {
    let mut left = mains;
    // bound: no core holds more than all mains, so a cap of W leaves none at the latest
    for cap in domains.rules.core_mains..=domains.workers as u32 {
        left -= spread(domains, counts, left, &|on_cpu, on_core| {
            on_cpu < most && on_core < cap
        });
        if left == 0 {
            return;
        }
    }
}

/// A core while extras are placed.
struct CoreLoad {
    volume: u32,
    mains: u32,
}

fn spread_extras(domains: &Domains, mains: &[u32]) -> Vec<u32> {
    let (lower, upper) = domains.rules.cpu_volume;
    let peers = domains.rules.rank_cap * (domains.threads as u32 - 1);
    let mut threads: Vec<u32> = mains.iter().map(|&m| lower.max(m)).collect();
    let slots = (domains.workers * domains.threads) as u32;
    let placed: u32 = threads.iter().sum();
    let mut cores: Vec<CoreLoad> = (0..domains.count(CORE))
        .map(|core| {
            let members = domains.members(CORE, core);
            let sum = |of: &[u32]| of[members.clone()].iter().sum();
            CoreLoad {
                volume: sum(&threads),
                mains: sum(mains),
            }
        })
        .collect();
    let (mut held, mut mains_held) = (zero_counts(domains), zero_counts(domains));
    for cpu in 0..domains.cpus {
        (0..threads[cpu]).for_each(|_| add(domains, &mut held, cpu));
        (0..mains[cpu]).for_each(|_| add(domains, &mut mains_held, cpu));
    }
    let preference = |held: &[Vec<u32>; LEVELS], level: usize, cpu: usize| {
        let domain = domains.domain(level, cpu);
        let threads = i64::from(held[level][domain]);
        match domains.mode {
            Mode::Scatter => threads,
            Mode::Compact => {
                threads - domains.threads as i64 * i64::from(mains_held[level][domain])
            }
        }
    };
    for _ in placed..slots {
        let room = |cpu: &usize| threads[*cpu] < upper.min(peers + mains[*cpu]);
        let Some(cpu) = (0..domains.cpus).filter(room).min_by_key(|&cpu| {
            let damage = damage(domains, &cores[domains.core(cpu)], mains[cpu]);
            (
                damage,
                preference(&held, 3, cpu),
                preference(&held, 2, cpu),
                cpu,
            )
        }) else {
            break;
        };
        threads[cpu] += 1;
        add(domains, &mut held, cpu);
        cores[domains.core(cpu)].volume += 1;
    }
    threads
}

/// Damage by one more thread on a cpu with `mains` of `core`, less is better: first cores below the
/// floor, then least excess over the ceiling of the core, then (12), then (12+).
fn damage(domains: &Domains, core: &CoreLoad, mains: u32) -> (bool, u32, bool, bool) {
    let (lower, upper) = domains.rules.core_volume;
    let full =
        domains.rules.full_main_cores.is_some() && core.volume + 1 == upper && core.mains > 0;
    (
        core.volume >= lower,
        (core.volume + 1).saturating_sub(upper),
        domains.rules.full_main_cpus.is_some() && mains > 0,
        full,
    )
}
