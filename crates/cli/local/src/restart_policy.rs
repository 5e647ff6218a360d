//! Restarts of a server that exited: the backoff, and when to stop restarting.
//!
//! A server that was ready once is restarted regardless of its exit status. The backoff doubles
//! with each run that was ready for less than [`HEALTHY_UPTIME`]. Restarts stop after
//! [`FAILED_STARTS_MAX`] consecutive starts that never became ready: a server that serves between
//! its crashes is better than none.

use std::time::Duration;

/// Backoff after a healthy run: a port or a file may be released shortly after the exit.
const PAUSE_MIN: Duration = Duration::from_millis(100);

/// Longest backoff, which bounds how long retrying clients wait in addition to the start itself.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// A run that was ready for this long resets the backoff.
const HEALTHY_UPTIME: Duration = Duration::from_secs(60);

/// Consecutive starts that may fail: about 16 s of backoff, plus the time of the starts.
pub(crate) const FAILED_STARTS_MAX: u32 = 8;

/// The runs of a server so far.
#[derive(Debug, Default)]
pub(crate) struct RestartPolicy {
    /// Consecutive runs that were not healthy.
    short_runs: u32,
    /// Consecutive runs that exited before they were ready.
    failed_starts: u32,
    /// Number of restarts.
    total: u64,
}

impl RestartPolicy {
    /// Returns the pause before the next start, after a run that was ready for `ready_for`, if it
    /// ever was; `None` if no further restart is made.
    pub(crate) fn pause_after(&mut self, ready_for: Option<Duration>) -> Option<Duration> {
        if ready_for.is_some_and(|time| time >= HEALTHY_UPTIME) {
            self.short_runs = 0;
        }
        self.failed_starts = match ready_for {
            Some(_) => 0,
            None => self.failed_starts.saturating_add(1),
        };
        let factor = 2_u32.saturating_pow(self.short_runs);
        self.short_runs = self.short_runs.saturating_add(1);
        let pause = PAUSE_MIN.saturating_mul(factor).min(PAUSE_MAX);
        (self.failed_starts < FAILED_STARTS_MAX).then_some(pause)
    }

    /// Counts a restart and returns the number of restarts.
    pub(crate) fn count_start(&mut self) -> u64 {
        self.total += 1;
        self.total
    }

    pub(crate) fn total(&self) -> u64 {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_their_bound_and_are_reset_by_a_healthy_run() {
        let mut restarts = RestartPolicy::default();
        let served = Some(Duration::from_secs(1));
        let pauses: Vec<u128> = (0..8)
            .map(|_| restarts.pause_after(served).unwrap().as_millis())
            .collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(restarts.pause_after(Some(HEALTHY_UPTIME)), Some(PAUSE_MIN));
        for _ in 0..1000 {
            assert!(restarts.pause_after(served).is_some(), "it served");
        }
    }

    #[test]
    fn restarts_are_given_up_after_failed_starts_unless_one_was_ready() {
        let mut restarts = RestartPolicy::default();
        let failed = |restarts: &mut RestartPolicy| {
            (1..FAILED_STARTS_MAX).all(|_| restarts.pause_after(None).is_some())
        };
        assert!(restarts.pause_after(Some(Duration::ZERO)).is_some());
        assert!(failed(&mut restarts));
        assert!(restarts.pause_after(Some(Duration::ZERO)).is_some());
        assert!(failed(&mut restarts));
        assert_eq!(restarts.pause_after(None), None);
    }
}
