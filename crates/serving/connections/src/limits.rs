//! Limits of connections and of their replies, each with its reason.

use std::time::Duration;

/// Open connections of one port, HTTP or gRPC. A new connection needs 3 KiB, one that is serving a
/// request 20 KiB: 160 MiB if all are. There is no limit per peer, because behind a Service, a
/// proxy or NAT all clients have the same address.
pub const CONNECTIONS_MAX: usize = 8_192;

/// Idle connections are evicted when fewer than this many connections are left below
/// [`CONNECTIONS_MAX`] ...
pub const CONNECTIONS_SPARE: usize = 512;

/// ... this many at once, because selecting them scans all connections ...
pub const EVICTIONS_AT_ONCE: usize = 128;

/// ... first those that never sent a complete request, then those that have been idle longest, and
/// for at least this time, so that a client between two requests is not evicted.
pub const EVICTION_IDLE_MIN: Duration = Duration::from_secs(1);

/// Period of the sweep that finds connections past their deadline, and unit of their clock.
pub const SWEEP_PERIOD: Duration = Duration::from_millis(250);

/// Pause after `accept` failed (no file descriptors left), in which other connections can close.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// Time limit for the first bytes of a new connection, including the HTTP/2 preface. The same as
/// for idle connections, because proxies open connections in advance, and these cost the least.
pub const FIRST_BYTES_TIME_MAX: Duration = IDLE_TIME_MAX;

/// Period of rereading an incomplete HTTP/2 preface.
pub const PREFACE_POLL_PERIOD: Duration = Duration::from_millis(20);

/// Time limit for receiving a request head, from its first byte. Heads fit into one packet; a
/// slower client is an attack.
pub const HEAD_TIME_MAX: Duration = Duration::from_secs(10);

/// Size limit of a request head, for HTTP/2 after HPACK decompression, which stops decompression
/// bombs. Clients send less than 1 KiB; tracing baggage can take 8 KiB.
pub const HEAD_BYTES_MAX: u32 = 32 << 10;

/// Idle timeout of HTTP/1.1 connections. Longer than the 60 s of common proxies, so that a proxy
/// does not send a request on a connection that the server is closing.
pub const IDLE_TIME_MAX: Duration = Duration::from_secs(75);

/// Idle timeout of HTTP/2 connections. GOAWAY is sent before the close, so that no request is lost;
/// gRPC channels are kept open for much longer than they are used.
pub const IDLE_TIME_MAX_H2: Duration = Duration::from_secs(600);

/// Period of HTTP/2 keepalive pings ...
pub const KEEPALIVE_PERIOD: Duration = Duration::from_secs(60);

/// ... and time limit for their acknowledgment.
pub const KEEPALIVE_WAIT: Duration = Duration::from_secs(20);

/// How long an HTTP/1.1 connection stays open for one more request at shutdown. A request in flight
/// is served, and its reply closes the connection.
pub const SHUTDOWN_GRACE: Duration = Duration::from_millis(500);

/// Time limit for closing a connection that is serving no request, from the start of the close.
pub const CLOSE_TIME_MAX: Duration = Duration::from_secs(2);

/// Read-ahead buffer of the parser of a connection, and write buffer: further pipelined requests
/// stay in the socket buffer, so that TCP flow control blocks the sender.
pub const READ_AHEAD_BYTES_MAX: usize = 64 << 10;

/// Buffer for coalescing HTTP/2 frames into one write. A data frame of the largest size that
/// clients must accept exceeds it by its frame header and is not copied.
pub const COALESCED_BYTES_MAX: usize = 16 << 10;

/// Concurrent gRPC calls per connection; clients queue further calls.
pub const STREAMS_MAX: u32 = 1_024;

/// Flow-control window of an HTTP/2 stream and of its connection, bytes. A request of 4 MiB arrives
/// without a stall, and the server buffers at most this much per connection.
pub const STREAM_WINDOW_BYTES: u32 = 4 << 20;

/// Calls of one HTTP/2 connection that may be reset before the server accepts them. Clients cancel
/// calls one at a time, a rapid-reset attack (CVE-2023-44487) hundreds in one packet.
pub const PENDING_RESETS_MAX: usize = 64;

/// Calls of one HTTP/2 connection that a client may cancel before the ratio of canceled calls is
/// limited. Clients with hedging or deadlines cancel some calls.
pub const RESETS_FREE: u32 = 256;

// ---- replies ----

/// Size limit of a reply; a request with a larger reply is rejected before it is computed.
/// Interactions of 1,000 rows of 128 features are 67 MB in binary form, 200 MB as text.
pub const REPLY_BYTES_MAX: usize = 256 << 20;

/// Limit of unsent bytes of large replies over all connections of one port. Further large replies
/// are rejected, so that slow readers cannot exhaust the memory of the pod.
pub const REPLIES_BYTES_MAX: usize = 2 * REPLY_BYTES_MAX;

/// Minimum size of a large reply.
pub const TRACKED_REPLY_BYTES_MIN: usize = 32 << 10;

/// Time limit for sending a reply ...
pub const REPLY_TIME_MAX: Duration = Duration::from_secs(10);

/// ... plus one second per this number of bytes.
pub const REPLY_RATE_MIN: u64 = 1 << 20;

/// Connections that an event loop accepts before open connections get their turn: reading the first
/// request of a new connection takes up to 0.3 ms where its memory was not touched before.
pub const ACCEPTS_AT_ONCE: u32 = 16;
