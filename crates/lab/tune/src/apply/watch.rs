//! Measures a server under its clients' load, before and after a change.

use std::time::{Duration, Instant};

use albacore_bench::ServerAddress;
use albacore_os::Signals;
use albacore_statistics::{RegressionCheck, RequestWindow};

use crate::configuration::Configuration;
use crate::error::TuneError;
use crate::outcome::Outcome;

/// Timeout of a restart of the server with other workers or threads.
const RESTART_TIME_MAX: Duration = Duration::from_secs(600);

/// The server polls its file about once per second, and learns the costs of other batches.
const SETTLE: Duration = Duration::from_secs(5);

/// Polling period of signals.
const POLL: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Watch {
    server: ServerAddress,
    window: Duration,
}

impl Watch {
    /// # Errors
    /// The server does not exist.
    pub(super) fn connect(url: &str, time: Duration) -> Result<Self, TuneError> {
        let server = ServerAddress::parse(url)
            .map_err(|error| TuneError::Usage(format!("--watch: {error}")))?;
        server.request_counters()?;
        Ok(Self {
            server,
            window: time / RegressionCheck::WINDOWS,
        })
    }

    /// # Errors
    /// The server does not answer, was restarted, or gets too few requests; a signal was received.
    pub(super) fn measure(&self, signals: &Signals) -> Result<Vec<RequestWindow>, TuneError> {
        let mut before = self.server.request_counters()?;
        let mut windows = Vec::new();
        for _ in 0..RegressionCheck::WINDOWS {
            sleep(self.window, signals)?;
            let after = self.server.request_counters()?;
            let window = RequestWindow::of(after.since(&before));
            let seconds = self.window.as_secs_f64();
            let requests = window.map_or(0.0, |window| window.requests);
            let least = RegressionCheck::REQUESTS_MIN;
            let window = window.filter(|window| window.requests >= least);
            windows.push(window.ok_or_else(|| {
                TuneError::Failed(format!(
                    "--watch: the server had {requests:.0} requests in {seconds:.1} s, but {least} \
                     are needed to detect a change: give a longer --watch-time, or remove --watch"
                ))
            })?);
            before = after;
        }
        Ok(windows)
    }

    /// Waits until the server runs with the chosen values.
    ///
    /// # Errors
    /// It was not restarted in time; a signal was received.
    pub(super) fn wait_for(
        &self,
        outcome: &Outcome,
        signals: &Signals,
        on_progress: &mut dyn FnMut(&str),
    ) -> Result<(), TuneError> {
        let (chosen, current) = (&outcome.chosen, &outcome.current);
        let size = |of: &Configuration| (u64::from(of.workers), u64::from(of.threads));
        if size(chosen) != size(current) {
            let (workers, threads) = size(chosen);
            on_progress(&format!(
                "restart `albacore run`: workers and threads take effect then; waiting for \
                 {workers} x {threads}"
            ));
            let begin = Instant::now();
            // a server that is restarting does not answer
            let is_there = || {
                let counters = self.server.request_counters().ok();
                counters.is_some_and(|of| (of.workers, of.threads) == (workers, threads))
            };
            while !is_there() {
                if begin.elapsed() >= RESTART_TIME_MAX {
                    let seconds = RESTART_TIME_MAX.as_secs();
                    let what = format!("--watch: the server was not restarted within {seconds} s");
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
        if signals.termination_count() != 0 {
            return Err(TuneError::Failed("interrupted while watching".to_owned()));
        }
        std::thread::sleep(POLL.min(time.saturating_sub(begin.elapsed())));
    }
    Ok(())
}
