//! Bounds of this crate, each with its reason.

use std::time::Duration;

/// How long the parameters of the stream stay in force after it was lost: by then a mounted
/// ConfigMap has the same parameters, after a minute of caching and a minute of syncing by the
/// kubelet.
pub const PARAMS_RETENTION: Duration = Duration::from_secs(150);

/// Pause before the stream of `--params` is opened again; doubles with each failure ...
pub const PARAMS_BACKOFF_MIN: Duration = Duration::from_millis(50);

/// ... up to this: a restarted `albacore-params` is found soon, and 100 pods make 20 connections a
/// second.
pub const PARAMS_BACKOFF_MAX: Duration = Duration::from_secs(5);

/// Longest time to connect to `--params`.
pub const PARAMS_CONNECT_MAX: Duration = Duration::from_secs(5);

/// Longest time of the reply that opens the stream.
pub const PARAMS_REPLY_MAX: Duration = Duration::from_secs(10);

/// Period of keepalive pings on the stream ...
pub const PARAMS_KEEPALIVE_PERIOD: Duration = Duration::from_secs(20);

/// ... and longest time of their answers.
pub const PARAMS_KEEPALIVE_WAIT: Duration = Duration::from_secs(10);

/// Largest message of the stream: parameters of 32 models have some 3 KiB.
pub const PARAMS_BYTES_MAX: usize = 64 << 10;

/// Shortest period of latency reports, whatever the stream asks for.
pub const REPORT_PERIOD_MIN: Duration = Duration::from_millis(100);
