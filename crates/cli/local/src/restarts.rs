//! When a server that ended is started again, and when that is given up.
//!
//! A server that was ready once is started again however it ended. The pause before a start doubles
//! with each life that ended before it had served for [`HEALTHY_LIFE`]. Starts are given up when
//! [`FAILED_STARTS_MAX`] in a row ended before the server was ready: a server that serves between
//! its ends is worth more than none.

use std::time::Duration;

/// Pause before the first start after a healthy life: a port or a file may be free a moment later.
const PAUSE_MIN: Duration = Duration::from_millis(100);

/// The longest pause: what clients that try again wait at most, besides the start itself.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// A server that was ready for so long has nothing to do with ends before it.
const HEALTHY_LIFE: Duration = Duration::from_secs(60);

/// Starts in a row that may fail: with the pauses between them about 16 s and what the starts take.
pub(crate) const FAILED_STARTS_MAX: u32 = 8;

/// The lives of a server so far.
#[derive(Debug, Default)]
pub(crate) struct Restarts {
    /// Lives in a row that were not healthy.
    short_lives: u32,
    /// Lives in a row that ended before the server was ready.
    failed_starts: u32,
    /// Starts after an end.
    total: u64,
}

impl Restarts {
    /// A life ended in which the server was ready for so long, if it ever was. How long to wait
    /// before the next; `None` if there is none.
    pub(crate) fn after(&mut self, ready_for: Option<Duration>) -> Option<Duration> {
        if ready_for.is_some_and(|time| time >= HEALTHY_LIFE) {
            self.short_lives = 0;
        }
        self.failed_starts = match ready_for {
            Some(_) => 0,
            None => self.failed_starts.saturating_add(1),
        };
        let factor = 2_u32.saturating_pow(self.short_lives);
        self.short_lives = self.short_lives.saturating_add(1);
        let pause = PAUSE_MIN.saturating_mul(factor).min(PAUSE_MAX);
        (self.failed_starts < FAILED_STARTS_MAX).then_some(pause)
    }

    /// A life begins; how many began after an end.
    pub(crate) fn begin(&mut self) -> u64 {
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
    fn pauses_double_up_to_their_bound_and_start_anew_after_a_healthy_life() {
        let mut restarts = Restarts::default();
        let served = Some(Duration::from_secs(1));
        let pauses: Vec<u128> = (0..8)
            .map(|_| restarts.after(served).unwrap().as_millis())
            .collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(restarts.after(Some(HEALTHY_LIFE)), Some(PAUSE_MIN));
        for _ in 0..1000 {
            assert!(restarts.after(served).is_some(), "it served");
        }
    }

    #[test]
    fn starts_that_fail_are_given_up_unless_one_of_them_served() {
        let mut restarts = Restarts::default();
        let failed = |restarts: &mut Restarts| {
            (1..FAILED_STARTS_MAX).all(|_| restarts.after(None).is_some())
        };
        assert!(restarts.after(Some(Duration::ZERO)).is_some());
        assert!(failed(&mut restarts));
        assert!(restarts.after(Some(Duration::ZERO)).is_some());
        assert!(failed(&mut restarts));
        assert_eq!(restarts.after(None), None);
    }
}
