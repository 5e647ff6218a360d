//! All limits of this crate, with their reasons.

/// Maximum number of workers. Above any server that runs on one node; keeps counts in `u16` and
/// pairs in `i64`.
pub const WORKERS_MAX: u16 = 256;

/// Maximum number of threads of one worker. Above the cpus of a common node.
pub const THREADS_MAX: u16 = 256;

/// Maximum number of threads of all workers, W x T. The solver keeps one count per worker and cpu
/// domain and evaluates pairs of threads of one worker; it is built for 64 x 64 = 4,096, and this
/// is four times that.
pub const SLOTS_MAX: u32 = 16_384;

/// Maximum number of cpus. The largest machines sold have 1,024 cpus or fewer.
pub const CPUS_MAX: usize = 1_024;

/// Maximum rounds of perturbation and local search: further rounds hardly ever found more (measured
/// on the table of cases).
pub(crate) const PERTURBATIONS_MAX: usize = 400;

/// Maximum work of all rounds, in evaluated pairs of threads (a few nanoseconds each): tens of
/// milliseconds at most.
pub(crate) const PERTURBATION_WORK_MAX: usize = 4_000_000;

/// Maximum tries to find a random feasible move.
pub(crate) const PERTURBATION_TRIES_MAX: usize = 64;

/// Maximum number of ways to place mains and peers, without any rule, of a problem that is
/// enumerated: some milliseconds at most.
pub(crate) const ENUMERATION_WAYS_MAX: usize = 100_000;

/// Threads that are placed between two checks of the budget while a problem is enumerated.
pub(crate) const ENUMERATION_STEPS: usize = 1_024;

/// Maximum number of integer variables of a reduced program. Of one deployment, 232 programs of 40
/// to 60 variables took 1 ms in the median and 96 ms at most; of several, 7,440 of up to 60 took
/// 0.6 ms in the median and 59 ms at most. Times of larger ones vary a thousandfold.
pub(crate) const REDUCED_VARIABLES_MAX: usize = 60;

/// Time limit of the integer program, seconds. good_lp offers no other limit for microlp; with so
/// few variables, a machine ten times slower than usual does not reach it, so answers do not depend
/// on it.
pub(crate) const REDUCED_SECONDS_MAX: f64 = 1.0;

/// Steps of the work budget charged for the integer program, regardless of its time.
pub(crate) const REDUCED_STEPS: usize = 5_000_000;

/// Maximum number of steps that reduce the excess over the rules. Each reduces an excess, and these
/// are at most a few per core.
pub(crate) const RELAXATION_STEPS_MAX: usize = 1_000;

/// Maximum passes over all pairs of workers that exchange their rows of cpus: nearly all orders are
/// found in two.
pub(crate) const ORDER_PASSES_MAX: usize = 8;

/// Maximum steps of the dual toward a lower bound: further steps hardly ever lower it (measured on
/// the sweep of the table of cases).
pub(crate) const DUAL_STEPS_MAX: usize = 200;

/// Maximum consecutive steps of the dual that do not lower the bound: by then they are a thousandth
/// as long.
pub(crate) const DUAL_IDLE_MAX: u32 = 60;

/// Maximum work of the dual in one group of levels, in steps of its dynamic programs (about a
/// nanosecond each).
pub(crate) const DUAL_WORK_MAX: usize = 5_000_000;

/// Maximum moves of the annealing on counts in one node of the tree: a few tens of nanoseconds
/// each.
pub(crate) const COUNT_ANNEALING_MOVES_MAX: usize = 200_000;

/// Maximum work of one local search, in evaluated threads and cpus (a few nanoseconds each): enough
/// from a good start, and little of the budget of 50 ms.
pub(crate) const CLIMB_WORK_MAX: usize = 1_500_000;

/// Random seeds of the annealed constructions.
pub(crate) const CONSTRUCTION_SEEDS: [u64; 2] = [7_919, 15_838];

/// Maximum moves of simulated annealing on threads: some fifty nanoseconds each.
pub(crate) const ANNEALING_MOVES_MAX: usize = 200_000;

/// Maximum number of evaluated moves while mains are moved off full cpus and cores (some twenty
/// nanoseconds each): a fifth of the budget of 50 ms; a start that needs more is abandoned.
pub(crate) const REPAIR_EVALUATIONS_MAX: usize = 500_000;

/// Maximum number of alternating paths that are compared to give a peer a rank; among a few there
/// is one that changes no other rank.
pub(crate) const ALTERNATING_PATHS_MAX: usize = 64;

/// Workers x threads x cpus from which an assignment on a machine with several L3 caches is
/// constructed by annealing first, because a local search takes as long as a construction.
pub(crate) const LARGE_PROBLEM: usize = 50_000;

/// Maximum number of deployments of a joint problem. A node runs 110 pods by default, 500 at most.
pub const DEPLOYMENTS_MAX: usize = 1_024;

/// Maximum number of threads of a joint problem: 200 deployments of 16 x 16 and some.
pub const JOINT_SLOTS_MAX: u32 = 65_536;

/// Maximum of workers times cpus of a joint problem. The search keeps 8 bytes per pair: 32 MiB.
pub const CELLS_MAX: usize = 4_194_304;

/// Maximum weight of the obstacles on one cpu, in threads; keeps sums of loads in a `u32`.
pub const WEIGHT_MAX: u32 = 65_536;

/// Maximum number of placements that are enumerated: some milliseconds.
pub(crate) const PLACEMENTS_MAX: usize = 100_000;

/// Steps of an enumeration between two checks of the budget: some 20 microseconds.
pub(crate) const PLACEMENT_STEPS: usize = 512;

/// Maximum work of all rounds of a joint perturbation, in threads times cpus: some tens of
/// milliseconds, also without a budget.
pub(crate) const JOINT_PERTURBATION_WORK_MAX: usize = 16_000_000;

/// A cost of moves that no gain exceeds, in cycles: one thread gains at most 65,536 pairs times 200
/// cycles. Multiplied by 65,536 threads and `CYCLE`, it still fits an `i64`.
pub(crate) const FROZEN_COST: i64 = 1 << 29;

/// Maximum work of the bound's flow of mains, in mains times edges: some milliseconds.
pub(crate) const FLOW_WORK_MAX: usize = 400_000;

/// Maximum number of changes that are evaluated to find the cost of one rule (some 50 ns each):
/// about half a second.
pub(crate) const CLIMB_EVALUATIONS_MAX: usize = 10_000_000;

/// Cost of a budget check, as a number of evaluated changes.
pub(crate) const BUDGET_CHECK_EVALUATIONS: usize = 10;

/// Steps of the work budget for one change that is evaluated in an explanation.
pub(crate) const CHANGE_STEPS: usize = 50;

/// Steps for one exchange or shift that a local search evaluates.
pub(crate) const MOVE_STEPS: usize = 5;

/// Steps for one evaluated move of a main off a full cpu or core.
pub(crate) const REPAIR_STEPS: usize = 20;

/// Steps per thread and cpu while several deployments are balanced and first placed.
pub(crate) const FIRST_PLACEMENT_STEPS: usize = 2;

/// Steps for two cpus that are compared in the local search of several deployments.
pub(crate) const CPU_PAIR_STEPS: usize = 16;

/// Steps for the gain of one thread on one cpu, in the local search of several deployments.
pub(crate) const GAIN_STEPS: usize = 3;

/// Steps for one evaluated exchange of two threads of several deployments.
pub(crate) const EXCHANGE_STEPS: usize = 12;
