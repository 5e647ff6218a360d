//! Every bound of the engine, with its reason. Those that worker processes share are in crate
//! `worker`.

use std::time::Duration;

use albacore_batching::Nanos;
pub use albacore_worker::limits::{
    ALIGNMENT, BATCH_REQUESTS_MAX, CLOSES_MAX, MODELS_MAX, SLOTS_MAX,
};

/// How often the rings of adopted workers are polled until they have finished what a dead front had
/// handed over: they notify that front alone.
pub const ADOPTION_POLL_PERIOD: Duration = Duration::from_millis(1);

/// Crashes of workers while they open a candidate, after which it is rejected: the first ones may
/// have other causes.
pub const OPEN_CRASHES_MAX: u32 = 3;

/// How long the workers may take to open a candidate. Opening validates the image, about a second
/// for each GiB, and waits for the batch that the worker runs.
pub const INSTALL_DEADLINE: Duration = Duration::from_secs(120);

/// Shared memory for rows. Only touched pages cost memory: queued rows are bounded by
/// `--queue-rows`, this bounds the bytes of wide ones.
pub const ROWS_ARENA_BYTES: usize = 1 << 30;

/// Shared memory for results, with the same reason. Interactions of 155 features take 97 KiB a
/// row.
pub const RESULTS_ARENA_BYTES: usize = 1 << 30;

/// Results of at least this many bytes return their pages to the kernel when freed; smaller ones
/// keep them, because they are reused at once.
pub const RELEASE_BYTES_MIN: usize = 4 << 20;

/// How long the workers may take to come up at the start before the server gives up. Opening a
/// model validates it, which takes about a second for each GiB.
pub const STARTUP_DEADLINE: Duration = Duration::from_secs(60);

/// Consecutive incarnations of a worker that may end before it is ready before the start fails.
pub const STARTUP_FAILURES_MAX: u32 = 3;

/// A worker is started again at once after its first failures ...
pub const RESPAWNS_AT_ONCE: u32 = 3;

/// ... and with a pause that doubles from this after more consecutive failures: a crash loop would
/// burn the cpus that other workers need ...
pub const RESPAWN_PAUSE_MIN: Duration = Duration::from_millis(10);

/// ... up to this.
pub const RESPAWN_PAUSE_MAX: Duration = Duration::from_secs(5);

/// Blame of a batch for a crash of its worker: the second crash reaches the maximum.
pub const CRASH_BLAME: u32 = albacore_batching::BLAME_MAX / 2;

/// Blame for a SIGKILL: the kernel may have sent it because the batch took too much memory, but
/// more often the batch is not the cause.
pub const KILL_BLAME: u32 = albacore_batching::BLAME_MAX / 8;

/// Blame for a hang: the fourth one reaches the maximum, because there may be other causes: a
/// debugger, or a signal that stopped the worker.
pub const HANG_BLAME: u32 = albacore_batching::BLAME_MAX / 4;

/// A worker hangs when its batch takes this many times as long as such batches usually do ...
pub const HANG_FACTOR: u64 = 10;

/// ... but at least this long, not counting time in which it had no cpu: killing it sooner gains
/// nothing ...
pub const HANG_TIMEOUT_MIN: Duration = Duration::from_millis(250);

/// ... and this where the costs are not known: interactions of a large model take long.
pub const HANG_TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);

/// How often the supervisor checks for hung workers: a check takes some microseconds.
pub const HANG_CHECK_PERIOD: Duration = Duration::from_millis(50);

/// A worker that gets no cpu at all for this long is judged by elapsed time: a thread of real-time
/// priority may keep its cpu for good. Sharing a cpu with a hundred others is far from it.
pub const HANG_STARVED_MAX: Duration = Duration::from_secs(30);

/// Sampling the threads of suspects, some 20 us each, takes at most one part in so many of the
/// supervisor's time.
pub const HANG_SAMPLING_SHARE: u32 = 10;

/// How long a worker with a cpu to itself spins for its next batch before it sleeps: several times
/// the latency of a wake, so that under load no batch waits for one, and without load little cpu
/// time is burnt.
pub const SPIN_TIME: Duration = Duration::from_micros(100);

/// How often it is looked to which NUMA nodes the workers are pinned, some microseconds each: they
/// are pinned when they start, and seldom elsewhere later.
pub const NODE_CHECK_PERIOD: Duration = Duration::from_secs(2);

/// A copy of an image on a node without workers is kept so long: workers that are moved may come
/// back, and a worker that starts again is pinned some time after that.
pub const COPY_UNNEEDED_TIME_MAX: Duration = Duration::from_secs(60);

/// When a copy that could not be made is tried again: memory may have become free.
pub const COPY_RETRY_PAUSE: Duration = Duration::from_secs(60);

/// A copy is made only if the memory limit leaves so many times its bytes: as much again is left
/// for rows and results.
pub const COPY_MEMORY_FACTOR: u64 = 2;

/// An image lies on a node if so many percent of its pages do: a few may lie elsewhere, where the
/// kernel had them at hand.
pub const IMAGE_NODE_PERCENT: u64 = 95;

