//! The order in which threads fill cpus of different speed.
//!
//! **Problem.** Four threads on a fast core and none on a slow one, or one on each: which is
//! balanced? **Definition.** Threads fill the v usable cpus of a core in the order 0, 1, ..., v-1,
//! 0, 1, ...: the n-th thread of cpu j is the x-th of its core, x = (n - 1) v + j + 1. Its *level*
//! is x divided by the capacity of the core: the time in which the core would do a unit of work for
//! each of its threads, if second threads of a core add no throughput. The levels of all threads
//! are minimized lexicographically, from the highest on: scheduling equal jobs on uniform machines
//! (Q || Cmax; one at a time on the lowest level is optimal). Where all cores are equally fast, the
//! level of a thread is its number on the cpu, as in rule (8). **Limits.** If a cpuset lacks the
//! first cpu of a core, its threads count as second threads there.

use albacore_topology::{CAPACITY_MAX, Cpu};

/// Bits for the number of threads on a cpu, obstacles included.
const LOAD_BITS: u32 = 20;

/// Fraction bits of a level: differences of quotients by capacities are above 2^-20.
const QUOTIENT_BITS: u32 = 20;

/// Fill order of the cpus of a machine with cores of different speed; empty for a uniform one.
#[derive(Default)]
pub(super) struct FillOrder {
    cpus: Vec<CpuInCore>,
}

#[derive(Clone, Copy)]
struct CpuInCore {
    capacity: u16,
    /// Its position among the usable cpus of its core.
    place: u32,
    /// Usable cpus of the core, at least 1.
    width: u32,
    /// Load on cpus of the core that no deployment may use.
    beside: u32,
}

impl FillOrder {
    /// `core` contains the core number of each cpu, `obstacles` the weight on each.
    pub(super) fn of(cpus: &[Cpu], core: &[u16], is_used: &[bool], obstacles: &[u32]) -> Self {
        let used = cpus.iter().zip(is_used).filter(|&(_, &used)| used);
        let mut capacities = used.map(|(cpu, _)| cpu.capacity);
        let first = capacities.next();
        if capacities.all(|capacity| Some(capacity) == first) {
            return Self { cpus: Vec::new() };
        }
        let cores = core.iter().max().map_or(0, |&last| usize::from(last) + 1);
        let (mut width, mut beside) = (vec![0; cores], vec![0; cores]);
        let mut place = vec![0; cpus.len()];
        for (cpu, &core) in core.iter().enumerate() {
            let core = usize::from(core);
            if is_used[cpu] {
                place[cpu] = width[core];
                width[core] += 1;
            } else {
                beside[core] += obstacles[cpu];
            }
        }
        let of = |(at, cpu): (usize, &Cpu)| {
            let core = usize::from(core[at]);
            CpuInCore {
                capacity: cpu.capacity.clamp(1, CAPACITY_MAX),
                place: place[at],
                width: width[core].max(1),
                beside: beside[core],
            }
        };
        Self {
            cpus: cpus.iter().enumerate().map(of).collect(),
        }
    }

    /// Whether all usable cpus are equally fast.
    pub(super) fn is_uniform(&self) -> bool {
        self.cpus.is_empty()
    }

    /// Capacity of the core of a cpu; the same for all cpus if they are equally fast.
    pub(super) fn capacity(&self, cpu: usize) -> u16 {
        self.cpus.get(cpu).map_or(CAPACITY_MAX, |cpu| cpu.capacity)
    }

    /// The level of the last of `load` threads on a cpu, as a comparable number. Where cores differ
    /// in speed, equal levels mean equal capacities and equal loads: ties are broken in favor of
    /// the faster core, then of the cpu with fewer threads.
    pub(super) fn level(&self, cpu: usize, load: u32) -> u128 {
        if self.cpus.is_empty() || load == 0 {
            return load.into();
        }
        let of = self.cpus[cpu];
        let number = u128::from(load - 1) * u128::from(of.width)
            + u128::from(of.place + 1)
            + u128::from(of.beside);
        let quotient = (number << QUOTIENT_BITS) / u128::from(of.capacity);
        let slowness = u128::from(CAPACITY_MAX - of.capacity);
        (((quotient << QUOTIENT_BITS) | slowness) << LOAD_BITS) | u128::from(load)
    }
}
