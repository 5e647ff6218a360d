//! One number for a mapping, so that two reports of it can be compared: what was shown and what is
//! applied.

use albacore_solver::{Mapping, Problem};

/// Equal for equal mappings of equal sizes on equal machines, today and tomorrow; FNV-1a.
pub fn plan_hash(problem: &Problem, mapping: &Mapping) -> u64 {
    let mut hash = problem.topology.hash64();
    let mut eat = |value: u16| {
        for byte in value.to_le_bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    };
    eat(problem.workers);
    eat(problem.threads);
    for (slot, cpu) in mapping.iter() {
        eat(slot.worker.0);
        eat(slot.rank.0);
        eat(cpu.0);
    }
    hash
}
