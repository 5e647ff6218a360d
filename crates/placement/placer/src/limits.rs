//! Limits and periods of the loop, each with its reason.

use std::time::Duration;

/// Polling period of the machine's last-pid counter while no spawn is expected. The target for an
/// unannounced thread is 60 ms from spawn to verified mask; one poll, including its wake-up, costs
/// 15 to 50 microseconds.
pub const IDLE_PERIOD: Duration = Duration::from_millis(20);

/// Looking up one id costs as much as reading the thread counts of this many processes.
pub const LOOKUPS_PER_SPAWN: usize = 8;

/// Polling period while a spawn is expected, i.e. after an exit; the target is then 20 ms.
pub const FAST_PERIOD: Duration = Duration::from_millis(1);

/// How long a spawn is expected after an exit: longer than any server needs that replaces its
/// workers immediately; a slower one is still detected by idle polling.
pub const FAST_TIME_MAX: Duration = Duration::from_secs(2);

/// Maximum pause between two scans while processes are spawned anywhere on the machine, regardless
/// of cost: the target is 60 ms from spawn to verified mask.
pub const SCAN_PAUSE_MAX: Duration = Duration::from_millis(45);

/// A scan is followed by a pause of this many times its duration, which limits the cost to a third
/// of a percent of a core, unless a spawn is expected.
pub const SCAN_PAUSE_RATIO: u32 = 300;

/// The same ratio while a spawn is expected.
pub const FAST_PAUSE_RATIO: u32 = 3;

/// Maximum of this pause: a scan that was itself delayed by load must not delay the next one by a
/// multiple.
pub const FAST_PAUSE_MAX: Duration = Duration::from_millis(5);

/// How long a process of the built-in server may take to name its threads, because it loads a model
/// first.
pub const NAMING_TIME_MAX: Duration = Duration::from_secs(10);

/// The same for a thread outside of workers: an event loop is named immediately, and most other
/// threads never are. Later names are found when the whole tree is read.
pub const FRONT_NAMING_TIME_MAX: Duration = Duration::from_secs(1);

/// Minimum period of the sweep, which reads masks back to find unannounced changes.
pub const SWEEP_PERIOD_MIN: Duration = Duration::from_millis(20);

/// Maximum wait of the loop.
pub const WAIT_MAX: Duration = Duration::from_secs(1);

/// Number of masks that the sweep reads before it yields to spawn detection: about a millisecond.
pub const SWEEP_SLICE: usize = 256;

/// Sweep period per thread. Reading and comparing one mask costs about 2 us, so this limits the
/// sweep to a quarter percent of a core: 50 threads are read every 40 ms, 5,000 every 4 s.
pub const SWEEP_PERIOD_PER_THREAD: Duration = Duration::from_micros(800);

/// The cgroups of processes are looked up again in every sixteenth cpuset reading; if a process is
/// moved, its masks usually reveal it earlier.
pub const CPUSET_READS_PER_SEARCH: u32 = 16;

/// Period of the check of the loop's CPU time: long enough that the cost of a single event is
/// negligible.
pub const BUDGET_PERIOD: Duration = Duration::from_secs(4);

/// Usage, in thousandths of a core, above which the loop lengthens its periods ...
pub const BUDGET_PERMILLE_MAX: u64 = 10;

/// ... and below which it shortens them again.
pub const BUDGET_PERMILLE_LOW: u64 = 4;

/// Maximum factor by which periods are lengthened.
pub const SLOWDOWN_MAX: u32 = 8;

/// Polling period of effective cpusets and online cpus, because some of their changes are not
/// announced.
pub const CPUSET_PERIOD: Duration = Duration::from_millis(250);

/// A kernel that overwrites masks on a cpuset change publishes the new cpuset first, and has
/// overwritten the masks of all threads within this time.
pub const CPUSET_WRITE_TIME: Duration = Duration::from_millis(100);

/// Period of reading the whole tree if a process was spawned on the machine since.
pub const TREE_PERIOD: Duration = Duration::from_secs(1);

/// Period of reading the whole tree in any case: pids may wrap around, counters may be reset.
pub const TREE_PERIOD_MAX: Duration = Duration::from_secs(20);

/// Debounce time: events that arrive within it are handled by one plan.
pub const COALESCING_TIME: Duration = Duration::from_millis(2);

/// Maximum plans per wake-up; planning stops earlier when the steps change nothing that is
/// observed. New threads may be created by threads that were not pinned yet, so one plan is not
/// always sufficient.
pub const PASSES_MAX: usize = 4;

/// Maximum rounds of restoring masks at the end; stops earlier when a round has nothing to restore.
pub const RESTORE_PASSES_MAX: usize = 8;

/// Work budget of the solver, expressed as the time that a typical machine needs for it: the solver
/// counts steps, so the plan does not depend on the load of the machine. The solver runs on the
/// cores that it is meant to protect; the constructed solution is available immediately. With this
/// budget, 200 deployments on 256 cpus take 20 to 34 ms (docs/benchmarks/solver.md).
pub const SOLVE_BUDGET: Duration = Duration::from_millis(30);

/// Work budget of the background search after a solve without proof of optimality. Of 173 compact
/// plans that 50 ms left unproven, a longer search starting from them improved 25; all searches
/// finished before this limit.
pub const IMPROVEMENT_BUDGET: Duration = Duration::from_secs(1);

