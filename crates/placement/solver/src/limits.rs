//! Every bound of this crate, with its reason.

/// Most workers. Above any server that runs on one node; keeps counts in `u16` and pairs in `i64`.
pub const WORKERS_MAX: u16 = 256;

/// Most threads of one worker. Above the cpus of a common node.
pub const THREADS_MAX: u16 = 256;

/// Most threads of all workers, W x T. The solver keeps one count per worker and cpu domain and
/// evaluates pairs of threads of one worker; 64 x 64 = 4,096 is the size it is built for, this is
/// four times that.
pub const SLOTS_MAX: u32 = 16_384;

/// Most cpus. The largest machines sold have 1,024 cpus or fewer.
pub const CPUS_MAX: usize = 1_024;

/// Most rounds of perturbation and local search: further rounds hardly ever found more (measured on
/// the table of cases).
pub(crate) const PERTURBATIONS_MAX: usize = 400;

/// Most work in all rounds, in evaluated pairs of threads (a few nanoseconds each): tens of
/// milliseconds at most.
pub(crate) const PERTURBATION_WORK_MAX: usize = 4_000_000;

/// Tries to find a random legal move.
pub(crate) const PERTURBATION_TRIES_MAX: usize = 64;

/// Most ways to place mains and peers, without any rule, of a problem that is enumerated: some
/// milliseconds at most.
pub(crate) const ENUMERATION_WAYS_MAX: usize = 100_000;

/// Threads that are placed between two questions to the budget while a problem is enumerated.
pub(crate) const ENUMERATION_STEPS: usize = 1_024;

/// Most integer variables of a reduced program. Of one deployment, 232 programs of 40 to 60
/// variables took 1 ms in the median and 96 ms at most; of several, 7,440 of up to 60 took 0.6 ms
/// in the median and 59 ms at most. Larger ones vary a thousandfold.
pub(crate) const REDUCED_VARIABLES_MAX: usize = 60;

/// Longest run of the integer program, seconds. good_lp offers no other limit for microlp; with so
/// few variables a machine ten times slower than usual does not reach it, so answers do not depend
/// on it.
pub(crate) const REDUCED_SECONDS_MAX: f64 = 1.0;

/// Steps of the work budget that the integer program counts as, whatever it takes.
pub(crate) const REDUCED_STEPS: usize = 5_000_000;

/// Most steps that reduce the excess over the rules. Each lowers an excess, and these are at most a
/// few for every core.
pub(crate) const RELAXATION_STEPS_MAX: usize = 1_000;

/// Most passes over all pairs of workers that exchange their rows of cpus: nearly all orders are
/// found in two.
pub(crate) const ORDER_PASSES_MAX: usize = 8;

/// Most steps of the dual toward a lower bound: further steps hardly ever lower it (measured on the
/// sweep of the table of cases).
pub(crate) const DUAL_STEPS_MAX: usize = 200;

/// Most steps of the dual in a row that do not lower the bound: by then they are a thousandth as
/// long.
pub(crate) const DUAL_IDLE_MAX: u32 = 60;

/// Most work of the dual in one group of levels, in steps of its dynamic programs (about a
/// nanosecond each).
pub(crate) const DUAL_WORK_MAX: usize = 5_000_000;

/// Most moves of the annealing of counts in one node of the tree: a few tens of
/// nanoseconds each.
pub(crate) const COUNT_ANNEALING_MOVES_MAX: usize = 200_000;

/// Most work of one local search, in evaluated threads and cpus (a few nanoseconds each): what it
/// needs from a good start, and little of the budget of 50 ms.
pub(crate) const CLIMB_WORK_MAX: usize = 1_500_000;

/// Random seeds of the annealed constructions.
pub(crate) const CONSTRUCTION_SEEDS: [u64; 2] = [7_919, 15_838];

/// Most moves of simulated annealing on threads: some fifty nanoseconds each.
pub(crate) const ANNEALING_MOVES_MAX: usize = 200_000;

/// Most evaluated moves while mains are taken off full cpus and cores (some twenty nanoseconds
/// each): a fifth of the budget of 50 ms; a start that needs more is given up.
pub(crate) const REPAIR_EVALUATIONS_MAX: usize = 500_000;

/// Most alternating paths that are compared to give a peer a rank; among a few there is one that
/// renames no other peer.
pub(crate) const ALTERNATING_PATHS_MAX: usize = 64;

/// Workers x threads x cpus from which on a machine with several L3 caches is constructed by
/// annealing first: there a local search takes as long as a construction.
pub(crate) const LARGE_PROBLEM: usize = 50_000;

/// Most deployments of a joint problem. A node runs 110 pods by default, 500 at most.
pub const DEPLOYMENTS_MAX: usize = 1_024;

/// Most threads of all deployments of a joint problem: 200 deployments of 16 x 16 and some.
pub const JOINT_SLOTS_MAX: u32 = 65_536;

/// Most workers times cpus of a joint problem. The search keeps 8 bytes for each pair: 32 MiB.
pub const CELLS_MAX: usize = 4_194_304;

/// Most that obstacles on one cpu weigh, in threads; keeps sums of loads in a `u32`.
pub const WEIGHT_MAX: u32 = 65_536;

/// Most placements that are enumerated: some milliseconds.
pub(crate) const PLACEMENTS_MAX: usize = 100_000;

/// Steps of an enumeration between two questions to the budget: some 20 microseconds.
pub(crate) const PLACEMENT_STEPS: usize = 512;

/// Most work in all rounds of a joint perturbation, in threads times cpus: some tens of
/// milliseconds, also without a budget.
pub(crate) const JOINT_PERTURBATION_WORK_MAX: usize = 16_000_000;

/// A cost of moves that no gain exceeds, in cycles: one thread gains at most 65,536 pairs times 200
/// cycles. Its multiple of 65,536 threads and of `CYCLE` still fits an `i64`.
pub(crate) const FROZEN_COST: i64 = 1 << 29;

/// Most work of the bound's flow of mains, in mains times edges: some milliseconds.
pub(crate) const FLOW_WORK_MAX: usize = 400_000;

/// Most changes that are looked at to see what one rule costs (some 50 ns each): about half a
/// second.
pub(crate) const CLIMB_LOOKS_MAX: usize = 10_000_000;

/// What a question to the budget counts as, in looks.
pub(crate) const LOOKS_A_QUESTION: usize = 10;

/// Steps of the work budget for one change that is looked at in an explanation.
pub(crate) const CHANGE_STEPS: usize = 50;

/// Steps for one exchange or shift that a local search evaluates.
pub(crate) const MOVE_STEPS: usize = 5;

/// Steps for one move that is evaluated to take a main off a full cpu or core.
pub(crate) const REPAIR_STEPS: usize = 20;

/// Steps for one thread and one cpu while several deployments are balanced and placed first.
pub(crate) const FIRST_PLACEMENT_STEPS: usize = 2;

/// Steps for two cpus that are compared in the local search of several deployments.
pub(crate) const CPU_PAIR_STEPS: usize = 16;

/// Steps for the gain of one thread at one cpu, in the local search of several deployments.
pub(crate) const GAIN_STEPS: usize = 3;

/// Steps for one exchange of two threads of several deployments that is evaluated.
pub(crate) const EXCHANGE_STEPS: usize = 12;
