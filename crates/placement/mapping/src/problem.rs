//! The nouns: what is asked ([`Problem`]) and what is answered ([`Solution`]).

use albacore_topology::{CpuId, Distances, Topology};
use albacore_values::WorkerIndex;

/// Ordinal of a thread inside its worker; 0 is the main thread.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Rank(pub u16);

/// A place that a thread fills.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Slot {
    pub worker: WorkerIndex,
    /// The thread inside it.
    pub rank: Rank,
}

impl Slot {
    /// All slots of so many workers and threads, worker by worker, rank by rank.
    pub fn all(workers: u16, threads: u16) -> impl Iterator<Item = Self> + Clone {
        (0..workers).flat_map(move |worker| {
            (0..threads).map(move |rank| Self {
                worker: WorkerIndex(worker),
                rank: Rank(rank),
            })
        })
    }
}

/// How the threads of one worker lie to each other.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mode {
    /// Far apart: most cache for each.
    Scatter,
    /// Close together: cheapest sharing.
    Compact,
}

/// What is asked: W workers x T threads on the cpus of `topology` (already restricted to the
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
    /// The mapping in force, if any: ties go to the fewest moved threads.
    pub current: Option<Mapping>,
}

/// Slot -> cpu, for all W x T slots; `cpus[w * T + t]`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Mapping {
    /// T, to index `cpus`.
    pub threads: u16,
    /// The cpu of each slot, worker by worker, rank by rank.
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

/// A rule that could not be kept, and by how much it was loosened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Relaxation {
    /// Name of the rule as in the design, section 4: `"8+"`, `"mains-per-core"`, `"12"`, `"12+"`;
    /// where cores differ in speed `"fast-mains"`; of a round robin or any other mapping also
    /// `"2"`, `"3"`, `"8"`.
    pub rule: &'static str,
    /// How far its right-hand side moved: threads (8, 8+), mains (mains-per-core, fast-mains), cpus
    /// (12), cores (12+).
    pub amount: u32,
}

/// How far a rule moved; 0 if it is not among the relaxed ones.
pub fn relaxed_by(relaxed: &[Relaxation], rule: &str) -> u32 {
    let found = relaxed.iter().find(|relaxed| relaxed.rule == rule);
    found.map_or(0, |relaxed| relaxed.amount)
}

/// Why no mapping is better.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Proof {
    /// The value meets a bound that is counted from the problem. Of one deployment
    /// [`check_solution`](crate::check_solution) counts it again and refuses what it cannot
    /// confirm.
    Bound,
    /// The value meets a bound that was found by Lagrangian relaxation (`lagrangian_bound`), below
    /// what counts alone give. It follows from the multipliers by integer arithmetic, but the
    /// checker does not have them and does not recompute it.
    Lagrangian,
    /// A search, or an integer program, was completed and found nothing better. The checker does
    /// not repeat it.
    Search,
    /// Nothing is proven: the bound only limits what might be better.
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

/// An upper bound of the objective, and the proof of optimality that it is if a value meets it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProvenBound {
    /// Clock cycles.
    pub bound: i64,
    pub proof: Proof,
}

impl ProvenBound {
    /// The lower of the two bounds; unchanged where they are equal.
    pub fn lowered(self, bound: i64, proof: Proof) -> Self {
        if bound < self.bound {
            Self { bound, proof }
        } else {
            self
        }
    }
}

/// What is known of a mapping's quality.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Certificate {
    /// Value reached: clock cycles summed over pairs; higher is better.
    pub objective: i64,
    /// No mapping that relaxes no rule further is above this.
    pub bound: i64,
    /// `objective == bound`, or a search was completed.
    pub optimal: bool,
    /// Why it is optimal; [`Proof::None`] if and only if it is not.
    pub proof: Proof,
    /// Rules that had to be loosened; empty if none.
    pub relaxed: Vec<Relaxation>,
}

impl Certificate {
    /// Optimal, by `proof`, where the value meets the bound; a value above it (of a mapping that
    /// breaks rules which the bound is for) raises the bound and proves nothing.
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
    /// Where each thread goes.
    pub mapping: Mapping,
    /// How good that is.
    pub certificate: Certificate,
}
