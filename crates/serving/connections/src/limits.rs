//! Limits of connections and of their replies, each with its reason.

use std::time::Duration;

/// Open connections of one port, HTTP or gRPC. A new connection needs 3 KiB, one that is being
/// served 20 KiB: 160 MiB if all are. There is no limit for each peer: behind a Service, a proxy or
/// address translation all clients have one address.
pub const CONNECTIONS_MAX: usize = 8_192;

/// When fewer than this many connections below [`CONNECTIONS_MAX`] are left, idle ones are evicted
/// ...
pub const CONNECTIONS_SPARE: usize = 512;

/// ... this many at once, because selecting them examines all ...
pub const EVICTIONS_AT_ONCE: usize = 128;

/// ... first those that never sent a complete request, then those that have been idle longest, and
/// for at least this long: a client between two requests is not evicted.
pub const EVICTION_IDLE_MIN: Duration = Duration::from_secs(1);

/// Period of the sweep that finds connections with a passed deadline, and unit of their clock.
pub const SWEEP_PERIOD: Duration = Duration::from_millis(250);

/// Pause after `accept` failed (no file descriptor left): time for other connections to close.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// Longest time to the first bytes of a new connection, the preface of HTTP/2 included. As long as
/// for an idle one: proxies open connections in advance, and these cost the least.
pub const FIRST_BYTES_TIME_MAX: Duration = IDLE_TIME_MAX;

/// Period in which an incomplete preface of HTTP/2 is examined again.
pub const PREFACE_POLL_PERIOD: Duration = Duration::from_millis(20);

/// Longest time of the head of a request, from its first byte. Heads fit one packet; a slower
/// client is an attack.
pub const HEAD_TIME_MAX: Duration = Duration::from_secs(10);

/// Bytes of one request head, over HTTP/2 after decompression, which stops decompression bombs.
/// Clients send less than 1 KiB; tracing baggage can take 8 KiB.
pub const HEAD_BYTES_MAX: u32 = 32 << 10;

/// Longest idle time of an HTTP/1.1 connection. Longer than the 60 s of common proxies, so that a
/// proxy never sends a request on a connection that the server is closing.
pub const IDLE_TIME_MAX: Duration = Duration::from_secs(75);

/// Longest idle time of an HTTP/2 connection. GOAWAY precedes the close, so that no request is
/// lost; gRPC channels are kept open for much longer than they are used.
pub const IDLE_TIME_MAX_H2: Duration = Duration::from_secs(600);

/// Period of HTTP/2 keepalive pings ...
pub const KEEPALIVE_PERIOD: Duration = Duration::from_secs(60);

/// ... and longest time of their answers.
pub const KEEPALIVE_WAIT: Duration = Duration::from_secs(20);

/// How long an HTTP/1.1 connection stays open for one more request at shutdown: a request in flight
/// is answered, and its reply closes the connection.
pub const SHUTDOWN_GRACE: Duration = Duration::from_millis(500);

/// Longest time from the request to close a connection to its end, if no request is being served.
pub const CLOSE_TIME_MAX: Duration = Duration::from_secs(2);

/// Bytes that are read ahead of the parser of a connection, and bytes of copies to be written:
/// further pipelined requests wait in the kernel, which blocks the sender.
pub const READ_AHEAD_BYTES_MAX: usize = 64 << 10;

/// Bytes of HTTP/2 frames that are stored to be sent in one write. A data frame of the largest size
/// that clients must accept exceeds it by its head, and is not copied.
pub const COALESCED_BYTES_MAX: usize = 16 << 10;

/// Concurrent gRPC calls of one connection; more wait in the client's flow control.
pub const STREAMS_MAX: u32 = 1_024;

/// Flow-control window of an HTTP/2 stream and of its connection, bytes: a request of 4 MiB arrives
/// without a pause, and no connection makes the server buffer more.
pub const STREAM_WINDOW_BYTES: u32 = 4 << 20;

/// Calls of one HTTP/2 connection that are reset before the server accepts them: a client cancels
/// calls one by one, a flood (CVE-2023-44487) hundreds in one packet.
pub const PENDING_RESETS_MAX: usize = 64;

/// Running calls of one HTTP/2 connection that its client may cancel before their share of all
/// calls is limited: clients with hedging or deadlines cancel some.
pub const RESETS_FREE: u32 = 256;

// ---- replies ----

/// Bytes of one reply; a larger request is refused before it is computed. Interactions of 1,000
/// rows of 128 features are 67 MB as bytes, 200 MB as text.
pub const REPLY_BYTES_MAX: usize = 256 << 20;

/// Unsent bytes of large replies, over all connections of one port; further large replies are
/// refused, so that slow readers cannot exhaust the memory of the pod.
pub const REPLIES_BYTES_MAX: usize = 2 * REPLY_BYTES_MAX;

/// Replies from this size on count as large.
pub const TRACKED_REPLY_BYTES_MIN: usize = 32 << 10;

/// Longest time of sending a reply ...
pub const REPLY_TIME_MAX: Duration = Duration::from_secs(10);

/// ... plus a second for each of these bytes.
pub const REPLY_RATE_MIN: u64 = 1 << 20;
