//! Difference between two mappings.

use crate::{Mapping, Slot};
use albacore_topology::CpuId;

/// A thread that moves to another cpu.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Move {
    pub slot: Slot,
    pub from: CpuId,
    pub to: CpuId,
}

/// The threads of both mappings that change their cpu, ordered by worker and rank.
pub fn difference(before: &Mapping, after: &Mapping) -> Vec<Move> {
    let moved = |(slot, to)| {
        let from = before.cpu(slot)?;
        (from != to).then_some(Move { slot, from, to })
    };
    after.iter().filter_map(moved).collect()
}
