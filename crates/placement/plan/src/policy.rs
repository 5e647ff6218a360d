//! Validated placement policy of a user.

use albacore_solver::Mode;
use albacore_topology::DistanceOverrides;

/// Method that selects the cpus of threads.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PlacementMethod {
    /// The solver: main threads far apart, peers according to the mode, load balanced.
    Tuna,
    /// The baseline of the article: threads assigned to cpus in order.
    RoundRobin,
    /// The kernel's scheduler: all masks are restored to the cpuset, and no more are written.
    None,
}

/// Whether masks are written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Enforcement {
    /// Masks are written and repaired.
    Enforce,
    /// Everything except writing. Masks written before are restored once.
    Observe,
}

/// Mask of a worker's main thread.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MainThread {
    /// One cpu, like all other threads.
    Pinned,
    /// All cpus of its worker: for servers that derive the size of their thread pool from the main
    /// thread's mask.
    WorkerSet,
}

/// Placement policy of one subject.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SubjectPolicy {
    /// Number of workers W, at least 1.
    pub workers: u16,
    /// Number of threads T per worker, at least 1.
    pub threads: u16,
    pub mode: Mode,
    pub placement: PlacementMethod,
    pub enforcement: Enforcement,
    pub main_thread: MainThread,
    /// Distances that override the machine's own.
    pub distances: DistanceOverrides,
    /// True if the size of a worker's thread pool does not depend on the main thread's mask (the
    /// built-in server; an OpenMP server started with OMP_NUM_THREADS). Otherwise the main thread
    /// of a pre-fork worker keeps its worker's cpus until T threads exist: libgomp would count one
    /// cpu and start no other threads.
    pub is_pool_size_known: bool,
}
