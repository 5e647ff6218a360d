//! Bounds and periods of the loop, each with its reason.

use std::time::Duration;

/// Period in which the spawns counter of the machine is read while nothing is expected. The promise
/// for an unannounced thread is 60 ms from spawn to verified mask; one reading, with the wake-up
/// for it, costs 15 to 50 microseconds.
pub const IDLE_PERIOD: Duration = Duration::from_millis(20);

/// Looking up one id costs as much as asking so many processes for their number of threads.
pub const LOOKUPS_PER_SPAWN: usize = 8;

/// Period while a spawn is expected: an exit announces it, and the promise is 20 ms.
pub const FAST_PERIOD: Duration = Duration::from_millis(1);

/// How long a spawn is expected after an exit: longer than any server that replaces its workers "at
/// once" needs; a slower one is still found in the idle period.
pub const FAST_TIME_MAX: Duration = Duration::from_secs(2);

/// Longest pause between two scans while processes are spawned somewhere on the machine, whatever
/// it costs: the promise is 60 ms from spawn to verified mask.
pub const SCAN_PAUSE_MAX: Duration = Duration::from_millis(45);

/// A scan is followed by a pause of this many times its duration: a third of a percent of a core,
/// unless a spawn is expected.
pub const SCAN_PAUSE_RATIO: u32 = 300;

/// The same while a spawn is expected.
pub const FAST_PAUSE_RATIO: u32 = 3;

/// Longest such pause: a scan that was itself interrupted by the load must not delay the next one
/// by a multiple.
pub const FAST_PAUSE_MAX: Duration = Duration::from_millis(5);

/// How long a process without the names of the built-in server's threads may still be getting them.
/// Loading a model comes first.
pub const NAMING_TIME_MAX: Duration = Duration::from_secs(10);

/// The same for a thread outside of workers: an event loop has its name at once, and most others
/// never get one. What takes longer is found when the tree is read.
pub const FRONT_NAMING_TIME_MAX: Duration = Duration::from_secs(1);

/// Shortest period of the sweep, which reads masks back where nothing announced a change.
pub const SWEEP_PERIOD_MIN: Duration = Duration::from_millis(20);

/// Longest wait of the loop for anything.
pub const WAIT_MAX: Duration = Duration::from_secs(1);

/// Masks that the sweep reads at once, before it lets spawns be detected again: about a
/// millisecond.
pub const SWEEP_SLICE: usize = 256;

/// A thread adds this much to the sweep's period. Reading and comparing one mask costs about 2 us:
/// that keeps the sweep at a quarter percent of a core. 50 threads are read every 40 ms, 5,000
/// every 4 s.
pub const SWEEP_PERIOD_PER_THREAD: Duration = Duration::from_micros(800);

/// The cgroups of processes are looked up in every sixteenth reading of cpusets; a process that is
/// moved shows in its masks before.
pub const CPUSET_READS_PER_SEARCH: u32 = 16;

/// The cpu time of the loop is checked in this period: longer than what one event costs counts.
pub const BUDGET_PERIOD: Duration = Duration::from_secs(4);

/// Share of a core, in thousandths, above which the loop lengthens its periods ...
pub const BUDGET_PERMILLE_MAX: u64 = 10;

/// ... and below which it shortens them again.
pub const BUDGET_PERMILLE_LOW: u64 = 4;

/// The most it lengthens them.
pub const SLOWDOWN_MAX: u32 = 8;

/// Period in which effective cpusets and the online cpus are read: nothing announces some of their
/// changes.
pub const CPUSET_PERIOD: Duration = Duration::from_millis(250);

/// A kernel that wipes masks with a cpuset shows the new cpuset first, and is done with all threads
/// within this time.
pub const CPUSET_WRITE_TIME: Duration = Duration::from_millis(100);

/// Period in which the whole tree is read if something was spawned on the machine since.
pub const TREE_PERIOD: Duration = Duration::from_secs(1);

/// Period in which the whole tree is read in any case: ids may wrap, counters may be reset.
pub const TREE_PERIOD_MAX: Duration = Duration::from_secs(20);

/// Events that arrive within this time are answered by one plan.
pub const COALESCING_TIME: Duration = Duration::from_millis(2);

/// Plans in a row for one wake: a plan whose steps change nothing that is observed ends the row.
/// New threads may be made by threads that were not pinned yet, so one plan is not always enough.
pub const PASSES_MAX: usize = 4;

/// Rounds in which masks are given back at the end; ends earlier when a round finds nothing to do.
pub const RESTORE_PASSES_MAX: usize = 8;

/// Work for the solver, as the time that a usual machine takes for it: the solver counts steps, so
/// the plan does not depend on how busy the machine is. It runs on the cores that it is to protect;
/// the constructed answer is there at once. With this, 200 deployments on 256 cpus take 20 to 34 ms
/// (docs/benchmarks/solver.md).
pub const SOLVE_BUDGET: Duration = Duration::from_millis(30);

/// Work for the search in the background that follows a solve without proof. Of 173 compact plans
/// that 50 ms left unproven, a longer search from them improved 25; all searches ended by
/// themselves before this.
pub const IMPROVEMENT_BUDGET: Duration = Duration::from_secs(1);

