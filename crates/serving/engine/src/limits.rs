//! Bounds of the engine, with their reasons. Bounds that worker processes share are in crate
//! `worker`.

use std::time::Duration;

use albacore_batching::Nanos;
pub use albacore_worker::limits::{
    ALIGNMENT, BATCH_REQUESTS_MAX, CLOSES_MAX, MODELS_MAX, SLOTS_MAX,
};

/// Poll period of the rings of adopted workers until they have finished the work submitted by a
/// dead front: they notify that front only.
pub const ADOPTION_POLL_PERIOD: Duration = Duration::from_millis(1);

/// Crashes of workers while opening a candidate, after which it is rejected: the first ones may
/// have other causes.
pub const OPEN_CRASHES_MAX: u32 = 3;

/// Timeout of the workers to open a candidate. Opening validates the image, which takes about a
/// second per GiB, and waits for the batch that the worker runs.
pub const INSTALL_DEADLINE: Duration = Duration::from_secs(120);

/// Size of the shared memory for rows. Only touched pages use memory: queued rows are bounded by
/// `--queue-rows`, this bounds the bytes of wide rows.
pub const ROWS_ARENA_BYTES: usize = 1 << 30;

/// Size of the shared memory for results, for the same reason. Interactions of 155 features take 97
/// KiB per row.
pub const RESULTS_ARENA_BYTES: usize = 1 << 30;

/// Results of at least this many bytes return their pages to the kernel when freed; smaller ones
/// keep them because they are reused soon.
pub const RELEASE_BYTES_MIN: usize = 4 << 20;

/// Timeout of the workers at startup, after which the server exits. Opening a model validates it,
/// which takes about a second per GiB.
pub const STARTUP_DEADLINE: Duration = Duration::from_secs(60);

/// Consecutive incarnations of a worker that may exit before they are ready before startup fails.
pub const STARTUP_FAILURES_MAX: u32 = 3;

/// A worker is respawned immediately after its first failures ...
pub const RESPAWNS_AT_ONCE: u32 = 3;

/// ... and with a backoff that doubles from this after more consecutive failures: a crash loop
/// would consume cpus that other workers need ...
pub const RESPAWN_PAUSE_MIN: Duration = Duration::from_millis(10);

/// ... up to this.
pub const RESPAWN_PAUSE_MAX: Duration = Duration::from_secs(5);

/// Blame of a batch for a crash of its worker: the second crash reaches the maximum.
pub const CRASH_BLAME: u32 = albacore_batching::BLAME_MAX / 2;

/// Blame for a SIGKILL: the kernel may have sent it because the batch used too much memory, but
/// usually the batch is not the cause.
pub const KILL_BLAME: u32 = albacore_batching::BLAME_MAX / 8;

/// Blame for a hang: the fourth one reaches the maximum, because there may be other causes: a
/// debugger, or a signal that stopped the worker.
pub const HANG_BLAME: u32 = albacore_batching::BLAME_MAX / 4;

/// A worker hangs if its batch takes this many times as long as usual for such batches ...
pub const HANG_FACTOR: u64 = 10;

/// ... but at least this long, not counting time without a cpu: killing it sooner gains nothing ...
pub const HANG_TIMEOUT_MIN: Duration = Duration::from_millis(250);

/// ... and this if the costs are not known: interactions of a large model take long.
pub const HANG_TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);

/// How often the supervisor checks for hung workers: a check takes some microseconds.
pub const HANG_CHECK_PERIOD: Duration = Duration::from_millis(50);

/// A worker that gets no cpu at all for this long is judged by elapsed time: a thread of real-time
/// priority may occupy its cpu permanently. Sharing a cpu with a hundred other threads is far below
/// this.
pub const HANG_STARVED_MAX: Duration = Duration::from_secs(30);

/// Sampling the threads of suspects, about 20 us each, takes at most one part in this many of the
/// supervisor's time.
pub const HANG_SAMPLING_SHARE: u32 = 10;

/// How long a worker with a cpu of its own spins for its next batch before it sleeps: several times
/// the wake latency, so that under load no batch waits for a wakeup, and without load little cpu
/// time is wasted.
pub const SPIN_TIME: Duration = Duration::from_micros(100);

/// How often the masks of workers are checked for their NUMA nodes, some microseconds each: workers
/// are pinned after they start, and rarely moved later.
pub const NODE_CHECK_PERIOD: Duration = Duration::from_secs(2);

/// How long a copy of an image is kept on a node without workers: moved workers may come back, and
/// a respawned worker is pinned only some time after its start.
pub const COPY_UNNEEDED_TIME_MAX: Duration = Duration::from_secs(60);

/// Retry interval of failed copies: memory may have been freed.
pub const COPY_RETRY_PAUSE: Duration = Duration::from_secs(60);

/// A copy is made only if the memory limit leaves this many times its size: the other half is left
/// for rows and results.
pub const COPY_MEMORY_FACTOR: u64 = 2;

/// An image counts as local to a node if this percentage of its pages is on it: the kernel may have
/// placed a few pages on other nodes that had free memory.
pub const IMAGE_NODE_PERCENT: u64 = 95;

/// Huge pages of images smaller than this, the size of a huge page, are not counted.
pub const MEASURED_BYTES_MIN: usize = 2 << 20;

/// How often the number of usable cpus is read: cpusets rarely change.
pub const CPUS_POLL_PERIOD: Duration = Duration::from_secs(1);

