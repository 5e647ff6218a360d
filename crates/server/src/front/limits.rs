//! Every bound of the server but those of the engine (crate `engine`), with its reason: of
//! connections, of requests, of replies, then of what runs beside them.
//!
//! A client that runs into a bound is counted in `albacore_bounds_reached_total` by the bound's name,
//! see [`super::bounds`].

use std::time::Duration;

// ---- connections ----

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

/// How long the head of a request may take, from its first byte. Heads fit one packet; whoever takes
/// longer does it on purpose.
pub const HEAD_TIME_MAX: Duration = Duration::from_secs(10);

/// Bytes of one request head, over HTTP/2 after its decompression, which is what ends a bomb of
/// compressed headers. Clients send less than 1 KiB; tracing baggage can take 8 KiB.
pub const HEAD_BYTES_MAX: u32 = 32 << 10;

/// Longest idle time of an HTTP/1.1 connection. Longer than the 60 s after which common proxies close
/// an idle connection themselves, so that they never meet a connection closed by us.
pub const IDLE_TIME_MAX: Duration = Duration::from_secs(75);

/// Longest idle time of an HTTP/2 connection. Its client is told before (GOAWAY), so that closing
/// costs no request; channels of gRPC are kept for much longer than they are used.
pub const IDLE_TIME_MAX_H2: Duration = Duration::from_secs(600);

/// How often the other end of an HTTP/2 connection is asked whether it is there ...
pub const KEEPALIVE_PERIOD: Duration = Duration::from_secs(60);

/// ... and how long its answer may take.
pub const KEEPALIVE_WAIT: Duration = Duration::from_secs(20);

/// How long an HTTP/1.1 connection is kept for one more request when the server stops: whoever sent one
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

// ---- requests ----

/// Largest body of an HTTP request, before and after unpacking, and largest gRPC message, bytes.
/// 1,024 rows of 4,096 features as JSON text of 12 characters are 50 MB.
pub const BODY_BYTES_MAX: usize = 64 << 20;

/// Bytes of unfinished bodies over all connections of both protocols. Four of the largest at once;
/// beyond it a request is told to come back later, so that many slow senders cannot fill the memory
/// of the pod.
pub const BODIES_BYTES_MAX: usize = 4 * BODY_BYTES_MAX;

/// Longest silence inside a body. A sender that stalls longer is not going to make any deadline.
pub const BODY_SILENCE_MAX: Duration = Duration::from_secs(10);

/// Bytes per second that a body must have after that time: one byte a second holds its share of
/// memory for [`BODY_SILENCE_MAX`] and not for days, and a phone on a bad line is faster.
pub const BODY_RATE_MIN: u64 = 16 << 10;

/// Bytes read and thrown away after a refusal, so that a client still sending gets to read the
/// answer.
pub const DISCARDED_BYTES_MAX: usize = 2 * BODY_BYTES_MAX;

/// Input or output tensors named by one request: five exist.
pub const TENSORS_MAX: usize = 16;

/// Dimensions of a shape: two are right, a few more make the message useful.
pub const DIMENSIONS_MAX: usize = 8;

/// Parameters of a gRPC request and of each of its tensors: five are known, gateways add theirs. In
/// JSON unknown ones are skipped and cost nothing.
pub const PARAMETERS_MAX: usize = 64;

/// Bytes of a gRPC message's typed integers: as variable-length integers of one byte they grow to
/// eight bytes each. Raw contents have no such bound.
pub const TYPED_INTEGER_BYTES_MAX: usize = BODY_BYTES_MAX / 8;

/// Bytes of a message to the health and the reflection service: names.
pub const SMALL_MESSAGE_BYTES_MAX: usize = 64 << 10;

// Depth of JSON: typed parts are a fixed number deep, everything else is skipped without recursion,
// so that depth costs nothing; the parser's own bound of 128 stands before both.

// ---- replies ----