/// Time that was used for solving comes back this many times slower: a twentieth of a core in the
/// long run.
pub const SOLVE_PAUSE_RATIO: u32 = 20;

/// So much may be used at once: some changes in a row, each answered with the whole budget, before
/// the next one waits. A cpuset that is rewritten is repaired within 300 ms, also if it is
/// rewritten again a moment later.
pub const SOLVE_BURST: Duration = Duration::from_millis(200);

/// What moving a thread for the sake of another subject costs, in cycles of the objective: as much
/// as a pair of threads gains at most by going apart or together. Its caches are cold once; the
/// gain lasts.
pub const JOINT_MOVE_COST: u32 = 200;

/// What moving a thread costs where its server has the cpus to itself: the same.
pub const MOVE_COST: u32 = JOINT_MOVE_COST;

/// The same where it leaves the NUMA domain that its memory is in: more than the largest pair
/// distances of all its worker's and all mains' pairs can gain (255 of them, 200 cycles each), so
/// that only the rules force it.
pub const NUMA_MOVE_COST: u32 = 2 * 255 * 200;

/// After this time a server has touched its memory.
pub const WARM_UP_TIME: Duration = Duration::from_secs(10);

/// A subject whose cpus are shared asks again after this time for the answer that all get together.
pub const JOINT_PERIOD: Duration = Duration::from_millis(5);

/// Processes read of one subject: a server of 64 workers with helpers has a few hundred.
pub const PROCESSES_MAX: usize = 4096;

/// Threads read of one subject.
pub const THREADS_MAX: usize = 16_384;

/// Control messages that wait to be handled; more are refused to their sender.
pub const CONTROLS_MAX: usize = 64;

/// Errors listed in the report of one restore; the rest is only counted.
pub const RESTORE_ERRORS_MAX: usize = 16;

/// Cgroups of one subject whose cpusets are read: its processes usually share one.
pub const CGROUPS_MAX: usize = 8;

/// How long after its spawn a process is expected to exec: then it has another command line.
pub const EXEC_TIME_MAX: Duration = Duration::from_millis(500);

/// A search for unexpected new workers is followed by a pause of this many times its
/// duration.
pub const CHILDREN_PAUSE_RATIO: u32 = 400;

/// Longest such pause: reached by a root with some 200 threads, each of which may have children.
pub const CHILDREN_PAUSE_MAX: Duration = Duration::from_secs(4);

/// Reading a whole tree is followed by a pause of this many times its duration.
pub const TREE_PAUSE_RATIO: u32 = 1000;

/// Period in which quotas of cpu time and strangers in a container's cgroup are checked; a write to
/// a quota is noticed at once.
pub const CONTAINER_CHECK_PERIOD: Duration = Duration::from_secs(10);

/// Cpu times of threads are read in this period, to tell hot threads from cool ones: long enough
/// that one burst of requests changes no class.
pub const LOAD_PERIOD: Duration = Duration::from_secs(30);

/// A thread is hot from this share of a cpu on, percent: two such threads on one core contend ...
pub const HOT_PERCENT_MIN: u64 = 50;

/// ... and cool at this share or less. In between it keeps its class.
pub const COOL_PERCENT_MAX: u64 = 25;

/// Period in which classes are compared with the weights in force.
pub const WEIGHTS_CHECK_PERIOD: Duration = Duration::from_secs(10);

/// Shortest time between two changes of a subject's weights: classes follow the load of a day, not
/// that of a minute, and every exchange of two workers costs their caches.
pub const WEIGHTS_PERIOD: Duration = Duration::from_secs(600);

/// What exchanging the cpus of two workers must gain once they run, in percent of a cpu: as much as
/// two threads that are always busy and need not share a core any more.
pub const EXCHANGE_GAIN_MIN: u64 = 100;

/// Pause after something failed, at first.
pub const ERROR_PAUSE_MIN: Duration = Duration::from_millis(20);

/// Longest such pause: it doubles while the same goes on.
pub const ERROR_PAUSE_MAX: Duration = Duration::from_secs(1);

/// Announced spawns are taken in this period at most while many are: it costs a wake-up each time.
/// The promise is 5 ms from spawn to verified mask.
pub const SPAWN_EVENTS_PERIOD: Duration = Duration::from_millis(2);

/// How long announced spawns are not listened to after they cost too much, times the slowdown.
pub const SPAWN_EVENTS_PAUSE: Duration = Duration::from_secs(1);

/// File descriptors that are left for reading files and for the rest of the program; half of them
/// where they are few.
pub const DESCRIPTORS_SPARED: u64 = 64;

/// Largest file of measured distances: the matrix of 256 cpus needs some 600 KiB, and a ConfigMap
/// holds at most 1 MiB.
pub const DISTANCES_FILE_BYTES_MAX: u64 = 1 << 20;

/// Threads of a subject whose times are read for a trial: workers x threads is at most 2,048, and
/// one that makes more must not delay the repair of masks.
pub const TRIAL_THREADS_MAX: usize = 4096;