/// Images of fewer bytes are in no huge page, whose size this is, so it is not read how many are.
pub const MEASURED_BYTES_MIN: usize = 2 << 20;

/// How often the number of usable cpus is read again: cpusets change seldom.
pub const CPUS_POLL_PERIOD: Duration = Duration::from_secs(1);

/// How long workers may take to end after the command to stop; they are idle then.
pub const WORKER_STOP_DEADLINE: Duration = Duration::from_secs(2);

/// The longest `Retry-After`.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(30);

/// The shortest `Retry-After`, and the one given while the speed of the model is not known.
pub const RETRY_AFTER_MIN: Duration = Duration::from_millis(10);

/// By how much a request of high priority overtakes where no objective is known: far more than a
/// batch takes, and others do not wait noticeably longer for it.
pub const HEAD_START: Nanos = Nanos(100_000_000);

/// After so long without a reply the estimate of the reply latency is halved: about the time in
/// which a crowd of requests is answered or refused.
pub const REPLY_LATENCY_HALF_LIFE: Duration = Duration::from_millis(25);

/// Of the last so many requests of a model whose bodies were read, the cheapest is the estimate
/// for one that was not read ...
pub const UNREAD_WINDOW: u64 = 32;

/// ... but one in so many is read in any case, so that cheaper requests are noticed.
pub const UNREAD_SAMPLE: u64 = 8;

/// A request that has waited for the front for less than this gets the whole objective: most have,
/// and requests with equal objectives are then queued in order of arrival.
pub const WAITED_MIN: Duration = Duration::from_micros(500);

/// So many requests in flight are a crowd: fewer are serialized within a millisecond or two.
pub const CROWDED_REQUESTS_MIN: usize = 16;

/// The part of a request's time that the front may take, before it is learned: as much as waiting
/// for a worker and computing, if all three are alike.
pub const FRONT_TIME_LIMIT_START: f64 = 1.0 / 3.0;

/// The part is learned down to this, enough for a burst of [`CROWDED_REQUESTS_MIN`] ...
pub const FRONT_TIME_LIMIT_MIN: f64 = 0.0625;

/// ... and up to this: a request needs some time of a worker.
pub const FRONT_TIME_LIMIT_MAX: f64 = 0.9375;

/// How often it is adapted: several times as long as the objectives of most models, so that the
/// requests that the last change let in have ended.
pub const FRONT_TIME_LIMIT_PERIOD: Duration = Duration::from_millis(50);

/// The front takes too much if it makes more answers late than this: what most objectives allow.
pub const LATE_SHARE_MAX: f64 = 0.01;

/// Serializing a reply is slow from this on: reading a request takes about half as long.
pub const SLOW_SERIALIZATION_MIN: Duration = Duration::from_micros(20);

/// Requests are coalesced while computing all of them takes less than this: about the cost of
/// handing over a batch, waking its worker and collecting its results. Above it each worker had
/// better begin with its own batch.
pub const COALESCED_COMPUTE_MAX: Duration = Duration::from_micros(20);

/// Coalesced requests wait no longer than this: the next request or the next thread that enters the
/// engine flushes them, at the latest the supervisor ([`HANG_CHECK_PERIOD`]) ...
pub const COALESCE_DELAY_MAX: Duration = Duration::from_micros(100);

/// ... and there are at most so many of one event loop.
pub const COALESCED_REQUESTS_MAX: usize = 256;

/// Reading a body of at least so many bytes takes as long as that: coalesced requests are flushed
/// before.
pub const LONG_READ_BYTES: usize = 4 << 10;

/// A thread that enters the engine polls the rings of all workers if that was not done for so
/// long. The completion task is notified sooner unless many connections are readable at once;
/// requests that arrive meanwhile make one batch.
pub const COMPLETION_POLL_PERIOD: Duration = Duration::from_millis(1);

/// How old shares, the pace of errors and the shape of the workers may be when a request is
/// admitted: a hundredth of [`FRONT_WINDOW`] changes none noticeably.
pub const ADMISSION_PERIOD: Duration = Duration::from_millis(10);

/// Over which time the work of the front is averaged (its weight falls to 1/e): requests of a
/// second tell who floods.
pub const FRONT_WINDOW: Nanos = Nanos(1_000_000_000);

/// Reading or writing so many bytes of rows or results, some 20 us as text, takes as long as the
/// rest of a small request.
pub const BYTES_PER_REQUEST: usize = 2 << 10;

/// The part of the front's time that refusals and other errors may take: enough to say no to
/// thousands a second, and nine tenths are left for answers.
pub const ERROR_SHARE: f64 = 0.1;

/// So many errors leave at once before they are paced: those of a burst.
pub const ERRORS_AT_ONCE: u64 = 64;

/// An error is held no longer than this, half of the shortest `Retry-After` of HTTP. Held longer,
/// a thousand clients that resend at once are no fewer refusals, as [`ERROR_SHARE`] paces them by
/// then, and clients that do not wait for replies keep more connections open.
pub const HOLD_MAX: Duration = Duration::from_millis(500);
