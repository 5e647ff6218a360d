//! Small random problems for the unit tests of this crate.

use albacore_topology::{CAPACITY_MAX, Cpu, CpuId, Distances, Topology};
use proptest::prelude::*;

use crate::{Mode, Problem};

/// Problems on uneven trees: every cpu draws its core, every core its L2, and so on to the package.
pub(crate) fn problems() -> impl Strategy<Value = Problem> {
    let draws = proptest::collection::vec((0..5u32, 0..3u32, 0..3u32, 0..2u32, 0..2u32), 1..9);
    let mode = prop_oneof![Just(Mode::Scatter), Just(Mode::Compact)];
    (draws, 1..=6u16, 1..=6u16, mode).prop_map(|(draws, workers, threads, mode)| {
        let cpus = draws.iter().enumerate().map(|(id, &(core, ..))| {
            let l2 = draws[core as usize % draws.len()].1;
            let l3 = draws[l2 as usize % draws.len()].2;
            let numa = draws[l3 as usize % draws.len()].3;
            let package = draws[numa as usize % draws.len()].4;
            let capacity = CAPACITY_MAX;
            Cpu {
                id: CpuId(id as u16),
                core,
                l2,
                l3,
                numa,
                package,
                capacity,
            }
        });
        let topology = Topology::new(cpus.collect()).expect("nested by construction");
        let distances = Distances::default();
        Problem {
            workers,
            threads,
            mode,
            topology,
            distances,
            current: None,
        }
    })
}
