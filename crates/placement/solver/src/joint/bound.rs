//! Upper bounds of the joint objective, from counts alone.
//!
//! **Problem.** As for one deployment: an objective needs an upper bound beside it. **Approach.**
//! The mains of all deployments and the pairs within workers are bounded separately. *Mains*: see
//! `min_cost_flow`. *Within, scatter*: each worker is spread as if it were alone on the cpuset.
//! *Within, compact*: level by level, each worker is packed as if alone into domains that take no
//! more of it than rule (3) and the loads allow; on cpus and cores also a bound for all compact
//! workers together: a core of load X holds at most X/k workers with k threads; where (12+) holds,
//! a limited number of mains are on full cores. **Proof sketch.** Loads as multisets are the same
//! in every placement that keeps (8) and (8+), so the largest load limits every worker. Where cores
//! differ in speed, see `speed_bound`. The rest is as in `bound` for one deployment. **Limits.**
//! Competition of mains and peers for the same cpus is ignored.

use std::collections::BTreeMap;

use super::enumerate::RuleExcess;
use super::instance::{CORE, Instance, LEVELS, Tenant, pairs};
use super::min_cost_flow::least_closeness;
use super::rules::Rules;
use super::speed_bound::SpeedBound;
use super::spread::Spread;
use super::volumes::JointVolumes;

/// Upper bound of the objective of all placements that break no rule on mains by more than
/// `excess`.
pub(super) fn upper_bound(
    instance: &Instance,
    rules: &Rules,
    volume: &JointVolumes,
    excess: RuleExcess,
) -> i64 {
    let mains = least_closeness(instance, rules.core_mains + excess[0], excess[1]);
    let core_loads = common_core_loads(instance, volume);
    let speeds = SpeedBound::of(instance, &volume.loads);
    let mut sum = pairs(instance.workers as u32) * instance.machine_distance - mains;
    let mut scattered = 0;
    let mut known: BTreeMap<(&[u16], usize), i64> = BTreeMap::new();
    for tenant in &instance.tenants {
        let workers = tenant.workers as i64;
        let all = workers * instance.machine_distance * pairs(tenant.threads as u32);
        sum += tenant.sign * all;
        if tenant.sign > 0 {
            let alike = (&tenant.cpus[..], tenant.threads);
            scattered += workers
                * *known
                    .entry(alike)
                    .or_insert_with(|| least_alone(instance, tenant));
        }
    }
    let mut compact = most_pairs_by_level(instance, rules, core_loads.as_deref(), excess);
    compact[0] = compact[0].min(most_together(instance, &volume.loads, 0));
    if let Some(core_loads) = &core_loads {
        compact[CORE] = compact[CORE].min(most_together(instance, core_loads, CORE));
    }
    if let Some(speeds) = speeds {
        let fewest = |level: usize| instance.gain[level] * speeds.fewest(level);
        scattered = scattered.max((0..instance.levels).map(fewest).sum());
        for (level, most) in compact.iter_mut().enumerate().take(instance.levels) {
            *most = speeds.most(level, excess[1]).min(*most);
        }
    }
    let at = |level: usize| instance.gain[level] * compact[level];
    sum - scattered + (0..instance.levels).map(at).sum::<i64>()
}

/// The loads of cores that all balanced placements have, up to permutation; `None` if cores differ
/// in speed and some of them are open to only part of the deployments.
fn common_core_loads(instance: &Instance, volume: &JointVolumes) -> Option<Vec<u32>> {
    let is_common = instance.fill_order.is_uniform() || instance.is_undivided();
    is_common.then(|| instance.core_loads(&volume.loads))
}

/// Per level: most pairs of a worker alone, and with its main on a core that is not full.
type PairBounds = [(i64, i64); LEVELS];

/// Most pairs of compact workers within domains of each level if each worker were alone. Where
/// (12+) holds, all but the allowed number of workers have their main on a core that is not full.
fn most_pairs_by_level(
    instance: &Instance,
    rules: &Rules,
    core_loads: Option<&[u32]>,
    excess: RuleExcess,
) -> [i64; LEVELS] {
    let most = core_loads.and_then(|loads| loads.iter().copied().max());
    let most = most.unwrap_or(u32::MAX);
    let mut known: BTreeMap<(&[u16], usize), PairBounds> = BTreeMap::new();
    let (mut sums, mut most_more) = ([0; LEVELS], [0; LEVELS]);
    let mut workers = 0;
    for tenant in instance.tenants.iter().filter(|tenant| tenant.sign < 0) {
        workers += tenant.workers as i64;
        let alone = known
            .entry((&tenant.cpus, tenant.threads))
            .or_insert_with(|| {
                std::array::from_fn(|level| most_alone(instance, tenant, level, most, rules))
            });
        for (level, &mut (free, bound)) in alone.iter_mut().enumerate() {
            sums[level] += tenant.workers as i64 * bound;
            most_more[level] = (free - bound).max(most_more[level]);
        }
    }
    // cores that may be full and hold mains, times mains on each
    let (_, through) = rules.full_cores.unwrap_or((0, 0));
    let mains = i64::from(rules.core_mains + excess[0]);
    let free = workers.min(i64::from(through + excess[3]) * mains);
    for (sum, more) in sums.iter_mut().zip(most_more) {
        *sum += free * more;
    }
    sums
}

