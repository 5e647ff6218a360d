//! Bounds of this crate, each with its reason.

use std::time::Duration;

/// Sustained requests per second of a program; controllers built on client-go have 20 to 50.
pub(crate) const REQUESTS_PER_SECOND: u32 = 50;

/// Initial requests per second if more are permitted; a small API server can handle as many.
pub(crate) const RATE_START: u32 = 200;

/// The rate increases while the average latency of writes is at most this: a tenth of the second
/// that the Kubernetes SLO promises for 99 % of writes, so that other clients are hardly affected.
pub(crate) const WRITE_LATENCY_LOW: Duration = Duration::from_millis(100);

/// The rate decreases to [`RATE_START`] while the average latency of writes is above this.
pub(crate) const WRITE_LATENCY_HIGH: Duration = Duration::from_millis(250);

/// Responses in the moving average of the latency, so that a few slow webhooks do not matter.
pub(crate) const WRITE_LATENCIES_AVERAGED: u32 = 32;

/// Each second the rate changes by this fraction: from 200 to 1,000 takes 17 s.
pub(crate) const RATE_STEP_SHARE: u32 = 10;

/// Size of a burst after idle time, as seconds of the rate: a startup lists a dozen kinds and
/// applies some objects.
pub(crate) const REQUESTS_BURST_SECONDS: u32 = 2;

/// Longest delay of a request by the rate limit. The number of workers bounds their requests, so a
/// longer delay means that requests are unbounded.
pub(crate) const BUDGET_WAIT_MAX: Duration = Duration::from_secs(60);

/// Longest Retry-After that is honored: an API server sends seconds, a broken proxy may send any
/// value.
pub(crate) const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

/// Pause after a 429 response without Retry-After.
pub(crate) const RETRY_AFTER_DEFAULT: Duration = Duration::from_secs(1);

/// Connect timeout; a connect takes one or two round trips. Shorter than the safety margin of a
/// lease (a third of 15 s), so that a permitted write cannot wait here until another process leads.
pub(crate) const CONNECT_TIME_MAX: Duration = Duration::from_secs(4);

/// Timeout of a request including its response. The API server itself times out after 60 s, but
/// none of these requests takes seconds.
pub(crate) const REQUEST_TIME_MAX: Duration = Duration::from_secs(30);

/// Timeout of a watch, after which it is renewed. 5 s later it is considered dead, so a lost
/// connection is detected by then.
pub(crate) const WATCH_SECONDS: u32 = 120;

/// Read timeout of a connection; longer than a watch may be idle.
pub(crate) const READ_TIME_MAX: Duration = Duration::from_secs(130);

/// Page size of a list. With the largest objects that etcd stores (1.5 MiB) a page has 150 MiB;
/// with typical objects 500 KiB.
pub(crate) const PAGE_OBJECTS: u32 = 100;

/// Initial backoff after a watch failed.
pub(crate) const WATCH_PAUSE_MIN: Duration = Duration::from_millis(200);

/// Maximum backoff after a watch failed, so that a program reconnects within seconds when the API
/// server is available again.
pub(crate) const WATCH_PAUSE_MAX: Duration = Duration::from_secs(10);

/// Initial backoff of a key after a transient failure.
pub(crate) const RETRY_PAUSE_MIN: Duration = Duration::from_millis(100);

/// Maximum backoff of a key after a transient failure.
pub(crate) const RETRY_PAUSE_MAX: Duration = Duration::from_secs(60);

/// Initial backoff after a response that only an administrator can change (permissions, quotas,
/// policies).
pub(crate) const FORBIDDEN_PAUSE_MIN: Duration = Duration::from_secs(1);

/// Maximum backoff after such a response: no watch reports the change, and a thousand rejected
/// objects cause 17 requests a second.
pub(crate) const FORBIDDEN_PAUSE_MAX: Duration = Duration::from_secs(60);

/// Maximum backoff while the API server does not know a kind yet; less than a second with jitter.
pub(crate) const KIND_UNKNOWN_PAUSE_MAX: Duration = Duration::from_millis(600);

/// Retries with a backoff of at most [`KIND_UNKNOWN_PAUSE_MAX`]: about a minute.
pub(crate) const KIND_UNKNOWN_TRIES: u32 = 90;

/// Duration of a lease: the default of client-go for controllers.
pub(crate) const LEASE_TIME: Duration = Duration::from_secs(15);

/// Renewals per duration of a lease, of which two may fail.
pub(crate) const LEASE_RENEWALS: u32 = 7;

/// Pause between two reads of a lease that another process holds; a takeover is delayed by at most
/// two of them.
pub(crate) const LEASE_POLL: Duration = Duration::from_millis(800);

/// Size of the queue of events to be written; more are dropped and counted.
pub(crate) const EVENTS_QUEUE_MAX: usize = 256;

/// Timeout of the flush of events during shutdown: a full queue at 50 requests a second. Together
/// with the drain time it is less than the 30 s after which Kubernetes kills the process.
pub(crate) const EVENTS_FLUSH_TIME_MAX: Duration = Duration::from_secs(6);

/// Number of event series in memory; the oldest is evicted first.
pub(crate) const EVENT_SERIES_MAX: usize = 2048;

/// A series without events for this long ends, and the next event starts a new one. As in
/// client-go.
pub(crate) const EVENT_SERIES_QUIET: Duration = Duration::from_secs(360);

/// Initial pause between two writes of a series, doubled after each write.
pub(crate) const EVENT_WRITE_PAUSE_MIN: Duration = Duration::from_secs(2);

/// Maximum pause between two writes of a series: a failure that lasts a day updates its event 150
/// times.
pub(crate) const EVENT_WRITE_PAUSE_MAX: Duration = Duration::from_secs(600);

/// Different events of one object within [`EVENT_SERIES_QUIET`]; more are dropped and counted.
/// client-go also uses 25.
pub(crate) const EVENTS_OF_AN_OBJECT_MAX: usize = 25;

/// Size limit of an event's note: the API server rejects more than 1 KiB.
pub(crate) const NOTE_BYTES_MAX: usize = 1000;

/// Size limit of an event's name before its number: the API server accepts 253 bytes in total.
pub(crate) const EVENT_NAME_BYTES_MAX: usize = 220;

/// Timeout of a program that runs in a container: `albacore-agent dump` lists, reads and plans for
/// some seconds.
#[cfg(feature = "exec")]
pub(crate) const EXEC_TIME_MAX: Duration = Duration::from_secs(60);

/// Output limit of such a program: 20,000 threads of a node are 4 MiB.
#[cfg(feature = "exec")]
pub(crate) const EXEC_BYTES_MAX: u64 = 16 << 20;

/// Input buffer of such a program: some messages of the connection.
#[cfg(feature = "exec")]
pub(crate) const EXEC_INPUT_BUFFER: usize = 64 << 10;

/// Limit of an output line of such a program: a window of an experiment has some KiB.
#[cfg(feature = "exec")]
pub(crate) const EXEC_LINE_BYTES_MAX: u64 = 1 << 20;

/// Time to finish work in progress during shutdown; Kubernetes kills the process after 30 s.
pub(crate) const DRAIN_TIME_MAX: Duration = Duration::from_secs(15);
