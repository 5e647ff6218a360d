//! Types of the problem ([`Problem`]) and its solution ([`Solution`]). A worker has one main thread
//! (*main*, rank 0) and T-1 other threads (*peers*).

use albacore_topology::{CpuId, Distances, Topology};
use albacore_values::WorkerIndex;

/// Ordinal of a thread inside its worker; 0 is the main thread.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Rank(pub u16);

/// A thread to be placed, identified by its worker and rank.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Slot {
    pub worker: WorkerIndex,
    /// The thread within the worker.
    pub rank: Rank,
}

impl Slot {
    /// All slots of `workers` x `threads`, ordered by worker and rank.
    pub fn all(workers: u16, threads: u16) -> impl Iterator<Item = Self> + Clone {
        (0..workers).flat_map(move |worker| {
            (0..threads).map(move |rank| Self {
                worker: WorkerIndex(worker),
                rank: Rank(rank),
            })
        })
    }
}

/// Whether the threads of one worker are placed far apart or close together.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mode {
    /// Far apart: most cache per thread.
    Scatter,
    /// Close together: cheapest sharing.
    Compact,
}

/// Placement problem: W workers x T threads on the cpus of `topology` (already restricted to the
/// cpuset).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// W, at least 1.
    pub workers: u16,
    /// T per worker, at least 1.
    pub threads: u16,
    pub mode: Mode,
    /// The cpus that may be used.
    pub topology: Topology,
    /// Distance table, clock cycles.
    pub distances: Distances,
    /// The mapping in force, if any: ties are broken in favor of the fewest moved threads.
    pub current: Option<Mapping>,
}

/// The cpu of each of the W x T slots: `cpus[w * T + t]`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Mapping {
    /// T, to index `cpus`.
    pub threads: u16,
    /// The cpu of each slot, ordered by worker and rank.
    pub cpus: Vec<CpuId>,
}

impl Mapping {
    /// The cpu of a slot, if the mapping has that slot.
    pub fn cpu(&self, slot: Slot) -> Option<CpuId> {
        if slot.rank.0 >= self.threads {
            return None;
        }
        let index =
            usize::from(slot.worker.0) * usize::from(self.threads) + usize::from(slot.rank.0);
        self.cpus.get(index).copied()
    }

    /// All slots with their cpus.
    pub fn iter(&self) -> impl Iterator<Item = (Slot, CpuId)> + '_ {
        let threads = usize::from(self.threads).max(1);
        self.cpus.iter().enumerate().map(move |(i, &cpu)| {
            let (worker, rank) = (
                WorkerIndex((i / threads) as u16),
                Rank((i % threads) as u16),
            );
            (Slot { worker, rank }, cpu)
        })
    }
}

/// A rule that is not kept, and by how much it is relaxed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Relaxation {
    /// Name of the rule as in the design, section 4: `"8+"`, `"mains-per-core"`, `"12"`, `"12+"`;
    /// where cores differ in speed `"fast-mains"`; for round robin and for any given mapping also
    /// `"2"`, `"3"`, `"8"`.
    pub rule: &'static str,
    /// How far its right-hand side moved: threads (8, 8+), mains (mains-per-core, fast-mains), cpus
    /// (12), cores (12+).
    pub amount: u32,
}

/// Amount by which a rule is relaxed; 0 if it is not listed.
pub fn relaxed_by(relaxed: &[Relaxation], rule: &str) -> u32 {
    let found = relaxed.iter().find(|relaxed| relaxed.rule == rule);
    found.map_or(0, |relaxed| relaxed.amount)
}

/// Kind of a proof of optimality.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Proof {
    /// The objective meets a bound that is counted from the problem. For one deployment
    /// [`check_solution`](crate::check_solution) recounts it and rejects a bound that it cannot
    /// confirm.
    Bound,
    /// The objective meets a bound from Lagrangian relaxation (`lagrangian_bound`), tighter than
    /// counts alone give. It follows from the multipliers by integer arithmetic, but the checker
    /// does not have them and does not recompute it.
    Lagrangian,
    /// A search or an integer program was completed and found nothing better. The checker does not
    /// repeat it.
    Search,
    /// Nothing is proven: the bound only limits how much better another mapping could be.
    None,
}

impl Proof {
    /// Its name in JSON: `bound`, `prices`, `search`, `none`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bound => "bound",
            Self::Lagrangian => "prices",
            Self::Search => "search",
            Self::None => "none",
        }
    }
}

/// An upper bound of the objective, and the kind of proof that it gives if the objective meets it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProvenBound {
    /// Clock cycles.
    pub bound: i64,
    pub proof: Proof,
}

impl ProvenBound {
    /// The lower of the two bounds; unchanged if they are equal.
    pub fn lowered(self, bound: i64, proof: Proof) -> Self {
        if bound < self.bound {
            Self { bound, proof }
        } else {
            self
        }
    }
}

/// Quality of a mapping.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Certificate {
    /// Clock cycles summed over pairs; higher is better.
    pub objective: i64,
    /// Upper bound of the objective of all mappings that relax no rule further.
    pub bound: i64,
    /// `objective == bound`, or a search was completed.
    pub optimal: bool,
    /// Why it is optimal; [`Proof::None`] if and only if it is not.
    pub proof: Proof,
    /// Rules that had to be relaxed; empty if none.
    pub relaxed: Vec<Relaxation>,
}

impl Certificate {
    /// Optimal, by `proof`, if the objective meets the bound. A greater objective (of a mapping
    /// that breaks rules that the bound assumes) raises the bound and proves nothing.
    pub fn of(objective: i64, upper: ProvenBound, relaxed: Vec<Relaxation>) -> Self {
        let ProvenBound { bound, proof } = upper;
        let optimal = objective == bound && proof != Proof::None;
        Self {
            objective,
            bound: bound.max(objective),
            optimal,
            proof: if optimal { proof } else { Proof::None },
            relaxed,
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Solution {
    pub mapping: Mapping,
    pub certificate: Certificate,
}