/// Least closeness of a worker that is alone on its cpuset.
fn least_alone(instance: &Instance, tenant: &Tenant) -> i64 {
    let caps = (tenant.worker_cap.into(), u32::MAX);
    Spread::new(instance, &tenant.cpus, caps).place(tenant.threads)
}

/// Most pairs of threads of a worker within domains of a level, if it is alone on its cpuset and no
/// core takes more than `most` threads; and the same if its main's core is not full.
fn most_alone(
    instance: &Instance,
    tenant: &Tenant,
    level: usize,
    most: u32,
    rules: &Rules,
) -> (i64, i64) {
    let mut cores = vec![0u32; instance.counts[CORE]];
    for &cpu in &tenant.cpus {
        cores[instance.core(cpu.into())] += u32::from(tenant.worker_cap);
    }
    // per domain: how many threads it takes, and how many fewer if the main is there
    let mut rooms: BTreeMap<u16, (u32, u32)> = BTreeMap::new();
    let mut seen = vec![false; cores.len()];
    for &cpu in &tenant.cpus {
        let (cpu, core) = (usize::from(cpu), instance.core(cpu.into()));
        let (room, less) = rooms
            .entry(instance.of[level][cpu])
            .or_insert((0, u32::MAX));
        if level == 0 {
            (*room, *less) = (*room + u32::from(tenant.worker_cap), 0);
        } else if !std::mem::replace(&mut seen[core], true) {
            let here = cores[core].min(most);
            let below_full = rules
                .full_cores
                .map_or(here, |(full, _)| here.min(full - 1));
            (*room, *less) = (*room + here, (*less).min(here - below_full));
        }
    }
    let threads = tenant.threads as u32;
    let mut rooms: Vec<(u32, u32)> = rooms.into_values().collect();
    rooms.sort_unstable_by(|a, b| b.cmp(a));
    let sizes: Vec<u32> = rooms.iter().map(|&(room, _)| room).collect();
    let free = fill(sizes.iter().copied(), threads);
    if rooms[0].1 == 0 {
        return (free, free);
    }
    let mut with_main = 0;
    for (at, &(room, less)) in rooms.iter().enumerate() {
        if at > 0 && rooms[at - 1] == (room, less) {
            continue;
        }
        for here in 1..=(room - less).min(threads) {
            let others = sizes.iter().enumerate().filter(|&(other, _)| other != at);
            let rest = fill(others.map(|(_, &room)| room), threads - here);
            with_main = with_main.max(pairs(here) + rest);
        }
    }
    (free, with_main.min(free))
}

/// Pairs within domains that are filled one after the other.
fn fill(rooms: impl Iterator<Item = u32>, threads: u32) -> i64 {
    let mut left = threads;
    let mut sum = 0;
    for room in rooms {
        let here = room.min(left);
        left -= here;
        sum += pairs(here);
    }
    sum
}

/// Most pairs of threads of compact workers within units (cpus or cores) with these loads.
fn most_together(instance: &Instance, loads: &[u32], level: usize) -> i64 {
    let mut of_worker = vec![0u32; loads.len()];
    for tenant in instance.tenants.iter().filter(|tenant| tenant.sign < 0) {
        let mut own = vec![0u32; loads.len()];
        for &cpu in &tenant.cpus {
            own[usize::from(instance.of[level][usize::from(cpu)])] += u32::from(tenant.worker_cap);
        }
        for (most, own) in of_worker.iter_mut().zip(own) {
            *most = (*most).max(own.min(tenant.threads as u32));
        }
    }
    // placements may permute the loads among units; the multiset of loads is fixed
    let cap = of_worker.into_iter().max().unwrap_or(0).max(1);
    let filled = |&load: &u32| i64::from(load / cap) * pairs(cap) + pairs(load % cap);
    loads.iter().map(filled).sum()
}
