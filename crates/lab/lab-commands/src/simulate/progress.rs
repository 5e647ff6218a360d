//! Progress of a long simulation, on standard error.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// Runs shorter than this print nothing.
const SILENCE: Duration = Duration::from_secs(2);
/// Update period on a terminal.
const TERMINAL_EVERY: Duration = Duration::from_millis(200);
/// Period of log lines.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// Prints the number of simulated requests.
#[derive(Debug)]
pub(super) struct Progress {
    begun: Instant,
    printed_at: Option<Instant>,
    requests: u64,
    /// Total number, if known.
    of: Option<u64>,
    is_terminal: bool,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self {
            begun: Instant::now(),
            printed_at: None,
            requests: 0,
            of: None,
            is_terminal: std::io::stderr().is_terminal(),
        }
    }

    /// Sets the total, including warm-up requests.
    pub(super) fn set_total(&mut self, of: u64) {
        self.of = Some(of);
    }

    pub(super) fn add(&mut self, requests: u64) {
        self.requests += requests;
        let now = Instant::now();
        let every = match self.is_terminal {
            true => TERMINAL_EVERY,
            false => LOG_EVERY,
        };
        let is_recent = self
            .printed_at
            .is_some_and(|printed_at| now - printed_at < every);
        if now - self.begun < SILENCE || is_recent {
            return;
        }
        self.printed_at = Some(now);
        let million = self.requests as f64 / 1e6;
        let of = self
            .of
            .map_or(String::new(), |of| format!(" of {:.1}", of as f64 / 1e6));
        let end = if self.is_terminal { "\r" } else { "\n" };
        // Errors are ignored: they must not stop the simulation.
        let _ = write!(
            std::io::stderr(),
            "albacore: {million:.1}{of} million requests simulated{end}"
        );
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.printed_at.is_some() && self.is_terminal {
            let _ = writeln!(std::io::stderr());
        }
    }
}