/// Bytes of one reply; a request that asks for more is refused before it is computed. Interactions of
/// 1,000 rows of 128 features are 67 MB as bytes, 200 MB as text.
pub const REPLY_BYTES_MAX: usize = 256 << 20;

/// Bytes of text for a byte of values: twelve digits, point, sign and comma for four.
pub const TEXT_PER_BYTE: usize = 3;

/// Bytes of replies that wait for their readers, over all connections of one port; beyond it large
/// replies are refused, so that slow readers cannot fill the memory of the pod.
pub const REPLIES_BYTES_MAX: usize = 2 * REPLY_BYTES_MAX;

/// Replies from this size on count: smaller ones are what a queue of requests is made of.
pub const COUNTED_REPLY_BYTES_MIN: usize = 32 << 10;

/// How long a reader may take for a reply ...
pub const REPLY_TIME_MAX: Duration = Duration::from_secs(10);

/// ... and bytes per second after that.
pub const REPLY_RATE_MIN: u64 = 1 << 20;

/// Replies shorter than this are not compressed: they fit one packet anyway.
pub const COMPRESSED_REPLY_BYTES_MIN: usize = 1_024;

/// How often the standard gRPC health service looks at the engine.
pub const HEALTH_PERIOD: Duration = Duration::from_millis(100);

// ---- beside the front ----

/// Threads of the front that serve connections: one does the work of any load that the workers can
/// take on a small machine, a second keeps a slow parse from delaying everybody else.
pub const FRONT_THREADS: usize = 2;

/// Workers of one server: twice the cpus of the largest machines that serve trees.
pub const WORKERS_MAX: usize = 512;

/// Compute threads of one worker: as above.
pub const THREADS_MAX: usize = 512;

/// Rows of a batch that a user may ask for with `--max-rows`.
pub const BATCH_ROWS_MAX: usize = 1 << 20;

/// Rows of a queue that a user may ask for with `--queue-rows`.
pub const QUEUE_ROWS_MAX: usize = 1 << 24;

/// How often the settings file and the model files are looked at: a stat of each.
pub const POLL_PERIOD: Duration = Duration::from_millis(250);

/// Looks at which a changed model file must be the same before it is read: who copies into place
/// writes for a while.
pub const STEADY_LOOKS: u32 = 2;

/// Pause before a model that could not be loaded is tried again; doubles with each failure ...
pub const LOAD_PAUSE_MIN: Duration = Duration::from_secs(1);

/// ... up to this: a server that is back is noticed within a minute.
pub const LOAD_PAUSE_MAX: Duration = Duration::from_secs(60);

/// Outcomes of loading that wait to be heard: more make their threads wait, which does no harm.
pub const ATTEMPTS_MAX: usize = 64;

/// How long what was told by `--params` stays in force after its stream was lost: by then a mounted
/// ConfigMap has what was told, after the kubelet's minute of caching and minute of syncing.
pub const TOLD_KEPT_FOR: Duration = Duration::from_secs(150);

/// Pause before the stream of `--params` is opened again; doubles with each failure ...
pub const PARAMS_PAUSE_MIN: Duration = Duration::from_millis(50);

/// ... up to this: soon enough for who restarted it, and 20 connections a second for 100 pods.
pub const PARAMS_PAUSE_MAX: Duration = Duration::from_secs(5);

/// How long a connection to `--params` may take.
pub const PARAMS_CONNECT_MAX: Duration = Duration::from_secs(5);

/// How long the answer that opens the stream may take.
pub const PARAMS_ANSWER_MAX: Duration = Duration::from_secs(10);

/// How often a silent stream is asked whether its other end still lives ...
pub const PARAMS_KEEPALIVE_PERIOD: Duration = Duration::from_secs(20);

/// ... and how long the answer may take.
pub const PARAMS_KEEPALIVE_WAIT: Duration = Duration::from_secs(10);

/// Bytes of a message of parameters: those of 32 models have some 3 KiB.
pub const PARAMS_BYTES_MAX: usize = 64 << 10;
