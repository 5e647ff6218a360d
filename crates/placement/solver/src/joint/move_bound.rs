//! A lower bound on the number of threads that must move.
//!
//! **Problem.** A search moves few threads, but does not prove that fewer cannot suffice.
//! **Approach.** Count what the rules force: displaced threads (their cpu is gone); threads of a
//! deployment beyond what (2) and (3) allow on a cpu; loads, where, in descending order, no cpu and
//! no core keeps more than the balanced loads allow; and (12), (12+), where a new main needs a
//! place on a cpu, or core, that is not full, and other threads have to leave one if there are too
//! few. **Proof sketch.** All balanced placements have the same loads, up to permutation; matching
//! the current loads with them in descending order gives the least excess (majorization). The terms
//! for usable cpus may count the same thread, so they are not added up: the largest is taken.
//! **Limits.** A lower bound: overlapping cpusets, and gains that are worth a move, may require
//! more moves.

use super::enumerate::RuleExcess;
use super::instance::{Instance, NO_CPU, Tenant};
use super::rules::Rules;
use super::volumes::JointVolumes;

/// Threads whose cpu in force is no longer usable.
pub(super) fn displaced(instance: &Instance) -> u32 {
    let gone = |(had_cpu, current_cpu): (&bool, &u16)| *had_cpu && *current_cpu == NO_CPU;
    let of = |tenant: &Tenant| {
        let slots = tenant.had_cpu.iter().zip(&tenant.current_cpus);
        slots.filter(|&slot| gone(slot)).count() as u32
    };
    instance.tenants.iter().map(of).sum()
}

/// Lower bound on the moves of any placement that keeps (2), (3), (8) and (8+), and breaks the
/// rules on mains by no more than `excess`.
pub(super) fn least_moves(
    instance: &Instance,
    rules: &Rules,
    volume: &JointVolumes,
    excess: RuleExcess,
) -> u32 {
    let mut held = instance.obstacles.clone();
    for tenant in &instance.tenants {
        for &current_cpu in tenant
            .current_cpus
            .iter()
            .filter(|&&current_cpu| current_cpu != NO_CPU)
        {
            held[usize::from(current_cpu)] += 1;
        }
    }
    let cores = instance.core_loads(&held);
    let mains = instance.tenants.iter().flat_map(Tenant::mains);
    let coming = mains.filter(|&current_cpu| current_cpu == NO_CPU).count() as u32;
    let [crowding, _, of_12, of_12_plus] = excess;
    // a rule may be kept better at the expense of those after it
    let full_cpus = rules.full_cpus.filter(|_| crowding == 0);
    let full_cores = rules.full_cores.filter(|_| crowding == 0 && of_12 == 0);
    let used = (0..instance.cpus).filter(|&cpu| instance.is_used[cpu]);
    let mut used_cores: Vec<usize> = used.clone().map(|cpu| instance.core(cpu)).collect();
    used_cores.sort_unstable();
    used_cores.dedup();
    let on_cpus: Vec<u32> = used.map(|cpu| held[cpu]).collect();
    let on_cores: Vec<u32> = used_cores.into_iter().map(|core| cores[core]).collect();
    // where cores are equally fast, loads of cores are the same in all balanced placements
    let on_cores_beyond = match instance.fill_order.is_uniform() {
        true => beyond(cores, instance.core_loads(&volume.loads)),
        false => 0,
    };
    let forced = [
        displaced_by_mains(coming, &on_cpus, full_cpus, of_12),
        displaced_by_mains(coming, &on_cores, full_cores, of_12_plus),
        on_cores_beyond,
        beyond(held, volume.loads.clone()),
        instance.tenants.iter().map(threads_over_caps).sum(),
    ];
    displaced(instance) + forced.into_iter().max().unwrap_or(0)
}

/// Threads that must leave a unit that is not full to make room for a new main.
fn displaced_by_mains(coming: u32, held: &[u32], rule: Option<(u32, u32)>, violation: u32) -> u32 {
    let Some((full, through)) = rule else {
        return 0;
    };
    let free = held.iter().map(|&held| (full - 1).saturating_sub(held));
    let on_full = (through + violation) * full;
    coming.saturating_sub(on_full + free.sum::<u32>())
}

/// Excess of what is held over the loads, both in descending order.
fn beyond(mut held: Vec<u32>, mut loads: Vec<u32>) -> u32 {
    for counts in [&mut held, &mut loads] {
        counts.sort_unstable_by(|a, b| b.cmp(a));
    }
    let pairs = held.into_iter().zip(loads);
    pairs.map(|(held, load)| held.saturating_sub(load)).sum()
}

/// Threads of a tenant beyond its caps per worker, or per rank, on a cpu.
fn threads_over_caps(tenant: &Tenant) -> u32 {
    let by_worker = |slot: usize| slot / tenant.threads;
    let by_rank = |slot: usize| slot % tenant.threads;
    let of = |cap: u16, group: &dyn Fn(usize) -> usize| {
        let current_cpus = tenant.current_cpus.iter().enumerate();
        let current_cpus = current_cpus.filter(|&(_, &current_cpu)| current_cpu != NO_CPU);
        let mut keys: Vec<(u16, usize)> = current_cpus
            .map(|(slot, &current_cpu)| (current_cpu, group(slot)))
            .collect();
        keys.sort_unstable();
        let alike = keys.chunk_by(|a, b| a == b);
        let beyond = alike.map(|alike| (alike.len() as u32).saturating_sub(cap.into()));
        beyond.sum::<u32>()
    };
    of(tenant.worker_cap, &by_worker).max(of(tenant.rank_cap, &by_rank))
}
