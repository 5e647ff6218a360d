//! Every bound of the front, with its reason.

use std::time::Duration;

/// Largest body of an HTTP request, before and after unpacking, and largest gRPC message, bytes.
/// 1,024 rows of 4,096 features as JSON text of 12 characters are 50 MB.
pub(super) const BODY_BYTES_MAX: usize = 64 << 20;

/// Bytes of unfinished HTTP bodies over all connections. Four of the largest at once; beyond it a
/// request is told to come back later, so that many slow senders cannot fill the memory of the pod.
pub(super) const BODIES_BYTES_MAX: usize = 4 * BODY_BYTES_MAX;

/// Longest silence inside a body. A sender that stalls longer is not going to make any deadline.
pub(super) const BODY_SILENCE_MAX: Duration = Duration::from_secs(30);

/// Bytes read and thrown away after a refusal, so that a client still sending gets to read the
/// answer.
pub(super) const DISCARDED_BYTES_MAX: usize = 2 * BODY_BYTES_MAX;

/// Longest wait for the head of a request, idle keep-alive connections included. Longer than the 60
/// s after which common proxies close an idle connection themselves, so that they never meet a
/// connection closed by us.
pub(super) const HEAD_WAIT_MAX: Duration = Duration::from_secs(75);

/// Bytes of one request head. Clients send less than 1 KiB; tracing baggage can take 8 KiB.
pub(super) const HEAD_BYTES_MAX: usize = 32 << 10;

/// Open HTTP connections. Each costs about 20 KiB: 160 MiB when all are open.
pub(super) const CONNECTIONS_MAX: usize = 8_192;

/// Pause after the system refused a connection (no file descriptor left): time for others to close.
pub(super) const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// gRPC calls at work on one connection; more wait in the client's flow control.
pub(super) const STREAMS_MAX: u32 = 1_024;

/// Flow-control window of a gRPC stream and of its connection, bytes: a request of 4 MiB arrives in
/// one go.
pub(super) const STREAM_WINDOW_BYTES: u32 = 4 << 20;

/// How often the standard gRPC health service looks at the engine.
pub(super) const HEALTH_PERIOD: Duration = Duration::from_millis(100);

/// Input or output tensors named by one request: five exist.
pub(super) const TENSORS_MAX: usize = 16;

/// Dimensions of a shape: two are right, a few more make the message useful.
pub(super) const DIMENSIONS_MAX: usize = 8;

/// Replies shorter than this are not compressed: they fit one packet anyway.
pub(super) const COMPRESSED_REPLY_BYTES_MIN: usize = 1_024;
