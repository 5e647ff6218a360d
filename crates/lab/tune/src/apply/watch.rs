//! A server under its clients' load, before and after a change.

use std::time::{Duration, Instant};

use albacore_bench::{ServedWindow, ServerAddress, median};
use albacore_os::Signals;
use albacore_statistics::{CONFIDENCE, Claim, EQUAL, Interval, compare};

use crate::configuration::Configuration;
use crate::error::TuneError;
use crate::outcome::Outcome;

/// Windows before, and as many after.
const WINDOWS: u32 = 10;

/// Requests of a window from which its p99 says something.
const REQUESTS_MIN: f64 = 100.0;

/// How long a server may take to be started again with other workers or threads.
const RESTART_TIME_MAX: Duration = Duration::from_secs(600);

/// The server reads its file every second or so, and learns the costs of other batches.
const SETTLE: Duration = Duration::from_secs(5);

/// How often a signal is looked for.
const POLL: Duration = Duration::from_millis(100);

/// Loads that differ by more than this factor are not compared.
const LOAD_FACTOR_MAX: f64 = 1.5;

/// Of a server.
#[derive(Debug)]
pub(super) struct Watch {
    server: ServerAddress,
    window: Duration,
}

impl Watch {
    /// # Errors
    /// There is no such server.
    pub(super) fn connect(url: &str, time: Duration) -> Result<Self, TuneError> {
        let server = ServerAddress::parse(url)
            .map_err(|error| TuneError::Usage(format!("--watch: {error}")))?;
        server.served()?;
        Ok(Self {
            server,
            window: time / WINDOWS,
        })
    }

    /// # Errors
    /// The server does not answer, was started again, or has too few requests; a signal.
    pub(super) fn measure(&self, signals: &Signals) -> Result<Vec<ServedWindow>, TuneError> {
        let mut before = self.server.served()?;
        let mut windows = Vec::new();
        for _ in 0..WINDOWS {
            sleep(self.window, signals)?;
            let after = self.server.served()?;
            let window = after.since(&before);
            let seconds = self.window.as_secs_f64();
            let requests = window.map_or(0.0, |window| window.requests);
            let window = window.filter(|window| window.requests >= REQUESTS_MIN);
            windows.push(window.ok_or_else(|| {
                TuneError::Failed(format!(
                    "--watch: the server had {requests:.0} requests in {seconds:.1} s, and {REQUESTS_MIN} are needed \
                     to tell a change: give a longer --watch-time, or leave --watch out"
                ))
            })?);
            before = after;
        }
        Ok(windows)
    }

    /// Waits until the server has the chosen values.
    ///
    /// # Errors
    /// It was not started again in time; a signal.
    pub(super) fn wait_for(
        &self,
        outcome: &Outcome,
        signals: &Signals,
        tell: &mut dyn FnMut(&str),
    ) -> Result<(), TuneError> {
        let (chosen, current) = (&outcome.chosen, &outcome.current);
        let size = |of: &Configuration| (u64::from(of.workers), u64::from(of.threads));
        if size(chosen) != size(current) {
            let (workers, threads) = size(chosen);
            tell(&format!(
                "start `albacore run` again: workers and threads take effect then; waiting for {workers} x {threads}"
            ));
            let begin = Instant::now();
            // a server that is being started does not answer
            let is_there = || {
                let served = self.server.served().ok();
                served.is_some_and(|of| (of.workers, of.threads) == (workers, threads))
            };
            while !is_there() {
                if begin.elapsed() >= RESTART_TIME_MAX {
                    let seconds = RESTART_TIME_MAX.as_secs();
                    let what =
                        format!("--watch: the server was not started again within {seconds} s");
                    return Err(TuneError::Failed(what));
                }
                sleep(POLL, signals)?;
            }
        }
        sleep(SETTLE, signals)
    }
}

fn sleep(time: Duration, signals: &Signals) -> Result<(), TuneError> {
    let begin = Instant::now();
    while begin.elapsed() < time {
        if signals.take() != 0 {
            return Err(TuneError::Failed("interrupted while watching".to_owned()));
        }
        std::thread::sleep(POLL.min(time.saturating_sub(begin.elapsed())));
    }
    Ok(())
}

