//! Every bound of a connection and of its replies, with its reason.

use std::time::Duration;

/// Open connections of one port, HTTP or gRPC. One that nobody has written to costs 3 KiB, one that
/// is being served 20 KiB: 160 MiB when all are. There is no bound for one peer: behind a Service,
/// a proxy or a node's address translation all clients have one address.
pub const CONNECTIONS_MAX: usize = 8_192;

/// From so many connections below [`CONNECTIONS_MAX`] on, those that are not served make room ...
pub const CONNECTIONS_SPARE: usize = 512;

/// ... so many at once, because finding them takes a look at all ...
pub const CROWDED_OUT_AT_ONCE: usize = 128;

/// ... first those that never sent a whole request, then those that have been idle longest, but not
/// before they were idle for this long: a client between two requests is not in anybody's way.
pub const CROWDED_IDLE_MIN: Duration = Duration::from_secs(1);

/// How often connections are looked at for those whose time is over, and the unit of their clock.
pub const SWEEP_PERIOD: Duration = Duration::from_millis(250);

/// Pause after the system refused a connection (no file descriptor left): time for others to close.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// How long a new connection may say nothing, the opening words of HTTP/2 included. As long as an
/// idle one: proxies open connections in advance, and those cost the least.
pub const FIRST_BYTES_TIME_MAX: Duration = IDLE_TIME_MAX;

/// How often unfinished opening words of HTTP/2 are looked at again.
pub const OPENING_LOOK_PERIOD: Duration = Duration::from_millis(20);

/// How long the head of a request may take, from its first byte. Heads fit one packet; whoever
/// takes
/// longer does it on purpose.
pub const HEAD_TIME_MAX: Duration = Duration::from_secs(10);

/// Bytes of one request head, over HTTP/2 after its decompression, which is what ends a bomb of
/// compressed headers. Clients send less than 1 KiB; tracing baggage can take 8 KiB.
pub const HEAD_BYTES_MAX: u32 = 32 << 10;

/// Longest idle time of an HTTP/1.1 connection. Longer than the 60 s after which common proxies
/// close
/// an idle connection themselves, so that they never meet a connection closed by us.
pub const IDLE_TIME_MAX: Duration = Duration::from_secs(75);

/// Longest idle time of an HTTP/2 connection. Its client is told before (GOAWAY), so that closing
/// costs no request; channels of gRPC are kept for much longer than they are used.
pub const IDLE_TIME_MAX_H2: Duration = Duration::from_secs(600);

/// How often the other end of an HTTP/2 connection is asked whether it is there ...
pub const KEEPALIVE_PERIOD: Duration = Duration::from_secs(60);

/// ... and how long its answer may take.
pub const KEEPALIVE_WAIT: Duration = Duration::from_secs(20);

/// How long an HTTP/1.1 connection is kept for one more request when the server stops: whoever sent
/// one
/// before it heard of that gets its answer, and is told there that it was the last.
pub const PARTING_TIME: Duration = Duration::from_millis(500);

/// How long a connection that was told to end may take when nothing is being served on it.
pub const GOODBYE_TIME_MAX: Duration = Duration::from_secs(2);

/// Bytes that are read ahead of a connection's parser, and those that wait to be written in copies:
/// pipelined requests beyond wait in the kernel, which bounds the sender.
pub const READ_AHEAD_BYTES_MAX: usize = 64 << 10;

/// gRPC calls at work on one connection; more wait in the client's flow control.
pub const STREAMS_MAX: u32 = 1_024;

/// Flow-control window of an HTTP/2 stream and of its connection, bytes: a request of 4 MiB arrives
/// in one go, and no connection makes the server keep more that it has not looked at.
pub const STREAM_WINDOW_BYTES: u32 = 4 << 20;

/// Calls of one HTTP/2 connection that were reset before the server looked at them: a client that
/// gives up calls does it one by one, a flood (CVE-2023-44487) by the hundred in one packet.
pub const UNSEEN_RESETS_MAX: usize = 64;

/// Calls of one HTTP/2 connection that its client may give up while they run, before it has to
/// answer for their share: hedging clients and their deadlines give up a few.
pub const RESETS_FREE: u32 = 256;

// ---- replies ----

/// Bytes of one reply; a request that asks for more is refused before it is computed. Interactions
/// of
/// 1,000 rows of 128 features are 67 MB as bytes, 200 MB as text.
pub const REPLY_BYTES_MAX: usize = 256 << 20;

/// Bytes of replies that wait for their readers, over all connections of one port; beyond it large
/// replies are refused, so that slow readers cannot fill the memory of the pod.
pub const REPLIES_BYTES_MAX: usize = 2 * REPLY_BYTES_MAX;

/// Replies from this size on count: smaller ones are what a queue of requests is made of.
pub const COUNTED_REPLY_BYTES_MIN: usize = 32 << 10;

/// How long a reader may take for a reply ...
pub const REPLY_TIME_MAX: Duration = Duration::from_secs(10);

/// ... and bytes per second after that.
pub const REPLY_RATE_MIN: u64 = 1 << 20;
