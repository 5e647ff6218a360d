//! Machines of the table: every kind that a cpuset can leave, regular and random.

use albacore_topology::{CAPACITY_MAX, Cpu, CpuId, CpuSet, Topology};

/// Packages x L3 per package x L2 per L3 x cores per L2 x cpus per core.
pub(crate) type Shape = [u32; 5];

/// The machine of the source article: one socket, one L3, 16 cores x 2 cpus.
pub(crate) const ARTICLE: Shape = [1, 1, 16, 1, 2];

/// 256 cpus: 2 packages, 8 L3 each.
pub(crate) const LARGE: Shape = [2, 8, 8, 1, 2];

/// The whole machine; ids number the first cpus of all cores, then the second ones, as in Linux.
pub(crate) fn machine(shape: Shape) -> Topology {
    Topology::new(cpus(shape)).expect("a regular machine is nested")
}

fn cpus([packages, l3s, l2s, cores, width]: Shape) -> Vec<Cpu> {
    let all = packages * l3s * l2s * cores;
    let cpu = |id: u32| {
        let core = id % all;
        let (l2, l3) = (core / cores, core / cores / l2s);
        let package = l3 / l3s;
        let capacity = CAPACITY_MAX;
        Cpu {
            id: CpuId(id as u16),
            core,
            l2,
            l3,
            numa: package,
            package,
            capacity,
        }
    };
    (0..all * width).map(cpu).collect()
}

/// The machine as seen by a container with this cpuset.
pub(crate) fn within(shape: Shape, cpuset: &str) -> Topology {
    let cpuset: CpuSet = cpuset.parse().expect("a cpuset of this table");
    machine(shape).restrict(&cpuset).expect("not empty")
}

/// 8 fast cores x 2 cpus with an L2 each, 8 slow ones x 1 that share L2 by four; one L3.
pub(crate) fn hybrid() -> Topology {
    let mut all = cpus([1, 1, 8, 1, 2]);
    for i in 0..8u32 {
        let mut slow = all[0];
        (slow.id, slow.core, slow.l2) = (CpuId(16 + i as u16), 8 + i, 8 + i / 4);
        slow.capacity = 640;
        all.push(slow);
    }
    Topology::new(all).expect("nested")
}

/// One package whose L3 differ: 12, 8, 6 and 2 cores x 2 cpus.
pub(crate) fn unequal_caches() -> Topology {
    let mut all = cpus([1, 1, 28, 1, 2]);
    for cpu in &mut all {
        cpu.l3 = match cpu.core {
            0..12 => 0,
            12..20 => 1,
            20..26 => 2,
            _ => 3,
        };
    }
    Topology::new(all).expect("nested")
}

/// A random machine of at most 256 cpus, whole or with holes.
pub(crate) fn random(below: &mut dyn FnMut(u32) -> u32) -> (String, Topology) {
    // bound: half of all shapes fit
    let shape = loop {
        let width = [1, 2, 2, 4][below(4) as usize];
        let cores = [1, 1, 2, 4][below(4) as usize];
        let l2s = [1, 2, 3, 4, 6, 8, 16][below(7) as usize];
        let shape = [1 + below(2), 1 + below(8), l2s, cores, width];
        if shape.iter().product::<u32>() <= 256 {
            break shape;
        }
    };
    let all = machine(shape);
    let percent = [100, 100, 95, 80, 50][below(5) as usize];
    let mut kept: CpuSet = all
        .cpus()
        .iter()
        .filter(|_| below(100) < percent)
        .map(|cpu| cpu.id)
        .collect();
    if kept.is_empty() {
        kept.insert(CpuId(0));
    }
    let name = format!("{shape:?}[{kept}]");
    (name, all.restrict(&kept).expect("not empty"))
}