/// What changed from some windows to as many later ones.
#[derive(Debug)]
pub(super) struct Change {
    before: ServedWindow,
    after: ServedWindow,
    /// p99 before by that after: above 1 the server is faster.
    p99: Option<Interval>,
    /// The share that is answered in time, after by before.
    in_time: Option<Interval>,
}

impl Change {
    pub(super) fn between(before: &[ServedWindow], after: &[ServedWindow]) -> Self {
        let interval = |score: fn(&ServedWindow) -> f64| {
            let scores = |of: &[ServedWindow]| of.iter().map(score).collect::<Vec<f64>>();
            compare(&scores(after), &scores(before), CONFIDENCE)
        };
        let typical = |windows: &[ServedWindow]| ServedWindow {
            requests: median(windows.iter().map(|window| window.requests)),
            bad: median(windows.iter().map(|window| window.bad)),
            p99: median(windows.iter().map(|window| window.p99)),
        };
        Self {
            before: typical(before),
            after: typical(after),
            p99: interval(|of| -of.p99.max(1e-6).ln()),
            in_time: interval(|of| (1.0 - of.bad).max(1e-6).ln()),
        }
    }

    fn is_comparable(&self) -> bool {
        let ratio = self.after.requests / self.before.requests.max(1e-9);
        (1.0 / LOAD_FACTOR_MAX..=LOAD_FACTOR_MAX).contains(&ratio)
    }

    /// p99, or the share that is answered in time, is worse by more than the noise and by more
    /// than a user would notice. What a load does that changed at the same time is not held against
    /// the values.
    pub(super) fn is_worse(&self) -> bool {
        let is_slower = |of: &Option<Interval>| {
            of.is_some_and(|of| of.claim() == Claim::Slower && of.ratio * EQUAL < 1.0)
        };
        self.is_comparable() && (is_slower(&self.p99) || is_slower(&self.in_time))
    }

    pub(super) fn text(&self) -> String {
        let (before, after) = (&self.before, &self.after);
        let ratio = self.p99.map_or(String::new(), |of| {
            let (low, ratio, high) = (1.0 / of.high, 1.0 / of.ratio, 1.0 / of.low);
            format!(" ({ratio:.2}x, {low:.2} to {high:.2} at 99 % confidence)")
        });
        let loads = match self.is_comparable() {
            true => String::new(),
            false => format!(
                "; not comparable: a window had {:.0} requests before and {:.0} after",
                before.requests, after.requests
            ),
        };
        format!(
            "p99 of the server: {:.2} ms before, {:.2} ms after{ratio}; late, refused or failed: {:.2} % before, {:.2} % \
             after{loads}",
            before.p99 * 1e3,
            after.p99 * 1e3,
            before.bad * 100.0,
            after.bad * 100.0
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(p99: f64, bad: f64, requests: f64) -> Vec<ServedWindow> {
        let noise = [1.0, 1.03, 0.98, 1.01, 0.97, 1.02, 1.0, 0.99, 1.04, 0.96];
        let window = |noise: &f64| ServedWindow {
            requests: requests * noise,
            bad: bad * noise,
            p99: p99 * noise,
        };
        noise.iter().map(window).collect()
    }

    #[test]
    fn a_change_is_worse_only_beyond_the_noise_and_at_the_same_load() {
        let before = windows(0.01, 0.01, 1_000.0);
        let is_worse = |after: &[ServedWindow]| Change::between(&before, after).is_worse();
        assert!(!is_worse(&before));
        assert!(!is_worse(&windows(0.005, 0.01, 1_000.0)));
        assert!(!is_worse(&windows(0.0101, 0.01, 1_000.0)), "within 2 %");
        assert!(is_worse(&windows(0.012, 0.01, 1_000.0)), "slower");
        assert!(is_worse(&windows(0.01, 0.2, 1_000.0)), "more are late");
        let busier = Change::between(&before, &windows(0.02, 0.2, 3_000.0));
        assert!(!busier.is_worse() && busier.text().contains("not comparable"));
    }

    #[test]
    fn a_change_is_described_by_both_figures() {
        let change = Change::between(&windows(0.01, 0.0, 500.0), &windows(0.02, 0.01, 500.0));
        let text = change.text();
        assert!(
            text.contains("10.00 ms before, 20.00 ms after (2.00x"),
            "{text}"
        );
    }
}
