//! What the user asked, validated.

use albacore_solver::Mode;
use albacore_topology::DistanceOverrides;

/// How the cpus of threads are decided.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PlacementMethod {
    /// The solver: mains apart, peers by mode, volume balanced.
    Tuna,
    /// The article's baseline: threads assigned to cpus in order.
    RoundRobin,
    /// The kernel: every mask is given back to the cpuset, and nothing is written after that.
    None,
}

/// Whether masks are written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Enforcement {
    /// Masks are written and kept.
    Enforce,
    /// Everything is done but writing. What was written before is given back once.
    Observe,
}

/// What the main thread of a worker gets.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MainThread {
    /// One cpu, as every other thread.
    Pinned,
    /// All cpus of its worker: for servers that ask the main thread's mask how many threads to
    /// start.
    WorkerSet,
}

/// A placement policy for one subject.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SubjectPolicy {
    /// W, at least 1.
    pub workers: u16,
    /// T per worker, at least 1.
    pub threads: u16,
    pub mode: Mode,
    pub placement: PlacementMethod,
    /// Whether masks are written.
    pub enforcement: Enforcement,
    /// What main threads get.
    pub main_thread: MainThread,
    /// Distances in place of the machine's own.
    pub distances: DistanceOverrides,
    /// True if the size of a worker's thread pool does not depend on the main thread's mask (the
    /// built-in server; an OpenMP server started with OMP_NUM_THREADS). Otherwise the main thread
    /// of a pre-fork worker keeps its worker's set until T threads exist: libgomp would count one
    /// cpu and start no peers.
    pub is_pool_size_known: bool,
}
