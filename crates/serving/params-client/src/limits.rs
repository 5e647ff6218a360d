//! Bounds of this crate, with their reasons.

use std::time::Duration;

/// How long the parameters of the stream stay effective after it was lost: by then a mounted
/// ConfigMap contains the same parameters, after a minute of caching and a minute of syncing by the
/// kubelet.
pub const PARAMS_RETENTION: Duration = Duration::from_secs(150);

/// Initial backoff before the stream of `--params` is reopened; doubled on each failure ...
pub const PARAMS_BACKOFF_MIN: Duration = Duration::from_millis(50);

/// ... up to this maximum: a restarted `albacore-params` is found soon, and 100 pods cause 20
/// connection attempts per second.
pub const PARAMS_BACKOFF_MAX: Duration = Duration::from_secs(5);

/// Timeout of connecting to `--params`.
pub const PARAMS_CONNECT_MAX: Duration = Duration::from_secs(5);

/// Timeout of the reply that opens the stream.
pub const PARAMS_REPLY_MAX: Duration = Duration::from_secs(10);

/// Interval of keepalive pings on the stream ...
pub const PARAMS_KEEPALIVE_PERIOD: Duration = Duration::from_secs(20);

/// ... and timeout of their replies.
pub const PARAMS_KEEPALIVE_WAIT: Duration = Duration::from_secs(10);

/// Largest message of the stream: the parameters of 32 models take about 3 KiB.
pub const PARAMS_BYTES_MAX: usize = 64 << 10;

/// Shortest interval of latency reports, even if the stream requests a shorter one.
pub const REPORT_PERIOD_MIN: Duration = Duration::from_millis(100);
