//! Bounds of this crate, each with its reason.

use std::time::Duration;

/// A window begins this fraction of its length after the masks were ordered: caches are warm again.
pub(crate) const SETTLE_SHARE: u32 = 10;

/// Fewest requests of a window that counts: the p99 of fewer is one request.
pub(crate) const REQUESTS_MIN: u64 = 200;

/// Least cpu time of a window that counts where no requests are known: of less, the time that
/// threads waited is that of a few wake-ups.
pub(crate) const CPU_MICROS_MIN: u64 = 50_000;

/// Shortest time for which the load is averaged after the verdict.
pub(crate) const LOAD_WINDOW_MIN: Duration = Duration::from_secs(10);

/// A load outside of this factor around that of the trial makes its verdict one of another case.
pub(crate) const LOAD_FACTOR: f64 = 2.0;

/// For so many windows in a row, so that a burst is none.
pub(crate) const LOAD_WINDOWS: u32 = 6;

/// Least time between the begins of two trials of a pod: a trial disturbs it for minutes.
pub(crate) const REPEAT_PAUSE: Duration = Duration::from_secs(3600);

/// Waiting below this part of the cpu time is felt by nobody, so smaller parts are equal.
pub(crate) const RUN_DELAY_MIN: f64 = 1e-3;

/// Share of comparisons of two equal arms that may claim a difference, of one trial with two arms;
/// divided by the number of others that an arm is compared with.
pub(crate) const FALSE_CLAIMS: f64 = 0.01;

/// How often a server on trial reports its latency: bounds the error of both ends of a window.
pub const REPORT_PERIOD: Duration = Duration::from_millis(500);

/// The same after the verdict, while only the load is looked at: a tenth of the reports of a trial.
pub const LOAD_REPORT_PERIOD: Duration = Duration::from_secs(5);

/// How long a sample waits for a report: a server that lost its connection to params is back
/// sooner.
pub const REPORT_WAIT_MAX: Duration = Duration::from_secs(30);
