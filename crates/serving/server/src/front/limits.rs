//! Limits of requests and replies, each with its reason. The limits of arguments, of the engine and
//! of connections are in their crates.
//!
//! Clients that reach a limit are counted in `albacore_bounds_reached_total`, by the name of the
//! limit; see [`albacore_connections::Limit`].

use std::time::Duration;

// ---- requests ----

/// Size limit of an HTTP request body, before and after decompression, and of a gRPC message,
/// bytes. 1,024 rows of 4,096 features as JSON text of 12 characters are 50 MB.
pub const BODY_BYTES_MAX: usize = 64 << 20;

/// Total size of incomplete bodies over all connections of both protocols: four of the largest.
/// Further requests are rejected, so that many slow senders cannot exhaust the memory of the pod.
pub const BODIES_BYTES_MAX: usize = 4 * BODY_BYTES_MAX;

/// Time limit for a pause inside of a body. A request from a slower sender would miss any deadline.
pub const BODY_PAUSE_MAX: Duration = Duration::from_secs(10);

/// A timer that fires later than this indicates that the process had no CPU, so received data may
/// be unread ...
pub const STALL_MIN: Duration = Duration::from_millis(250);

/// ... which then gets this much time to be read.
pub const STALL_GRACE: Duration = Duration::from_secs(1);

/// Minimum average rate of a body after [`BODY_PAUSE_MAX`], bytes per second. A sender of one
/// byte per second would occupy memory for days; mobile clients are faster than this limit.
pub const BODY_RATE_MIN: u64 = 16 << 10;

/// Bytes that are read and discarded after a rejection, so that a client that is still sending can
/// read the reply.
pub const DISCARDED_BYTES_MAX: usize = 2 * BODY_BYTES_MAX;

/// Input or output tensors in a request: five exist.
pub const TENSORS_MAX: usize = 16;

/// Dimensions of a shape: two are valid; a few more are accepted for a useful error message.
pub const DIMENSIONS_MAX: usize = 8;

/// Parameters of a gRPC request and of each of its tensors: five are known, gateways add others. In
/// JSON unknown parameters are skipped at no cost.
pub const PARAMETERS_MAX: usize = 64;

/// Bytes of typed integers in a gRPC message: varints of one byte are decoded to up to eight bytes.
/// Raw contents have no such limit.
pub const TYPED_INTEGER_BYTES_MAX: usize = BODY_BYTES_MAX / 8;

/// Typed texts in a gRPC message. A text takes at least two bytes encoded and about 56 decoded, in
/// total 56 MiB. Raw contents have no such limit.
pub const TYPED_TEXTS_MAX: usize = 1 << 20;

/// Requests of an infer stream that are running or whose replies are unsent. Further requests wait
/// in HTTP/2 flow control, and once its window is full, so do other calls of the connection. More
/// requests in flight would only wait in the queue.
pub const STREAM_REQUESTS_MAX: usize = 64;

/// Size limit of messages to the health and reflection services, which contain only names.
pub const SMALL_MESSAGE_BYTES_MAX: usize = 64 << 10;

// The depth of JSON needs no limit here: typed parts have a fixed depth, everything else is skipped
// without recursion, and the parser has a limit of 128.

// ---- replies ----

/// Bytes of JSON text per byte of values: twelve characters for four bytes.
pub const TEXT_PER_BYTE: usize = 3;

/// Minimum size of compressed replies: shorter ones fit into one packet.
pub const COMPRESSED_REPLY_BYTES_MIN: usize = 1_024;

/// Period of checking the engine for the standard gRPC health service.
pub const HEALTH_PERIOD: Duration = Duration::from_millis(100);

/// Period of load reports, and maximum age of the report in a reply.
pub const LOAD_PERIOD: Duration = Duration::from_millis(100);

/// Number of periods over which a load report is computed. Routers update weights every 0.2 s to
/// 1 s; a report over a shorter time is noisy, because it contains few requests.
pub const LOAD_PERIODS: usize = 5;

/// Periods between computations of the load factor, whose window is one minute.
pub const LOAD_FACTOR_PERIODS: u64 = 10;

/// Default period of a load report stream.
pub const LOAD_STREAM_PERIOD: Duration = Duration::from_secs(1);

/// Minimum period of a stream, because reports do not change more often ...
pub const LOAD_STREAM_PERIOD_MIN: Duration = LOAD_PERIOD;

/// ... and maximum period.
pub const LOAD_STREAM_PERIOD_MAX: Duration = Duration::from_secs(3600);