/// Refill rate of the solver's time budget (token bucket): one part in this many, i.e. a twentieth
/// of a core in the long run.
pub const SOLVE_PAUSE_RATIO: u32 = 20;

/// Capacity of the bucket: a few consecutive changes, each using the whole work budget, before the
/// next one waits. A changed cpuset is repaired within 300 ms, even if it changes again a moment
/// later.
pub const SOLVE_BURST: Duration = Duration::from_millis(200);

/// Cost of moving a thread for the sake of another subject, in cycles of the objective: the maximum
/// gain of a pair of threads that is moved apart or together. Its caches are cold only once, while
/// the gain lasts.
pub const JOINT_MOVE_COST: u32 = 200;

/// Cost of moving a thread of a server with exclusive cpus: the same.
pub const MOVE_COST: u32 = JOINT_MOVE_COST;

/// Cost of moving a thread away from the NUMA node of its memory: more than the maximum gain over
/// all pairs of its worker and of all main threads (255 pairs, 200 cycles each), so that only the
/// rules can force such a move.
pub const NUMA_MOVE_COST: u32 = 2 * 255 * 200;

/// Time after which a server has touched its memory.
pub const WARM_UP_TIME: Duration = Duration::from_secs(10);

/// Retry interval of a subject with shared cpus that waits for the joint solution.
pub const JOINT_PERIOD: Duration = Duration::from_millis(5);

/// Maximum processes read per subject: a server of 64 workers with helpers has a few hundred.
pub const PROCESSES_MAX: usize = 4096;

/// Maximum threads read per subject.
pub const THREADS_MAX: usize = 16_384;

/// Capacity of the control message queue; further messages are rejected.
pub const CONTROLS_MAX: usize = 64;

/// Errors listed in the report of one restore; further ones are only counted.
pub const RESTORE_ERRORS_MAX: usize = 16;

/// Maximum cgroups per subject whose cpusets are read: its processes usually share one.
pub const CGROUPS_MAX: usize = 8;

/// How long after its spawn a process may be expected to exec, which changes its command line.
pub const EXEC_TIME_MAX: Duration = Duration::from_millis(500);

/// A search for unexpected new workers is followed by a pause of this many times its duration.
pub const CHILDREN_PAUSE_RATIO: u32 = 400;

/// Maximum of this pause: reached by a root process with some 200 threads, each of which may have
/// children.
pub const CHILDREN_PAUSE_MAX: Duration = Duration::from_secs(4);

/// Reading a whole tree is followed by a pause of this many times its duration.
pub const TREE_PAUSE_RATIO: u32 = 1000;

/// Period of checking CPU quotas and unrelated processes in a container's cgroup; a write to a
/// quota is noticed immediately.
pub const CONTAINER_CHECK_PERIOD: Duration = Duration::from_secs(10);

/// Period of reading the CPU times of threads, which distinguish hot from cool threads: long enough
/// that one burst of requests does not change the class.
pub const LOAD_PERIOD: Duration = Duration::from_secs(30);

/// A thread is hot from this share of a cpu, in percent: two such threads on one core contend ...
pub const HOT_PERCENT_MIN: u64 = 50;

/// ... and cool at or below this share. In between it keeps its class (hysteresis).
pub const COOL_PERCENT_MAX: u64 = 25;

/// Period of comparing the measured classes with the weights in force.
pub const WEIGHTS_CHECK_PERIOD: Duration = Duration::from_secs(10);

/// Minimum time between two changes of a subject's weights: they follow the daily load pattern, not
/// short-term changes, and exchanging two workers makes their caches cold.
pub const WEIGHTS_PERIOD: Duration = Duration::from_secs(600);

/// Minimum gain of exchanging the cpus of two running workers, in percent of a cpu: the gain if two
/// threads that are always busy no longer share a core.
pub const EXCHANGE_GAIN_MIN: u64 = 100;

/// Initial pause after an error.
pub const ERROR_PAUSE_MIN: Duration = Duration::from_millis(20);

/// Maximum pause; it doubles while the error persists.
pub const ERROR_PAUSE_MAX: Duration = Duration::from_secs(1);

/// Minimum interval between readings of spawn events while there are many of them, because each
/// reading costs a wake-up. The target is 5 ms from spawn to verified mask.
pub const SPAWN_EVENTS_PERIOD: Duration = Duration::from_millis(2);

/// How long spawn events are ignored after they cost too much, times the slowdown.
pub const SPAWN_EVENTS_PAUSE: Duration = Duration::from_secs(1);

/// File descriptors reserved for reading files and for the rest of the program; half of the limit
/// if it is low.
pub const DESCRIPTORS_SPARED: u64 = 64;

/// Maximum size of a file of measured distances: the matrix of 256 cpus needs some 600 KiB, and a
/// ConfigMap is limited to 1 MiB.
pub const DISTANCES_FILE_BYTES_MAX: u64 = 1 << 20;

/// Maximum threads per subject whose times are read for a trial: workers x threads is at most
/// 2,048, and a subject with more threads must not delay the repair of masks.
pub const TRIAL_THREADS_MAX: usize = 4096;
