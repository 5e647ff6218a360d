//! Ranges of loads against the enumeration of all loads.

use std::collections::BTreeSet;

use albacore_topology::{CAPACITY_MAX, Cpu, CpuId, Topology};
use proptest::prelude::*;

use super::super::enumerate::sorted_loads;
use super::super::instance::{Instance, Tenant};
use super::super::volumes::balance;
use super::LoadRanges;
use crate::Mode;
use crate::joint_problems::{Sizes, joint_problems, same_cpuset};

/// Sizes for which all loads can be enumerated.
const SIZES: Sizes = Sizes {
    cpus: 7,
    deployments: 3,
    workers: 3,
    threads: 2,
    placements: f64::INFINITY,
};

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 1_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn ranges_and_sums_are_those_of_all_balanced_loads(mut problem in joint_problems(SIZES)) {
        for deployment in &mut problem.deployments {
            deployment.current = None;
        }
        let instance = Instance::of(&problem);
        let volume = balance(&instance);
        let mut all = BTreeSet::from([instance.obstacles.clone()]);
        for tenant in &instance.tenants {
            all = with_threads_of(tenant, &all);
        }
        // (8) alone, then (8+) among those
        let least = all.iter().map(|loads| sorted_loads(&instance, loads)).min();
        let (cpus, cores) = least.unwrap();
        all.retain(|loads| sorted_loads(&instance, loads).0 == cpus);
        let ranges = LoadRanges::of(&instance, &volume);
        let balanced: Vec<Vec<u32>> = all.iter().cloned().collect();
        prop_assert_eq!(&ranges.cpus, &all_ranges(&balanced));
        all.retain(|loads| sorted_loads(&instance, loads).1 == cores);
        let cores: Vec<Vec<u32>> = all.iter().map(|loads| instance.core_loads(loads)).collect();
        prop_assert_eq!(&ranges.cores, &all_ranges(&cores));
        for (ranges, loads) in [(&ranges.cpus, &balanced), (&ranges.cores, &cores)] {
            prop_assert!(ranges.iter().all(|&(least, most)| most <= least + 1));
            let sums: BTreeSet<Vec<u32>> = loads.iter().map(|loads| sums(ranges, loads)).collect();
            prop_assert_eq!(sums.len(), 1);
        }
    }
}

/// A thread on cpu 0 or 2, one on 3 or 4, and three cores of two cpus: starting on 0 and 3, the
/// first core becomes free if both threads move.
#[test]
fn a_core_has_less_where_a_chain_leads_through_another() {
    let cpu = |id: u16| Cpu {
        id: CpuId(id),
        core: u32::from(id / 2),
        l2: u32::from(id / 2),
        l3: 0,
        numa: 0,
        package: 0,
        capacity: CAPACITY_MAX,
    };
    let topology = Topology::new((0..6).map(cpu).collect()).unwrap();
    let mut problem = same_cpuset(&topology, &[(1, 1, Mode::Compact); 2]);
    for (deployment, cpus) in problem.deployments.iter_mut().zip([[0, 2], [3, 4]]) {
        deployment.cpuset = cpus.map(CpuId).into_iter().collect();
    }
    let instance = Instance::of(&problem);
    let volume = balance(&instance);
    assert_eq!(instance.core_loads(&volume.loads), [1, 1, 0]);
    let ranges = LoadRanges::of(&instance, &volume);
    assert_eq!(ranges.cores, [(0, 1); 3]);
}

/// Loads after adding the threads of a tenant in every way that its caps allow.
fn with_threads_of(tenant: &Tenant, loads: &BTreeSet<Vec<u32>>) -> BTreeSet<Vec<u32>> {
    let mut open = BTreeSet::new();
    open.extend(
        loads
            .iter()
            .map(|loads| (loads.clone(), tenant.slots() as u32)),
    );
    for &cpu in &tenant.cpus {
        let mut next = BTreeSet::new();
        for (loads, left) in open {
            for here in 0..=left.min(tenant.cpu_cap()) {
                let mut loads = loads.clone();
                loads[usize::from(cpu)] += here;
                next.insert((loads, left - here));
            }
        }
        open = next;
    }
    let placed = open.into_iter().filter(|&(_, left)| left == 0);
    placed.map(|(loads, _)| loads).collect()
}

/// Least and most value of each load.
fn all_ranges(all: &[Vec<u32>]) -> Vec<(u32, u32)> {
    let range = |at: usize| {
        let loads = || all.iter().map(|loads| loads[at]);
        (loads().min().unwrap(), loads().max().unwrap())
    };
    (0..all[0].len()).map(range).collect()
}

/// Sums of the loads that vary, by the start of their range.
fn sums(ranges: &[(u32, u32)], loads: &[u32]) -> Vec<u32> {
    let highest = ranges.iter().map(|&(least, _)| least as usize).max();
    let mut sums = vec![0; highest.unwrap() + 1];
    let vary = ranges
        .iter()
        .zip(loads)
        .filter(|((least, most), _)| least < most);
    vary.for_each(|(&(least, _), &load)| sums[least as usize] += load);
    sums
}
