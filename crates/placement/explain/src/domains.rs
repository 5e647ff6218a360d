//! A problem as counts: which domains each cpu lies in, and the right-hand sides of all rules.
//!
//! **Distances form a tree** (cpu < core < L2 < L3 < machine). With `gain(level)` = distance of the
//! next level out minus that of this one, two things are `beyond` apart less the gains of all
//! domains that they share: so sums over pairs follow from how many things lie in each domain.
//! Counted here from the topology alone: what is explained is not taken from the solver that made
//! it. Cpus are their indices in [`Topology::cpus`](albacore_topology::Topology::cpus).

use std::collections::BTreeMap;

use albacore_mapping::{Mode, Problem, Rank, Slot, WorkerIndex};
use albacore_topology::{Cpu, CpuId, Distances};

/// Levels that bring two threads closer than `beyond`: cpu, core, L2, L3.
pub(crate) const LEVELS: usize = 4;
/// Index of the cpu level.
pub(crate) const CPU: usize = 0;
/// Index of the core level.
pub(crate) const CORE: usize = 1;

/// What explanations need of a validated [`Problem`].
pub(crate) struct Domains {
    pub(crate) workers: usize,
    pub(crate) threads: usize,
    pub(crate) mode: Mode,
    /// Distance where no domain is shared.
    pub(crate) beyond: i64,
    /// Closeness of a pair that shares a domain of the level, on top of that of the levels above
    /// it; never negative.
    pub(crate) gain: [i64; LEVELS],
    /// Ids of the cpus, rising.
    ids: Vec<CpuId>,
    /// The domain of each level that a cpu lies in; numbered in the order of their first cpus.
    of: Vec<[u16; LEVELS]>,
    /// How many domains each level has.
    counts: [usize; LEVELS],
    /// Most threads of equal rank on a cpu: ceil(W/C), rule (2).
    pub(crate) rank_cap: u32,
    /// Most threads of one worker on a cpu: ceil(T/C), rule (3).
    pub(crate) worker_cap: u32,
    /// floor(WT/C) and ceil(WT/C), rule (8).
    pub(crate) cpu_volume: (u32, u32),
    /// floor(WT/P) and ceil(WT/P), rule (8+).
    pub(crate) core_volume: (u32, u32),
    /// ceil(W/P), most mains on a core.
    pub(crate) core_mains: u32,
    /// Right-hand side of (12); `None` where it does not apply.
    pub(crate) full_mains: Option<u32>,
    /// Right-hand side of (12+); `None` where it does not apply.
    pub(crate) full_core_mains: Option<u32>,
}

impl Domains {
    /// Indexes a validated problem.
    pub(crate) fn of(problem: &Problem) -> Self {
        let cpus = problem.topology.cpus();
        let (of, counts) = number(cpus);
        let (workers, threads) = (u32::from(problem.workers), u32::from(problem.threads));
        let slots = workers * threads;
        let (count, cores) = (cpus.len() as u32, counts[CORE] as u32);
        let &Distances {
            cpu,
            l1,
            l2,
            l3,
            beyond,
        } = &problem.distances;
        let step = |outer: u32, inner: u32| i64::from(outer) - i64::from(inner);
        Self {
            workers: workers as usize,
            threads: threads as usize,
            mode: problem.mode,
            beyond: beyond.into(),
            gain: [step(l1, cpu), step(l2, l1), step(l3, l2), step(beyond, l3)],
            ids: cpus.iter().map(|cpu| cpu.id).collect(),
            of,
            counts,
            rank_cap: workers.div_ceil(count),
            worker_cap: threads.div_ceil(count),
            cpu_volume: (slots / count, slots.div_ceil(count)),
            core_volume: (slots / cores, slots.div_ceil(cores)),
            core_mains: workers.div_ceil(cores),
            full_mains: full_mains(workers, slots, count),
            full_core_mains: full_mains(workers, slots, cores),
        }
    }

    /// How many cpus there are.
    pub(crate) fn cpus(&self) -> usize {
        self.ids.len()
    }

    /// How many domains a level has.
    pub(crate) fn count(&self, level: usize) -> usize {
        self.counts[level]
    }

    /// The core of a cpu.
    pub(crate) fn core(&self, cpu: usize) -> usize {
        self.domain(CORE, cpu)
    }

    /// The domain of a cpu at a level.
    pub(crate) fn domain(&self, level: usize, cpu: usize) -> usize {
        usize::from(self.of[cpu][level])
    }

    /// The id of a cpu.
    pub(crate) fn id(&self, cpu: usize) -> CpuId {
        self.ids[cpu]
    }

    /// The cpu with this id, if it is one of the problem's.
    pub(crate) fn index(&self, id: CpuId) -> Option<usize> {
        self.ids.binary_search(&id).ok()
    }

    /// The slot of a thread, numbered as in [`Mapping::cpus`](albacore_mapping::Mapping::cpus).
    pub(crate) fn slot(&self, thread: usize) -> Slot {
        Slot {
            worker: WorkerIndex((thread / self.threads) as u16),
            rank: Rank((thread % self.threads) as u16),
        }
    }
}

/// x(x-1)/2.
pub(crate) fn pairs(x: u32) -> i64 {
    i64::from(x) * (i64::from(x) - 1) / 2
}

/// max(0, W - units + r) where the rule applies.
fn full_mains(workers: u32, slots: u32, units: u32) -> Option<u32> {
    let rest = slots % units;
    let applies = rest > 0 && slots > units && workers <= units;
    applies.then(|| (workers + rest).saturating_sub(units))
}

/// The domains of every cpu, and how many there are of each level.
fn number(cpus: &[Cpu]) -> (Vec<[u16; LEVELS]>, [usize; LEVELS]) {
    let mut known: [BTreeMap<u32, u16>; LEVELS] = Default::default();
    let of = cpus.iter().map(|cpu| {
        let keys = [u32::from(cpu.id.0), cpu.core, cpu.l2, cpu.l3];
        std::array::from_fn(|level| {
            let next = known[level].len() as u16;
            *known[level].entry(keys[level]).or_insert(next)
        })
    });
    let of = of.collect();
    (of, known.map(|level| level.len()))
}