/// Timeout of workers to exit after the stop command; they are idle by then.
pub const WORKER_STOP_DEADLINE: Duration = Duration::from_secs(2);

/// The longest `Retry-After`.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(30);

/// The shortest `Retry-After`, also used while the service time of the model is not known.
pub const RETRY_AFTER_MIN: Duration = Duration::from_millis(10);

/// How far a request of high priority overtakes if there is no objective: far longer than a batch
/// takes, but other requests are not delayed noticeably.
pub const HEAD_START: Nanos = Nanos(100_000_000);

/// Without replies, the estimate of the reply latency is halved after this time: about the time in
/// which a crowd of requests is answered or rejected.
pub const REPLY_LATENCY_HALF_LIFE: Duration = Duration::from_millis(25);

/// The cost of a request with an unread body is estimated as the minimum over this many recent
/// requests of the model whose bodies were read ...
pub const UNREAD_WINDOW: u64 = 32;

/// ... but one in this many is always read, to detect cheaper requests.
pub const UNREAD_SAMPLE: u64 = 8;

/// A request that has waited for the front for less than this gets the whole objective: this is the
/// common case, and requests with equal objectives are then queued in arrival order.
pub const WAITED_MIN: Duration = Duration::from_micros(500);

/// This many requests in flight are a crowd: fewer are serialized within a millisecond or two.
pub const CROWDED_REQUESTS_MIN: usize = 16;

/// Initial fraction of a request's time that the front may take: as much as waiting for a worker
/// and computing, if all three are equal.
pub const FRONT_TIME_LIMIT_START: f64 = 1.0 / 3.0;

/// Lower bound of the learned fraction, enough for a burst of [`CROWDED_REQUESTS_MIN`] ...
pub const FRONT_TIME_LIMIT_MIN: f64 = 0.0625;

/// ... and its upper bound: a request needs some time of a worker.
pub const FRONT_TIME_LIMIT_MAX: f64 = 0.9375;

/// Adaptation period of the fraction: several times the objectives of most models, so that requests
/// admitted since the last change have completed.
pub const FRONT_TIME_LIMIT_PERIOD: Duration = Duration::from_millis(50);

/// The front takes too much time if it makes more than this fraction of the replies late: the
/// fraction that most objectives allow.
pub const LATE_SHARE_MAX: f64 = 0.01;

/// Serializing a reply counts as slow from this time on: reading a request takes about half as
/// long.
pub const SLOW_SERIALIZATION_MIN: Duration = Duration::from_micros(20);

/// Requests are coalesced while computing all of them takes less than this: about the cost of
/// submitting a batch, waking its worker and collecting its results. Above it, each worker should
/// start with its own batch.
pub const COALESCED_COMPUTE_MAX: Duration = Duration::from_micros(20);

/// Longest wait of coalesced requests: they are flushed by the next request or the next thread that
/// enters the engine, or by the supervisor at the latest ([`HANG_CHECK_PERIOD`]) ...
pub const COALESCE_DELAY_MAX: Duration = Duration::from_micros(100);

/// ... and the maximum number of them per event loop.
pub const COALESCED_REQUESTS_MAX: usize = 256;

/// Reading a body of this size takes about as long as coalesced requests may wait: they are flushed
/// first.
pub const LONG_READ_BYTES: usize = 4 << 10;

/// A thread that enters the engine polls the rings of all workers if the last poll was this long
/// ago. The completion task is notified earlier unless many connections are readable at once;
/// requests that arrive in the meantime form one batch.
pub const COMPLETION_POLL_PERIOD: Duration = Duration::from_millis(1);

/// Maximum age of shares, pace of errors and state of the workers when a request is admitted: a
/// hundredth of [`FRONT_WINDOW`] changes none of them noticeably.
pub const ADMISSION_PERIOD: Duration = Duration::from_millis(10);

/// Averaging window of the front's work (its weight decays to 1/e): the requests of one second
/// suffice to detect a flood.
pub const FRONT_WINDOW: Nanos = Nanos(1_000_000_000);

/// Reading or writing this many bytes of rows or results, about 20 us as text, takes as long as the
/// rest of a small request.
pub const BYTES_PER_REQUEST: usize = 2 << 10;

/// Fraction of the front's time that rejections and other errors may take before they are held ...
pub const ERROR_SHARE_MAX: f64 = 0.25;

/// ... measured over this time, in which the requests that wait in a proxy are read ...
pub const ERROR_RATE_WINDOW: Duration = Duration::from_millis(200);

/// ... and how long they are held before their rate is measured again. While it is measured,
/// requests of a thousand clients that resend at once are late: this takes at most 4 % of the time.
pub const ERRORS_HELD_TIME: Duration = Duration::from_secs(5);

/// Fraction of the front's time that errors may take while they are held: about a thousand
/// rejections per second and event loop. If a part of a thousand clients got their rejections
/// earlier than [`HOLD_MAX`], requests of the others would be late.
pub const ERROR_SHARE: f64 = 0.01;

/// Errors that may be sent at once before they are paced: those of a burst.
pub const ERRORS_AT_ONCE: u64 = 64;

/// Longest hold of an error, half of the shortest `Retry-After` of HTTP. A thousand clients that
/// resend immediately then cause two thousand rejections per second. With longer holds, clients
/// that do not wait for replies would keep more connections open.
pub const HOLD_MAX: Duration = Duration::from_millis(500);
