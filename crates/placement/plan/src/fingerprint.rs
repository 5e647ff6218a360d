//! Hash of a mapping, to compare the mapping displayed with the one applied.

use albacore_solver::{Mapping, Problem, Slot};
use albacore_topology::CpuSet;

/// Equal for equal mappings of equal sizes on equal machines, and stable across releases; FNV-1a.
pub fn plan_hash(problem: &Problem, mapping: &Mapping) -> u64 {
    let mut hash = problem.topology.hash64();
    let mut update = |value: u16| {
        for byte in value.to_le_bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    };
    update(problem.workers);
    update(problem.threads);
    for (slot, cpu) in mapping.iter() {
        update(slot.worker.0);
        update(slot.rank.0);
        update(cpu.0);
    }
    hash
}

/// Hash of the masks of all threads, equal for equal masks on equal machines in every program: the
/// hash of a pod in a NodePlacement. `machine` is the `hash64` of its topology. `None` if there is
/// no mask. FNV-1a, folded to 32 bits.
pub fn masks_hash<'a>(
    machine: u64,
    masks: impl IntoIterator<Item = (Slot, &'a CpuSet)>,
) -> Option<u32> {
    let mut masks: Vec<(Slot, &CpuSet)> = masks.into_iter().collect();
    masks.sort_by_key(|(slot, _)| *slot);
    if masks.is_empty() {
        return None;
    }
    let mut hash = machine;
    let mut add = |bytes: &[u8]| {
        for byte in bytes {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    };
    for (slot, mask) in masks {
        add(&slot.worker.0.to_le_bytes());
        add(&slot.rank.0.to_le_bytes());
        add(mask.to_string().as_bytes());
        add(b";");
    }
    Some((hash >> 32) as u32 ^ hash as u32)
}
