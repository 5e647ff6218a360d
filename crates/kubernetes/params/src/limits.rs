//! Bounds of this program, each with its reason.

use std::time::Duration;

/// Bytes read from the pipe at once: the default capacity of a pipe.
pub(crate) const READ_BYTES: usize = 64 << 10;

/// How often a missing pipe is looked for, and whether the pipe at the path is still the open one.
pub(crate) const LOOK_PERIOD: Duration = Duration::from_millis(100);

/// A snapshot older than this is stale: the agent writes one every 10 s, so six are missing.
pub(crate) const FRESH_FOR: Duration = Duration::from_secs(60);

/// Shortest time between two messages of a stream: of a burst of changes a pod gets 20 in a second,
/// and the last within 50 ms.
pub(crate) const CHANGE_PAUSE: Duration = Duration::from_millis(50);

/// Open streams of one pod. A server has one; a few more may be left of earlier incarnations, until
/// the keep-alive detects them.
pub(crate) const STREAMS_PER_POD_MAX: usize = 8;

/// Open streams in all: twice the pods of the largest nodes. Each costs about 10 KiB.
pub(crate) const STREAMS_MAX: usize = 1024;

/// Concurrent streams on one connection.
pub(crate) const STREAMS_PER_CONNECTION_MAX: u32 = 8;

/// Open connections of one address, for the same reason as streams.
pub(crate) const CONNECTIONS_PER_ADDRESS_MAX: usize = 16;

/// Open connections in all. Each costs about 20 KiB: 40 MiB when all are open.
pub(crate) const CONNECTIONS_MAX: usize = 2048;

/// Pause after the kernel refused a connection (no file descriptor left): time for others to close.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// How often a silent connection is probed ...
pub(crate) const KEEPALIVE_PERIOD: Duration = Duration::from_secs(20);

/// ... and how long the answer may take.
pub(crate) const KEEPALIVE_WAIT: Duration = Duration::from_secs(10);

/// Bytes of the headers of a request, which has none of its own.
pub(crate) const HEADER_BYTES_MAX: u32 = 8 << 10;

/// Bytes of a request's message: it is empty, but a later version may have fields.
pub(crate) const REQUEST_BYTES_MAX: usize = 4 << 10;

/// How long open streams and answers may take to end after SIGTERM.
pub(crate) const DRAIN_TIME_MAX: Duration = Duration::from_secs(5);

/// Shortest time between two forwarded reports of one pod: a server pauses at least 100 ms.
pub(crate) const REPORT_PAUSE: Duration = Duration::from_millis(50);

/// Reports that wait for the pipe: one of each pod of a large node. More are dropped; the next one
/// contains all of it again.
pub(crate) const REPORTS_WAITING_MAX: usize = 128;

/// How long a report waits for room in the pipe before it is dropped: the agent reads at least once
/// a second.
pub(crate) const REPORT_WRITE_MAX: Duration = Duration::from_secs(2);
