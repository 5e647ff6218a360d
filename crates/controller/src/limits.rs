//! Every bound of the controller, with its reason.

/// Seconds between the moment that a pod leaves its Service and the moment that its server is told
/// to stop: endpoints and proxies need a moment to hear of it.
pub(crate) const LEAVE_SECONDS: i64 = 5;

/// Seconds that a pod may take to end: leaving, draining (30 s at most, the server's own bound) and
/// some more to exit.
pub(crate) const GRACE_SECONDS: i64 = 45;

/// Seconds between two probes of a server that serves.
pub(crate) const PROBE_SECONDS: i64 = 5;

/// Probes that a starting server may miss, one a second: it is live before its models are.
pub(crate) const STARTUP_PROBES_MAX: i64 = 60;

/// Missed probes until a server is called dead: 30 s, because a machine that is out of memory or
/// cpu must not be made to start servers as well.
pub(crate) const LIVENESS_MISSES_MAX: i64 = 6;

/// Seconds between two looks of Prometheus at a pod.
pub(crate) const METRICS_SECONDS: i64 = 15;

/// Longest message of a condition or error of a model, in characters; the API server takes 32 Ki,
/// and nobody reads more.
pub(crate) const MESSAGE_CHARS_MAX: usize = 1024;
