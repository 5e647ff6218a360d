//! Limits of requests and of replies, each with its reason. Those of arguments, of the engine and
//! of connections are in their crates.
//!
//! Clients that reach a limit are counted in `albacore_bounds_reached_total` by the name of the
//! limit, see [`albacore_connections::Limit`].

use std::time::Duration;

// ---- requests ----

/// Largest body of an HTTP request, before and after decompression, and largest gRPC message,
/// bytes. 1,024 rows of 4,096 features as JSON text of 12 characters are 50 MB.
pub const BODY_BYTES_MAX: usize = 64 << 20;

/// Bytes of incomplete bodies over all connections of both protocols: four of the largest. Further
/// requests are refused, so that many slow senders cannot exhaust the memory of the pod.
pub const BODIES_BYTES_MAX: usize = 4 * BODY_BYTES_MAX;

/// Longest pause inside a body. The request of a slower sender would miss every deadline.
pub const BODY_SILENCE_MAX: Duration = Duration::from_secs(10);

/// A timer that fires later than this shows that this process had no CPU, and that data of clients
/// may be unread ...
pub const STALL_MIN: Duration = Duration::from_millis(250);

/// ... which then has this much time to be read.
pub const STALL_GRACE: Duration = Duration::from_secs(1);

/// Least average rate of a body after [`BODY_SILENCE_MAX`], bytes per second: a sender of one byte
/// a second would occupy memory for days, and mobile clients are faster.
pub const BODY_RATE_MIN: u64 = 16 << 10;

/// Bytes that are read and discarded after a refusal, so that a client that is still sending can
/// read the reply.
pub const DISCARDED_BYTES_MAX: usize = 2 * BODY_BYTES_MAX;

/// Input or output tensors named by one request: five exist.
pub const TENSORS_MAX: usize = 16;

/// Dimensions of a shape: two are valid; a few more keep the error message useful.
pub const DIMENSIONS_MAX: usize = 8;

/// Parameters of a gRPC request and of each of its tensors: five are known, gateways add others. In
/// JSON unknown ones are skipped without cost.
pub const PARAMETERS_MAX: usize = 64;

/// Bytes of a gRPC message's typed integers: variable-length integers of one byte grow to eight
/// bytes each. Raw contents have no such limit.
pub const TYPED_INTEGER_BYTES_MAX: usize = BODY_BYTES_MAX / 8;

/// Typed texts of a gRPC message, which take two bytes at least and some 56 decoded: 56 MiB. Raw
/// contents have no such limit.
pub const TYPED_TEXTS_MAX: usize = 1 << 20;

/// Requests of one stream of infer calls that are computed, or whose replies are unsent. Further
/// ones wait in the client's flow control, and once its window is full with them further calls of
/// its connection: more in flight than this only wait in the queue.
pub const STREAM_REQUESTS_MAX: usize = 64;

/// Bytes of a message to the health and the reflection service: names.
pub const SMALL_MESSAGE_BYTES_MAX: usize = 64 << 10;

// Depth of JSON has no limit here: typed parts have a fixed depth, everything else is skipped
// without recursion, and the parser has a limit of 128.

// ---- replies ----

/// Bytes of JSON text for a byte of values: twelve characters for four bytes.
pub const TEXT_PER_BYTE: usize = 3;

/// Replies shorter than this are not compressed: they fit one packet.
pub const COMPRESSED_REPLY_BYTES_MIN: usize = 1_024;

/// Period in which the standard gRPC health service checks the engine.
pub const HEALTH_PERIOD: Duration = Duration::from_millis(100);

/// Period of load reports: a reply carries one that is at most so old.
pub const LOAD_PERIOD: Duration = Duration::from_millis(100);

/// Periods that a load report is of. Routers compute weights once in 0.2 to 1 s; a report of a
/// shorter time has the chance of few requests.
pub const LOAD_PERIODS: usize = 5;

/// Periods between computations of the load factor, which is of a minute.
pub const LOAD_FACTOR_PERIODS: u64 = 10;

/// Period of a stream of load reports that names none.
pub const LOAD_STREAM_PERIOD: Duration = Duration::from_secs(1);

/// Shortest period of a stream: more often nothing changes ...
pub const LOAD_STREAM_PERIOD_MIN: Duration = LOAD_PERIOD;

/// ... and the longest.
pub const LOAD_STREAM_PERIOD_MAX: Duration = Duration::from_secs(3600);
