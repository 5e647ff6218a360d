//! How many threads must move, whatever is chosen.
//!
//! **Problem.** A search moves few threads; it does not say that fewer would not do. **Approach.**
//! Count what the rules force: threads whose cpu is gone; threads of a deployment beyond what (2)
//! and (3) let a cpu have; and loads: from the largest on, no cpu and no core keeps more than
//! balance leaves it; and (12), (12+): a main that comes wants a place on a cpu, or core, that is
//! not full, and where there are too few, others make one. **Proof sketch.** All balanced
//! placements have the same loads, in some order; matching what runs with them from the largest on
//! leaves the least beyond (majorization). A thread counts in one place only, so the parts for cpus
//! that are there are not added up but the largest is taken. **Limits.** A lower bound: cpusets
//! that overlap, and gains worth a move, may force more.

use super::enumerate::Breaches;
use super::rules::Rules;
use super::site::{NOWHERE, Party, Site};
use super::volume::Volume;

/// Threads with a cpu in force that is not there any more.
pub(super) fn homeless(site: &Site) -> u32 {
    let gone = |(had_cpu, home): (&bool, &u16)| *had_cpu && *home == NOWHERE;
    let of = |party: &Party| {
        let slots = party.had_cpu.iter().zip(&party.homes);
        slots.filter(|&slot| gone(slot)).count() as u32
    };
    site.parties.iter().map(of).sum()
}

/// No placement that keeps (2), (3), (8) and (8+), and the rules on mains as well as by these
/// `breaches`, moves fewer threads.
pub(super) fn least_moves(site: &Site, rules: &Rules, volume: &Volume, breaches: Breaches) -> u32 {
    let mut held = site.obstacles.clone();
    for party in &site.parties {
        for &home in party.homes.iter().filter(|&&home| home != NOWHERE) {
            held[usize::from(home)] += 1;
        }
    }
    let cores = site.core_loads(&held);
    let mains = site.parties.iter().flat_map(Party::mains);
    let coming = mains.filter(|&home| home == NOWHERE).count() as u32;
    let [crowd, of_12, of_12_plus] = breaches;
    // a rule that is kept better may be paid for by those after it
    let full_cpus = rules.full_cpus.filter(|_| crowd == 0);
    let full_cores = rules.full_cores.filter(|_| crowd == 0 && of_12 == 0);
    let used = (0..site.cpus).filter(|&cpu| site.is_used[cpu]);
    let mut used_cores: Vec<usize> = used.clone().map(|cpu| site.core(cpu)).collect();
    used_cores.sort_unstable();
    used_cores.dedup();
    let on_cpus: Vec<u32> = used.map(|cpu| held[cpu]).collect();
    let on_cores: Vec<u32> = used_cores.into_iter().map(|core| cores[core]).collect();
    let forced = [
        makes_way(coming, (&on_cpus, full_cpus), of_12),
        makes_way(coming, (&on_cores, full_cores), of_12_plus),
        beyond(cores, site.core_loads(&volume.loads)),
        beyond(held, volume.loads.clone()),
        site.parties.iter().map(crowded).sum(),
    ];
    homeless(site) + forced.into_iter().max().unwrap_or(0)
}

/// Threads that leave a place on a unit which is not full to a main that comes.
fn makes_way(coming: u32, (held, rule): (&[u32], Option<(u32, u32)>), breach: u32) -> u32 {
    let Some((full, through)) = rule else {
        return 0;
    };
    let free = held.iter().map(|&held| (full - 1).saturating_sub(held));
    let on_full = (through + breach) * full;
    coming.saturating_sub(on_full + free.sum::<u32>())
}

/// What is held beyond the loads, both from the largest on.
fn beyond(mut held: Vec<u32>, mut loads: Vec<u32>) -> u32 {
    for counts in [&mut held, &mut loads] {
        counts.sort_unstable_by(|a, b| b.cmp(a));
    }
    let pairs = held.into_iter().zip(loads);
    pairs.map(|(held, load)| held.saturating_sub(load)).sum()
}

/// Threads of a party beyond those with the same worker, or the same rank, that a cpu may have.
fn crowded(party: &Party) -> u32 {
    let by_worker = |slot: usize| slot / party.threads;
    let by_rank = |slot: usize| slot % party.threads;
    let of = |cap: u16, group: &dyn Fn(usize) -> usize| {
        let homes = party.homes.iter().enumerate();
        let homes = homes.filter(|&(_, &home)| home != NOWHERE);
        let mut keys: Vec<(u16, usize)> = homes.map(|(slot, &home)| (home, group(slot))).collect();
        keys.sort_unstable();
        let alike = keys.chunk_by(|a, b| a == b);
        let beyond = alike.map(|alike| (alike.len() as u32).saturating_sub(cap.into()));
        beyond.sum::<u32>()
    };
    of(party.worker_cap, &by_worker).max(of(party.rank_cap, &by_rank))
}
