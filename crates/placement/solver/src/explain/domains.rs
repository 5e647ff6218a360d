//! A problem as counts: which domains each cpu lies in, and the right-hand sides of all rules.
//!
//! **Distances form a tree** (cpu < core < L2 < L3 < machine). With `gain(level)` = distance of the
//! next level out minus that of this one, two things are `beyond` apart less the gains of all
//! domains that they share: so sums over pairs follow from how many things lie in each domain.
//! Cpus are their indices in [`Topology::cpus`](albacore_topology::Topology::cpus).

use crate::levels::{gains, number_domains};
use crate::{Mode, Problem, Rank, RuleLimits, Slot, WorkerIndex};
use albacore_topology::CpuId;

pub(crate) use crate::levels::{CORE, CPU, LEVELS, pairs};

/// What explanations need of a validated [`Problem`].
pub(crate) struct Domains {
    pub(crate) workers: usize,
    pub(crate) threads: usize,
    pub(crate) mode: Mode,
    /// Distance where no domain is shared.
    pub(crate) beyond: i64,
    /// Closeness of a pair that shares a domain of the level, on top of that of the levels above
    /// it.
    pub(crate) gain: [i64; LEVELS],
    /// Ids of the cpus, rising.
    ids: Vec<CpuId>,
    /// The domain of every cpu at each level, numbered in the order of their first cpus, and how
    /// many there are.
    of: [(Vec<u16>, usize); LEVELS],
    pub(crate) rules: RuleLimits,
}

impl Domains {
    /// Indexes a validated problem.
    pub(crate) fn of(problem: &Problem) -> Self {
        let cpus = problem.topology.cpus();
        let of = std::array::from_fn(|level| number_domains(cpus, level));
        Self {
            workers: problem.workers.into(),
            threads: problem.threads.into(),
            mode: problem.mode,
            beyond: problem.distances.beyond.into(),
            gain: gains(&problem.distances),
            ids: cpus.iter().map(|cpu| cpu.id).collect(),
            rules: RuleLimits::of(problem, of[CORE].1),
            of,
        }
    }

    /// How many cpus there are.
    pub(crate) fn cpus(&self) -> usize {
        self.ids.len()
    }

    /// How many domains a level has.
    pub(crate) fn count(&self, level: usize) -> usize {
        self.of[level].1
    }

    /// The core of a cpu.
    pub(crate) fn core(&self, cpu: usize) -> usize {
        self.domain(CORE, cpu)
    }

    /// The domain of a cpu at a level.
    pub(crate) fn domain(&self, level: usize, cpu: usize) -> usize {
        usize::from(self.of[level].0[cpu])
    }

    /// The id of a cpu.
    pub(crate) fn id(&self, cpu: usize) -> CpuId {
        self.ids[cpu]
    }

    /// The cpu with this id, if it is one of the problem's.
    pub(crate) fn index(&self, id: CpuId) -> Option<usize> {
        self.ids.binary_search(&id).ok()
    }

    /// The slot of a thread, numbered as in [`Mapping::cpus`](crate::Mapping::cpus).
    pub(crate) fn slot(&self, thread: usize) -> Slot {
        Slot {
            worker: WorkerIndex((thread / self.threads) as u16),
            rank: Rank((thread % self.threads) as u16),
        }
    }
}
