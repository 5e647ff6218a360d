//! Every bound of this crate, with its reason.

/// Most workers. Above any server that runs on one node; keeps counts in `u16` and pairs in `i64`.
pub const WORKERS_MAX: u16 = 256;

/// Most threads of one worker. Above the cpus of a common node.
pub const THREADS_MAX: u16 = 256;

/// Most threads of all workers, W x T. The solver keeps one count per worker and cpu domain and
/// looks at pairs of threads of one worker; 64 x 64 = 4,096 is the size it is built for, this is
/// four times that.
pub const SLOTS_MAX: u32 = 16_384;

/// Most cpus. The largest machines sold have 1,024 cpus or fewer.
pub const CPUS_MAX: usize = 1_024;

/// Largest distance, in clock cycles: with it and [`SLOTS_MAX`] no objective overflows an `i64`.
pub const DISTANCE_MAX: u32 = 1_000_000;

/// Most rounds of shake and climb: beyond, further rounds hardly ever found more (measured on the
/// table of cases).
pub(crate) const SHAKES_MAX: usize = 400;

/// Most work in all rounds, in looks at pairs of threads (a few nanoseconds each): tens of
/// milliseconds at most.
pub(crate) const SHAKE_WORK_MAX: usize = 4_000_000;

/// Parts of these rounds: one is made before the bound is lowered case by case, the others after.
pub(crate) const SHAKE_PARTS: usize = 16;

/// Tries to find a legal move that is made without gain.
pub(crate) const SHAKE_TRIES_MAX: usize = 64;

/// Most integer variables of the reduced program: what microlp settles within its slice.
pub(crate) const REDUCED_VARIABLES_MAX: usize = 160;

/// Longest run of the integer program, seconds: it cannot be interrupted from outside. Small
/// problems come to it a few milliseconds after the start, so this is what 50 ms leave to it and to
/// the searches after it.
pub(crate) const REDUCED_SECONDS_MAX: f64 = 0.02;

/// Longest time that may be given to a program as a method of its own: a day, far beyond what
/// anybody waits for.
pub const METHOD_SECONDS_MAX: f64 = 86_400.0;

/// Most integer variables of the reduced program as a method of its own. 16 x 16 on 256 cpus has
/// 20,480 in compact: microlp needs 25 s and 60 MiB. 64 x 64 there has 81,920: neither engine is
/// over its first steps after 20 s, HiGHS with 500 MiB; it may have more time.
pub(crate) const REDUCED_ALONE_VARIABLES_MAX: usize = if cfg!(feature = "highs") {
    100_000
} else {
    25_000
};

/// Most variables of the literal program. On the 32 cpus of the article, microlp proves 4 x 4
/// (3,104 variables) in 4 to 25 s and has no mapping for 8 x 4 (5,600) after 30 s; HiGHS proves
/// 4 x 4 in 1 s, 8 x 4 in scatter in 20 s, and has no mapping for 8 x 8 (6,624) after 54 s: with
/// patience, up to the largest of the article, 16 x 16 (16,800).
pub(crate) const LITERAL_VARIABLES_MAX: usize = if cfg!(feature = "highs") {
    20_000
} else {
    4_000
};

/// Most steps that lessen breaches. Each lowers a breach, and breaches are at most a few for every
/// core.
pub(crate) const RELAX_STEPS_MAX: usize = 1_000;

/// Most steps of prices toward a lower bound: beyond, further steps hardly ever lower it (measured
/// on the sweep of the table of cases).
pub(crate) const PRICE_STEPS_MAX: usize = 200;

/// Most steps of prices in a row that do not lower the bound: the steps are a thousandth by then.
pub(crate) const PRICE_IDLE_MAX: u32 = 60;

/// Most work of prices in one group of levels, in looks at parts and volumes (about a nanosecond
/// each).
pub(crate) const PRICE_WORK_MAX: usize = 5_000_000;

/// Most moves with which threads are shared out to the domains of one node: a few tens of
/// nanoseconds each.
pub(crate) const ANNEAL_MOVES_MAX: usize = 200_000;

/// Most work of one climb, in looks at threads and cpus (a few nanoseconds each): what climbs from
/// a good start need, and little beside the budget of 50 ms.
pub(crate) const CLIMB_WORK_MAX: usize = 1_500_000;

/// Starts of the annealed descents: each is a fixed sequence of its own.
pub(crate) const DESCENTS: [u64; 2] = [7_919, 15_838];

/// Most moves of simulated annealing on threads: some fifty nanoseconds each.
pub(crate) const WANDER_MOVES_MAX: usize = 200_000;

/// Most looks at moves while mains are taken off full cpus and cores (some twenty nanoseconds
/// each): a fifth of the budget of 50 ms, where a start needs more it is not worth it.
pub(crate) const REPAIR_LOOKS_MAX: usize = 500_000;

/// Most paths that are compared to give a peer a rank; a few find one that renames nobody.
pub(crate) const FLIPS_MAX: usize = 64;

/// Workers x threads x cpus from which on a machine with several L3 caches is shared out to them
/// before anything else: there a climb takes as long as a descent.
pub(crate) const LARGE: usize = 50_000;

/// Most domains that are told apart for a lower bound: with more, one domain's choice is little.
pub(crate) const FORK_DOMAINS_MAX: usize = 16;

/// Bargains for one case before it is forked: its prices come from the case around it.
pub(crate) const FORK_STEPS: usize = 24;

/// Most work on all cases, in looks at parts and volumes (about a nanosecond each).
pub(crate) const FORK_WORK_MAX: usize = 20_000_000;

/// Most cases that are open at a time: each has its own tables, some 50 KiB.
pub(crate) const FORK_CASES_MAX: usize = 200;
