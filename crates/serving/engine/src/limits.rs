//! Every bound of the engine, with its reason.

use std::time::Duration;

use albacore_batching::Nanos;

/// Models of one server: each is one descriptor in every worker.
pub const MODELS_MAX: usize = 64;

/// Slots of models: those that are served, and as many that are removed while requests still run.
pub const SLOTS_MAX: usize = 2 * MODELS_MAX;

/// Images that one message tells a worker to close; the rest wait for the next.
pub const CLOSES_MAX: usize = 256;

/// Deaths of workers while they open a new image, after which it is given up: the first ones may be
/// anybody's kills.
pub const OPEN_CRASHES_MAX: u32 = 3;

/// How long the workers may take to open a new image. Opening validates it, about a second for each
/// GiB, after the batch that each of them runs.
pub const INSTALL_DEADLINE: Duration = Duration::from_secs(120);

/// Requests in one batch: the size of a worker's ring, which holds one descriptor for each.
pub const BATCH_REQUESTS_MAX: usize = 1024;

/// Shared memory for rows. Only what is touched costs memory: rows that wait are bounded by
/// `--queue-rows`, this bounds the widest ones.
pub const ROWS_ARENA_BYTES: usize = 1 << 30;

/// Shared memory for results, likewise. Interactions of 155 features take 97 KiB a row.
pub const RESULTS_ARENA_BYTES: usize = 1 << 30;

/// Results of at least this many bytes give their pages back to the kernel when freed; smaller ones
/// keep them, because they are used again at once.
pub const RELEASE_BYTES_MIN: usize = 4 << 20;

/// Alignment of everything in shared memory: a cache line, so that no two requests share one.
pub const ALIGNMENT: usize = 64;

/// Bytes of the reason that a worker can give for a request that it could not compute.
pub const REASON_BYTES_MAX: usize = 256;

/// How long the workers may take to come up at the start before the server gives up. Opening a
/// model validates it, which takes about a second for each GiB.
pub const STARTUP_DEADLINE: Duration = Duration::from_secs(60);

/// Lives of a worker that may end before it was ever ready, in a row, before the start fails.
pub const STARTUP_FAILURES_MAX: u32 = 3;

/// A worker is started again at once after its first crashes ...
pub const RESPAWNS_AT_ONCE: u32 = 3;

/// ... and with a pause that doubles from this after more lives in a row that ended before the
/// worker was ready, because such a loop would only burn the cpus that others need ...
pub const RESPAWN_PAUSE_MIN: Duration = Duration::from_millis(10);

/// ... up to this.
pub const RESPAWN_PAUSE_MAX: Duration = Duration::from_secs(5);

/// Blame of a batch for a crash of its worker while it ran: the second one ends it.
pub const CRASH_BLAME: u32 = albacore_batching::BLAME_MAX / 2;

/// Blame for a SIGKILL: the kernel may have sent it because the batch took too much memory, but
/// more often somebody else did.
pub const KILL_BLAME: u32 = albacore_batching::BLAME_MAX / 8;

/// Blame for a hang: the fourth one ends a batch, because others than the batch may be the cause: a
/// debugger, or whoever stopped the worker.
pub const HANG_BLAME: u32 = albacore_batching::BLAME_MAX / 4;

/// A worker hangs when its batch takes this many times as long as such batches do ...
pub const HANG_FACTOR: u64 = 10;

/// ... but at least this, not counting time in which it had no cpu: nobody is helped by ending it
/// sooner ...
pub const HANG_TIMEOUT_MIN: Duration = Duration::from_millis(250);

/// ... and this where nothing is known of its costs: interactions of a large model take long.
pub const HANG_TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);

/// How often the supervisor looks for workers that hang: the looks themselves cost some
/// microseconds.
pub const HANG_CHECK_PERIOD: Duration = Duration::from_millis(50);

/// A worker that gets no cpu at all for so long is judged by the clock: a thread of real-time
/// priority may keep its cpu for good. Sharing a cpu with a hundred others is far from it.
pub const HANG_STARVED_MAX: Duration = Duration::from_secs(30);

/// ThreadSample the threads of suspects, some 20 us each, takes at most one part of so many of the
/// supervisor's time.
pub const HANG_SAMPLING_SHARE: u32 = 10;

/// For how long a worker with a cpu to itself looks for its next batch before it sleeps: some times
/// what wake_latency it takes, so that under load nobody pays for that, and without load little is burnt.
pub const SPIN_TIME: Duration = Duration::from_micros(50);

/// The longest that a worker believes.
pub const SPIN_TIME_MAX: Duration = Duration::from_millis(10);

/// How often it is looked how many cpus the process may use: cpusets change seldom.
pub const CPUS_POLL_PERIOD: Duration = Duration::from_secs(1);

