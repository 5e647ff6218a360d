//! Rate limit of the solver's CPU time: a token bucket, not a limit per solve.
//!
//! A cpuset that changes twice within a second is handled immediately both times; only repeated
//! changes have to wait. The time charged per solve is capped at its budget: on a busy machine the
//! solver may be preempted for longer, which is no reason to leave threads misplaced for seconds.

use std::time::{Duration, Instant};

use crate::limits::{SOLVE_BUDGET, SOLVE_BURST, SOLVE_PAUSE_RATIO};

/// Time used that has not been refilled yet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SolveRate {
    used: Duration,
    at: Option<Instant>,
}

impl SolveRate {
    /// Time to wait at `now` before the next solve; zero if it may start.
    pub(crate) fn wait(&mut self, now: Instant) -> Duration {
        let since = self
            .at
            .map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        self.used = self.used.saturating_sub(since / SOLVE_PAUSE_RATIO);
        self.at = Some(now);
        self.used.saturating_sub(SOLVE_BURST) * SOLVE_PAUSE_RATIO
    }

    pub(crate) fn spend(&mut self, took: Duration) {
        self.used += took.min(SOLVE_BUDGET);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_changes_are_answered_at_once_and_many_take_their_share_of_a_core() {
        let start = Instant::now();
        let (mut rate, mut now, mut solves) = (SolveRate::default(), start, 0u32);
        let long = Duration::from_secs(60);
        while now < start + long {
            let wait = rate.wait(now);
            assert!(solves > 4 || wait.is_zero(), "{solves} solves: {wait:?}");
            now += wait;
            assert!(rate.wait(now).is_zero());
            rate.spend(SOLVE_BUDGET);
            now += SOLVE_BUDGET;
            solves += 1;
        }
        let share = (SOLVE_BUDGET * solves).as_secs_f64() / long.as_secs_f64();
        assert!((0.04..0.06).contains(&share), "{share}");
    }

    #[test]
    fn a_solver_that_was_kept_from_its_cpu_is_not_punished_for_it() {
        let now = Instant::now();
        let mut rate = SolveRate::default();
        for _ in 0..10 {
            rate.spend(Duration::from_secs(3));
        }
        let bound = SOLVE_BUDGET * 10 * SOLVE_PAUSE_RATIO;
        assert!(rate.wait(now) <= bound);
        assert!(rate.wait(now + bound).is_zero());
    }
}
