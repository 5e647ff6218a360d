//! Bounds of this program, each with its reason.

use std::time::Duration;

/// Size of a read from the pipe: the default capacity of a pipe.
pub(crate) const READ_BYTES: usize = 64 << 10;

/// Interval at which a missing pipe is looked up, and an open pipe is compared with the one at the
/// path.
pub(crate) const PIPE_CHECK_PERIOD: Duration = Duration::from_millis(100);

/// Age from which a snapshot is stale: the agent writes one every 10 s, so six are missing.
pub(crate) const SNAPSHOT_AGE_MAX: Duration = Duration::from_secs(60);

/// Shortest time between two messages of a stream: in a burst of changes a pod receives 20 per
/// second, and the last one within 50 ms.
pub(crate) const CHANGE_PAUSE: Duration = Duration::from_millis(50);

/// Open streams per pod. A server has one; a few of previous connections may remain until the
/// keep-alive detects them.
pub(crate) const STREAMS_PER_POD_MAX: usize = 8;

/// Open streams in total: twice the number of pods of the largest nodes. Each costs about 10 KiB.
pub(crate) const STREAMS_MAX: usize = 1024;

/// Concurrent streams on one connection.
pub(crate) const STREAMS_PER_CONNECTION_MAX: u32 = 8;

/// Open connections per address; more than one for the same reason as streams.
pub(crate) const CONNECTIONS_PER_ADDRESS_MAX: usize = 16;

/// Open connections in total. Each costs about 20 KiB: 40 MiB for the maximum.
pub(crate) const CONNECTIONS_MAX: usize = 2048;

/// Pause after a failed accept (no file descriptor left), in which other connections may be closed.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// Interval of the keep-alive pings on an idle connection.
pub(crate) const KEEPALIVE_PERIOD: Duration = Duration::from_secs(20);

/// Timeout of a keep-alive ping.
pub(crate) const KEEPALIVE_WAIT: Duration = Duration::from_secs(10);

/// Size limit of the headers of a request, which has none of its own.
pub(crate) const HEADER_BYTES_MAX: u32 = 8 << 10;

/// Size limit of a request message: it is empty, but a later version may have fields.
pub(crate) const REQUEST_BYTES_MAX: usize = 4 << 10;

/// Time for open streams and responses to end after SIGTERM.
pub(crate) const DRAIN_TIME_MAX: Duration = Duration::from_secs(5);

/// Shortest time between two forwarded reports of one pod; a server sends at most one per 100 ms.
pub(crate) const REPORT_PAUSE: Duration = Duration::from_millis(50);

/// Size of the queue of reports for the pipe: one for each pod of a large node. More are dropped,
/// because the next report contains all counts again.
pub(crate) const REPORTS_WAITING_MAX: usize = 128;

/// Longest wait of a report for space in the pipe before it is dropped: the agent reads at least
/// once a second.
pub(crate) const REPORT_WRITE_MAX: Duration = Duration::from_secs(2);