/// How long workers may take to end once told to; they are idle then.
pub const WORKER_STOP_DEADLINE: Duration = Duration::from_secs(2);

/// The longest time that a refused client is told to wait.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(30);

/// The shortest, and the one given while nothing is known about the speed.
pub const RETRY_AFTER_MIN: Duration = Duration::from_millis(10);

/// Where a model was not measured, predictions of at least this many rows are shared by the threads
/// of a worker: wake_latency a thread costs about as much as a few dozen rows.
pub const PARALLEL_ROWS: usize = 64;

/// As above where SHAP values are asked for: a row costs a hundred times as much.
pub const PARALLEL_SHAP_ROWS: usize = 2;

/// Pieces that each thread finds of a batch that is shared: more than one, so that a thread that
/// comes late leaves its share to the others.
pub const PIECES_PER_THREAD: usize = 4;

/// A batch is shared when one thread would take this many times as long as wake_latency another: sooner,
/// both would be done at about the time at which one is.
pub const SHARING_PAYS: f64 = 3.0;

/// Where trees are divided, each thread finds this many parts of them: each part makes the rows
/// ready for itself, so fewer than of rows.
pub const TREE_PARTS_PER_THREAD: usize = 2;

/// Outputs of requests in a batch whose trees are divided: more of them are rows enough.
pub const TREE_JOBS_MAX: usize = 8;

/// How often a worker measures at its start how long wake_latency a thread takes; the shortest counts ...
pub const WAKE_PROBES: usize = 5;

/// ... if it is at most this: wake_latency takes some 5 to 60 us. More is what threads wait for a cpu,
/// which is over some day, but what was measured is believed for the worker's whole incarnation; so it
/// goes on ...
pub const WAKE_LATENCY_PLAUSIBLE: Duration = Duration::from_micros(150);

/// ... up to so many times, 0.1 s of a start at most ...
pub const WAKE_PROBES_MAX: usize = 50;

/// ... after a pause in which the thread falls asleep ...
pub const WAKE_PROBE_PAUSE: Duration = Duration::from_micros(300);

/// ... waiting no longer than this for its answer.
pub const WAKE_PROBE_TIMEOUT: Duration = Duration::from_millis(2);

/// By how much a request of high priority overtakes where no objective says what is urgent: far
/// more than a batch takes, and nobody waits noticeably longer for it.
pub const HEAD_START: Nanos = Nanos(100_000_000);

/// After so long without a reply half of what replies took is forgotten: about the time in which a
/// crowd of requests is answered or refused.
pub const REPLY_LATENCY_HALF_LIFE: Duration = Duration::from_millis(25);

/// Of so many requests of a model, the last ones that were read, the cheapest says what one costs
/// that was not read ...
pub const UNREAD_WINDOW: usize = 32;

/// ... but one of so many is read whatever they say.
pub const UNREAD_SAMPLE: usize = 8;

/// A request that has waited for the front for less than this has its model's whole objective: most
/// have, and a queue of requests with one objective is in order by itself.
pub const WAITED_MIN: Duration = Duration::from_micros(500);

/// Requests queue up before the front if none of the last interval and the one before ...
pub const SOJOURN_INTERVAL: Duration = Duration::from_millis(10);

/// ... had waited for less than one part of so many of its time, where replies are printed fast and
/// where they are not ([`SLOW_SERIALIZATION_MIN`]).
pub const SOJOURN_SHARES: [u64; 2] = [8, 16];

/// So many requests on their way are a crowd: fewer are printed within a millisecond or two.
pub const CROWDED_REQUESTS_MIN: usize = 16;

/// The front is crowded if it takes more than one part of so many of a request's time, likewise:
/// what its connections wait for replies, their clients wait to send.
pub const FRONT_SHARES: [u64; 2] = [3, 4];

/// Printing a reply takes long from this on: reading a request and refusing it takes about half of
/// it.
pub const SLOW_SERIALIZATION_MIN: Duration = Duration::from_micros(20);

/// Requests are gathered while computing all of them takes less than this: about what handing over
/// a batch, wake_latency its worker and hearing of its end cost. Above it workers had better begin, each
/// with its own.
pub const COALESCED_COMPUTE_MAX: Duration = Duration::from_micros(20);

/// Who has waited so long for others does not wait on: whoever enters the engine next sees to it,
/// at the latest the supervisor ([`HANG_CHECK_PERIOD`]).
pub const COALESCE_DELAY_MAX: Duration = Duration::from_micros(100);

/// ThreadSample rows of at least so many bytes takes as long: what was gathered goes before.
pub const LONG_READ_BYTES: usize = 4 << 10;

/// Whoever enters the engine looks what workers say if nobody has for so long. The task that is
/// told of it comes sooner unless many connections are readable at once; and what comes meanwhile
/// makes one batch.
pub const COMPLETION_POLL_PERIOD: Duration = Duration::from_millis(1);
