//! Limits of this crate, each with its reason.

use std::time::Duration;

/// Measurement of a window starts after this fraction of its length, so that caches are warm again.
pub(crate) const SETTLE_SHARE: u32 = 10;

/// Minimum requests of a valid window: the p99 of fewer depends on a single request.
pub(crate) const REQUESTS_MIN: u64 = 200;

/// Minimum CPU time of a valid window if requests are unknown: with less, the waiting time is that
/// of a few wake-ups.
pub(crate) const CPU_MICROS_MIN: u64 = 50_000;

/// Minimum interval over which the load is averaged after the verdict.
pub(crate) const LOAD_WINDOW_MIN: Duration = Duration::from_secs(10);

/// If the load differs from that of the trial by more than this factor, its verdict no longer
/// applies.
pub(crate) const LOAD_FACTOR: f64 = 2.0;

/// Number of consecutive windows with such a load, so that bursts are ignored.
pub(crate) const LOAD_WINDOWS: u32 = 6;

/// Minimum time between the starts of two trials of a pod, because a trial disturbs it for minutes.
pub(crate) const REPEAT_PAUSE: Duration = Duration::from_secs(3600);

/// Waiting times below this fraction of CPU time are imperceptible, and therefore equal.
pub(crate) const RUN_DELAY_MIN: f64 = 1e-3;

/// Probability of a false claim in a comparison of two equal arms, for a trial with two arms;
/// divided by the number of other arms (Bonferroni).
pub(crate) const FALSE_CLAIMS: f64 = 0.01;

/// Latency report interval of a server during a trial: bounds the error at both ends of a window.
pub const REPORT_PERIOD: Duration = Duration::from_millis(500);

/// The report interval after the verdict, when only the load is monitored: a tenth of the reports
/// of a trial.
pub const LOAD_REPORT_PERIOD: Duration = Duration::from_secs(5);

/// Maximum time that a sample waits for a report: a server that lost its connection to params
/// reconnects sooner.
pub const REPORT_WAIT_MAX: Duration = Duration::from_secs(30);
