//! Contention of busy threads for cores.
//!
//! Workers of one deployment can exchange their cpus without changing the objective or any rule.
//! Which worker has which cpus still matters: a dispatcher that prefers low worker numbers keeps
//! some workers busy while others are idle, and two busy threads on one core slow each other down,
//! which threads of idle workers do not.

use std::collections::BTreeMap;

use albacore_topology::{CAPACITY_MAX, CpuId, Topology};

use crate::Mapping;

/// Utilization of a thread that is always busy, in percent of a cpu.
pub const UTILIZATION_MAX: u8 = 100;

/// A mapping whose threads are busy for a known share of the time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MappingUtilization<'a> {
    pub mapping: &'a Mapping,
    /// Utilization of each thread in percent of a cpu, in the order of the mapping's slots; 0 for
    /// missing entries.
    pub busy: &'a [u8],
}

/// Utilization of each thread in percent, slot by slot, with a dispatcher that always takes the
/// lowest idle worker, averaged over loads of 1 to `workers` busy workers: worker w, counted from
/// 0, is busy at W - w of W loads.
pub fn dispatch_order_utilization(workers: u16, threads: u16) -> Vec<u8> {
    let all = u32::from(workers);
    let share = |worker: u32| ((all - worker) * u32::from(UTILIZATION_MAX)).div_ceil(all) as u8;
    let each = |worker| std::iter::repeat_n(share(worker), threads.into());
    (0..all).flat_map(each).collect()
}

/// Upper bound on the time for which threads do not run at full speed, in percent of a cpu:
/// - two threads contend for a core, and once more for a cpu, as long as the less busy of them is
///   busy: with a dispatcher that takes the lowest idle worker, both are busy then;
/// - `background` is load per cpu that no mapping causes, in percent; it contends likewise;
/// - a busy thread on a core of less than full capacity loses the missing share.
pub fn contention(
    topology: &Topology,
    placed: &[MappingUtilization<'_>],
    background: &BTreeMap<CpuId, u32>,
) -> u64 {
    let mut threads = Vec::new();
    for of in placed {
        let busy = of.busy.iter().copied().chain(std::iter::repeat(0));
        for (&id, busy) in of.mapping.cpus.iter().zip(busy) {
            let Some(cpu) = topology.cpu(id) else {
                continue;
            };
            threads.push((cpu, u64::from(busy)));
        }
    }
    let mut sum = 0;
    let mut lost = 0;
    for (i, &(cpu, busy)) in threads.iter().enumerate() {
        lost += busy * u64::from(CAPACITY_MAX.saturating_sub(cpu.capacity));
        for &(other, other_utilization) in &threads[i + 1..] {
            let shared = u64::from(cpu.core == other.core) + u64::from(cpu.id == other.id);
            sum += shared * busy.min(other_utilization);
        }
        for (&id, &load) in background {
            let Some(other) = topology.cpu(id) else {
                continue;
            };
            let shared = u64::from(cpu.core == other.core) + u64::from(cpu.id == id);
            sum += shared * busy.min(load.into());
        }
    }
    sum + lost / u64::from(CAPACITY_MAX)
}

#[cfg(test)]
mod tests {
    use albacore_topology::parse_synthetic;

    use super::*;

    fn mapping(threads: u16, cpus: &[u16]) -> Mapping {
        Mapping {
            threads,
            cpus: cpus.iter().map(|&id| CpuId(id)).collect(),
        }
    }

    #[test]
    fn low_workers_are_busy_at_more_loads() {
        assert_eq!(dispatch_order_utilization(4, 1), [100, 75, 50, 25]);
        assert_eq!(dispatch_order_utilization(1, 2), [100, 100]);
        assert_eq!(dispatch_order_utilization(3, 1), [100, 67, 34]);
    }

    #[test]
    fn cores_count_once_cpus_twice_and_slow_cores_by_what_they_lack() {
        // cpus 2i and 2i + 1 are core i
        let mut cpus = parse_synthetic("pack:1 l3:1 core:3 pu:2")
            .unwrap()
            .cpus()
            .to_vec();
        cpus[4..]
            .iter_mut()
            .for_each(|cpu| cpu.capacity = CAPACITY_MAX / 4);
        let machine = Topology::new(cpus).unwrap();
        let of = |cpus: &[u16], background: &[(u16, u32)]| {
            let mapping = mapping(1, cpus);
            let placed = MappingUtilization {
                mapping: &mapping,
                busy: &[100, 40],
            };
            let background = background.iter().map(|&(id, load)| (CpuId(id), load));
            contention(&machine, &[placed], &background.collect())
        };
        assert_eq!(of(&[0, 2], &[]), 0, "each has a core");
        assert_eq!(of(&[0, 1], &[]), 40, "they share a core");
        assert_eq!(of(&[0, 0], &[]), 80, "and a cpu");
        assert_eq!(of(&[0, 4], &[]), 30, "three quarters of 40 are missing");
        assert_eq!(of(&[4, 0], &[]), 75);
        assert_eq!(
            of(&[0, 2], &[(1, 60)]),
            60,
            "beside load that is not placed"
        );
        assert_eq!(
            of(&[0, 2], &[(2, 60)]),
            80,
            "on its cpu, so on its core as well"
        );
    }
}
