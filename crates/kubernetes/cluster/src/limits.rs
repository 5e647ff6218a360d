//! Bounds of this crate, each with its reason.

use std::time::Duration;

/// Sustained requests per second of a program: client-go's controllers have 20 to 50.
pub(crate) const REQUESTS_PER_SECOND: u32 = 50;

/// Requests per second to begin with where more are permitted: a small API server answers as many.
pub(crate) const RATE_START: u32 = 200;

/// The rate rises while writes are answered within this, on average: a tenth of the second that
/// Kubernetes promises its users for 99 % of writes, so that others notice little ...
pub(crate) const ANSWER_QUICK: Duration = Duration::from_millis(100);

/// ... and falls to [`RATE_START`] while they take longer than this.
pub(crate) const ANSWER_SLOW: Duration = Duration::from_millis(250);

/// Answers in the moving average of their times: a slow webhook or two do not matter.
pub(crate) const ANSWERS_AVERAGED: u32 = 32;

/// A step of the rate, once a second, is this part of it: from 200 to 1,000 in 17 s.
pub(crate) const RATE_STEP_SHARE: u32 = 10;

/// Seconds' worth of requests that may be sent at once after a quiet time: a start lists a dozen
/// kinds and applies some objects.
pub(crate) const REQUESTS_BURST_SECONDS: u32 = 2;

/// The longest time for which the rate limit delays a request: workers bound the work behind it, so
/// a longer delay means unbounded requests.
pub(crate) const BUDGET_WAIT_MAX: Duration = Duration::from_secs(60);

/// The longest Retry-After that is honored: an API server asks for seconds, a broken proxy for
/// anything.
pub(crate) const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

/// Pause after an answer 429 without Retry-After.
pub(crate) const RETRY_AFTER_DEFAULT: Duration = Duration::from_secs(1);

/// Connecting takes a round trip or two. Shorter than the margin of a lease (a third of 15 s), so
/// that a permitted write cannot linger here until another process leads.
pub(crate) const CONNECT_TIME_MAX: Duration = Duration::from_secs(4);

/// From sending a request to its whole answer; the API server itself gives up after 60 s, but none
/// of our requests takes seconds.
pub(crate) const REQUEST_TIME_MAX: Duration = Duration::from_secs(30);

/// How long a watch may last before it is renewed; 5 s later it is considered dead, so a lost
/// connection is noticed by then.
pub(crate) const WATCH_SECONDS: u32 = 120;

/// Silence after which a connection is closed; longer than a watch may be silent.
pub(crate) const READ_TIME_MAX: Duration = Duration::from_secs(130);

/// Objects in one page of a list. With the largest objects that etcd stores (1.5 MiB) a page is 150
/// MiB; with usual ones 500 KiB.
pub(crate) const PAGE_OBJECTS: u32 = 100;

/// First pause after a watch failed ...
pub(crate) const WATCH_PAUSE_MIN: Duration = Duration::from_millis(200);

/// ... and the longest, so that a program sees within seconds that the API server is back.
pub(crate) const WATCH_PAUSE_MAX: Duration = Duration::from_secs(10);

/// First pause before a key is retried after a transient failure ...
pub(crate) const RETRY_PAUSE_MIN: Duration = Duration::from_millis(100);

/// ... and the longest.
pub(crate) const RETRY_PAUSE_MAX: Duration = Duration::from_secs(60);

/// First pause after an answer that only an administrator can change (rights, quotas, policies) ...
pub(crate) const FORBIDDEN_PAUSE_MIN: Duration = Duration::from_secs(1);

/// ... and the longest: nothing announces the change, and a thousand refused objects are 17
/// requests a second.
pub(crate) const FORBIDDEN_PAUSE_MAX: Duration = Duration::from_secs(60);

/// The longest pause while the API server does not know a kind yet, with jitter below a second ...
pub(crate) const KIND_UNKNOWN_PAUSE_MAX: Duration = Duration::from_millis(600);

/// ... for this many tries, about a minute.
pub(crate) const KIND_UNKNOWN_TRIES: u32 = 90;

/// Duration of a lease: client-go's default for controllers.
pub(crate) const LEASE_TIME: Duration = Duration::from_secs(15);

/// Renewals per duration of a lease: two may be lost.
pub(crate) const LEASE_RENEWALS: u32 = 7;

/// Pause between two reads of a lease that another process holds; a takeover is late by at most two
/// of them.
pub(crate) const LEASE_POLL: Duration = Duration::from_millis(800);

/// Events that wait to be written; more are dropped and counted.
pub(crate) const EVENTS_QUEUE_MAX: usize = 256;

/// How long a program that stops waits for its events to be written: a full queue at 50 requests a
/// second. With the time for work in progress it is less than the 30 s after which Kubernetes
/// kills.
pub(crate) const EVENTS_FLUSH_TIME_MAX: Duration = Duration::from_secs(6);

/// Series of events that are remembered; the oldest is dropped first.
pub(crate) const EVENT_SERIES_MAX: usize = 2048;

/// A series that was quiet for this long ends: the next event begins a new one. As in client-go.
pub(crate) const EVENT_SERIES_QUIET: Duration = Duration::from_secs(360);

/// First pause between two writes of a series, doubled each time ...
pub(crate) const EVENT_WRITE_PAUSE_MIN: Duration = Duration::from_secs(2);

/// ... up to this: a failure that lasts a day writes its event 150 times.
pub(crate) const EVENT_WRITE_PAUSE_MAX: Duration = Duration::from_secs(600);

/// Different events of one object within [`EVENT_SERIES_QUIET`]; more are dropped and counted.
/// client-go's is 25.
pub(crate) const EVENTS_OF_AN_OBJECT_MAX: usize = 25;

/// Bytes of an event's note: the API server refuses more than 1 KiB.
pub(crate) const NOTE_BYTES_MAX: usize = 1000;

/// Bytes of an event's name before its number: the API server takes 253 in all.
pub(crate) const EVENT_NAME_BYTES_MAX: usize = 220;

/// How long a program that runs in a container may take: `albacore-agent dump` lists, reads and
/// plans for some seconds.
#[cfg(feature = "exec")]
pub(crate) const EXEC_TIME_MAX: Duration = Duration::from_secs(60);

/// Bytes that such a program may print: 20,000 threads of a node are 4 MiB.
#[cfg(feature = "exec")]
pub(crate) const EXEC_BYTES_MAX: u64 = 16 << 20;

/// Bytes of input that wait to be sent to such a program: some messages of the connection.
#[cfg(feature = "exec")]
pub(crate) const EXEC_INPUT_BUFFER: usize = 64 << 10;

/// Bytes of a line that such a program prints: a window of an experiment has some KiB.
#[cfg(feature = "exec")]
pub(crate) const EXEC_LINE_BYTES_MAX: u64 = 1 << 20;

/// How long a program that stops waits for work in progress; Kubernetes kills after 30 s.
pub(crate) const DRAIN_TIME_MAX: Duration = Duration::from_secs(15);
