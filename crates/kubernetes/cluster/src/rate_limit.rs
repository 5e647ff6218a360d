//! Rate limit of a program's requests: a rate with a burst, and the pauses that the API server asks
//! for.
//!
//! The rate adapts to the API server: it rises while requests wait for it and writes are answered
//! quickly, and falls when they are answered slowly or refused. So a change that concerns a large
//! fleet is done soon where the API server has cpu to spare, and slowly where it has not.
//!
//! A moment is a duration since an arbitrary start, so that tests need not wait.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::limits::{
    ANSWER_QUICK, ANSWER_SLOW, ANSWERS_AVERAGED, RATE_START, RATE_STEP_SHARE,
    REQUESTS_BURST_SECONDS, REQUESTS_PER_SECOND,
};

/// The time of one step of the rate.
const STEP: Duration = Duration::from_secs(1);

/// A request reserves the earliest moment at which it may be sent.
#[derive(Debug)]
pub(crate) struct RateLimit {
    /// Requests per second now.
    rate: u32,
    /// Requests per second at most.
    rate_max: u32,
    /// When a bucket of one request would be empty again if requests were sent at the rate alone.
    spent_until: Duration,
    /// Nothing is sent before this.
    paused_until: Duration,
    /// When the rate was changed last.
    stepped: Duration,
    /// Whether a request had to wait for the rate since then.
    has_waited: bool,
    /// Moving average of the time to the answer of a write.
    answer: Duration,
}

impl Default for RateLimit {
    fn default() -> Self {
        Self {
            rate: REQUESTS_PER_SECOND,
            rate_max: REQUESTS_PER_SECOND,
            spent_until: Duration::ZERO,
            paused_until: Duration::ZERO,
            stepped: Duration::ZERO,
            has_waited: false,
            answer: Duration::ZERO,
        }
    }
}

impl RateLimit {
    /// From now on at most `rate` requests per second, and as many more in a burst.
    pub(crate) fn set_rate(&mut self, rate: NonZeroU32) {
        self.rate_max = rate.get();
        self.rate = self.start();
    }

    /// The rate to begin with, and the lowest that slow answers alone lead to.
    fn start(&self) -> u32 {
        self.rate_max.min(RATE_START)
    }

    pub(crate) fn rate(&self) -> u32 {
        self.rate
    }

    /// Reserves the moment from which a request that comes at `now` may be sent.
    pub(crate) fn reserve(&mut self, now: Duration) -> Duration {
        let interval = Duration::from_secs(1) / self.rate;
        let spent_until = self.spent_until.max(now);
        self.spent_until = spent_until + interval;
        let credit = interval * (self.rate * REQUESTS_BURST_SECONDS - 1);
        let earliest = spent_until.saturating_sub(credit).max(now);
        self.has_waited |= earliest > now;
        earliest.max(self.paused_until)
    }

    /// Notes at `now` that a write was answered after `time`.
    pub(crate) fn note_answer(&mut self, now: Duration, time: Duration) {
        self.answer = (self.answer * (ANSWERS_AVERAGED - 1) + time) / ANSWERS_AVERAGED;
        if now < self.stepped + STEP {
            return;
        }
        let step = (self.rate / RATE_STEP_SHARE).max(1);
        let is_waited_for = std::mem::take(&mut self.has_waited);
        if self.answer > ANSWER_SLOW && self.rate > self.start() {
            self.rate = (self.rate - step).max(self.start());
        } else if is_waited_for && self.answer <= ANSWER_QUICK {
            self.rate = self.rate.saturating_add(step).min(self.rate_max);
        }
        self.stepped = now;
    }

    /// Sends nothing before `until`: at `now` the API server refused a request because it has too
    /// many. Halves the rate, once for all requests that were under way.
    pub(crate) fn pause(&mut self, now: Duration, until: Duration) {
        if now >= self.paused_until {
            self.rate = (self.rate / 2).max(1);
            self.stepped = until;
        }
        self.paused_until = self.paused_until.max(until);
    }

    /// The rest of the pause at `now`.
    pub(crate) fn pause_left(&self, now: Duration) -> Duration {
        self.paused_until.saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_sent_at_once_and_the_rest_at_the_rate() {
        let mut rate_limit = RateLimit::default();
        let start = Duration::from_secs(10);
        let send_at: Vec<Duration> = (0..200).map(|_| rate_limit.reserve(start)).collect();
        assert_eq!(send_at.iter().filter(|&&at| at == start).count(), 100);
        let second = Duration::from_secs(1);
        assert_eq!(send_at[149], start + second);
        for &at in &send_at {
            let in_window = |other: &&Duration| (at..at + second).contains(*other);
            assert!(send_at.iter().filter(in_window).count() <= 150);
        }
        // After a quiet time there is a burst again.
        let later = start + Duration::from_secs(60);
        assert_eq!(rate_limit.reserve(later), later);
    }

    #[test]
    fn nothing_is_sent_during_a_pause() {
        let mut rate_limit = RateLimit::default();
        let second = Duration::from_secs(1);
        rate_limit.pause(Duration::ZERO, 3 * second);
        rate_limit.pause(Duration::ZERO, 2 * second);
        assert_eq!(rate_limit.reserve(second), 3 * second);
        assert_eq!(rate_limit.pause_left(second), 2 * second);
        assert_eq!(rate_limit.pause_left(4 * second), Duration::ZERO);
    }

    /// Sends as many writes as the rate allows for some seconds, each answered after `time`.
    fn send(rate_limit: &mut RateLimit, now: &mut Duration, seconds: u64, time: Duration) {
        let end = *now + Duration::from_secs(seconds);
        while *now < end {
            *now = rate_limit.reserve(*now).max(*now);
            rate_limit.note_answer(*now, time);
        }
    }

    #[test]
    fn the_rate_rises_while_it_is_waited_for_and_answers_are_quick() {
        let mut rate_limit = RateLimit::default();
        rate_limit.set_rate(NonZeroU32::new(1000).unwrap());
        assert_eq!(rate_limit.rate(), RATE_START);
        let mut now = Duration::from_secs(10);
        // A few requests now and then: nobody waits.
        for _ in 0..100 {
            rate_limit.reserve(now);
            rate_limit.note_answer(now, ANSWER_QUICK / 4);
            now += Duration::from_secs(1);
        }
        assert_eq!(rate_limit.rate(), RATE_START);
        send(&mut rate_limit, &mut now, 60, ANSWER_QUICK / 4);
        assert_eq!(rate_limit.rate(), 1000);
        send(
            &mut rate_limit,
            &mut now,
            60,
            (ANSWER_QUICK + ANSWER_SLOW) / 2,
        );
        assert_eq!(rate_limit.rate(), 1000);
        send(&mut rate_limit, &mut now, 60, ANSWER_SLOW * 2);
        assert_eq!(rate_limit.rate(), RATE_START);
    }

    #[test]
    fn refusals_halve_the_rate_once_for_each_pause() {
        let mut rate_limit = RateLimit::default();
        rate_limit.set_rate(NonZeroU32::new(100).unwrap());
        let mut now = Duration::from_secs(10);
        for refused in 1..=3 {
            for _ in 0..32 {
                rate_limit.pause(now, now + Duration::from_secs(1));
            }
            assert_eq!(rate_limit.rate(), 100 >> refused);
            now += Duration::from_secs(1);
        }
        // Recovers, never above its bound.
        send(&mut rate_limit, &mut now, 120, ANSWER_QUICK / 4);
        assert_eq!(rate_limit.rate(), 100);
    }
}
