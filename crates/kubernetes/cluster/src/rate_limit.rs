//! Rate limit of a program's requests: a token bucket, and the pauses that the API server requires.
//!
//! The rate adapts to the API server: it increases while requests wait for it and writes have a low
//! latency, and decreases when writes have a high latency or are rejected. So a change that affects
//! a large fleet is processed quickly if the API server has CPU capacity to spare, and slowly
//! otherwise.
//!
//! Times are durations since an arbitrary start, so that tests do not have to wait.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::limits::{
    RATE_START, RATE_STEP_SHARE, REQUESTS_BURST_SECONDS, REQUESTS_PER_SECOND,
    WRITE_LATENCIES_AVERAGED, WRITE_LATENCY_HIGH, WRITE_LATENCY_LOW,
};

/// Minimum time between two steps of the rate.
const STEP: Duration = Duration::from_secs(1);

/// Each request reserves the earliest time at which it may be sent.
#[derive(Debug)]
pub(crate) struct RateLimit {
    /// Current requests per second.
    rate: u32,
    /// Maximum requests per second.
    rate_max: u32,
    /// Time at which all reserved requests would be sent at the rate alone, without a burst (the
    /// theoretical arrival time of GCRA).
    spent_until: Duration,
    /// No request is sent before this time.
    paused_until: Duration,
    /// Time of the last change of the rate.
    rate_changed_at: Duration,
    /// Whether a request had to wait for the rate since then.
    has_waited: bool,
    /// Moving average of the latency of writes.
    write_latency: Duration,
}

impl Default for RateLimit {
    fn default() -> Self {
        Self {
            rate: REQUESTS_PER_SECOND,
            rate_max: REQUESTS_PER_SECOND,
            spent_until: Duration::ZERO,
            paused_until: Duration::ZERO,
            rate_changed_at: Duration::ZERO,
            has_waited: false,
            write_latency: Duration::ZERO,
        }
    }
}

impl RateLimit {
    /// Sets the maximum number of requests per second; a burst may be twice as many.
    pub(crate) fn set_rate(&mut self, rate: NonZeroU32) {
        self.rate_max = rate.get();
        self.rate = self.start();
    }

    /// The initial rate, which is also the lower bound for decreases due to high latency alone.
    fn start(&self) -> u32 {
        self.rate_max.min(RATE_START)
    }

    pub(crate) fn rate(&self) -> u32 {
        self.rate
    }

    /// Reserves the time from which a request that arrives at `now` may be sent.
    pub(crate) fn reserve(&mut self, now: Duration) -> Duration {
        let interval = Duration::from_secs(1) / self.rate;
        let spent_until = self.spent_until.max(now);
        self.spent_until = spent_until + interval;
        let credit = interval * (self.rate * REQUESTS_BURST_SECONDS - 1);
        let earliest = spent_until.saturating_sub(credit).max(now);
        self.has_waited |= earliest > now;
        earliest.max(self.paused_until)
    }

    /// Records at `now` that a write had the latency `time`.
    pub(crate) fn record_write_latency(&mut self, now: Duration, time: Duration) {
        self.write_latency =
            (self.write_latency * (WRITE_LATENCIES_AVERAGED - 1) + time) / WRITE_LATENCIES_AVERAGED;
        if now < self.rate_changed_at + STEP {
            return;
        }
        let step = (self.rate / RATE_STEP_SHARE).max(1);
        let is_limiting = std::mem::take(&mut self.has_waited);
        if self.write_latency > WRITE_LATENCY_HIGH && self.rate > self.start() {
            self.rate = (self.rate - step).max(self.start());
        } else if is_limiting && self.write_latency <= WRITE_LATENCY_LOW {
            self.rate = self.rate.saturating_add(step).min(self.rate_max);
        }
        self.rate_changed_at = now;
    }

    /// Blocks requests until `until`, because at `now` the API server rejected a request as too
    /// many. Halves the rate, once for all requests in flight.
    pub(crate) fn pause(&mut self, now: Duration, until: Duration) {
        if now >= self.paused_until {
            self.rate = (self.rate / 2).max(1);
            self.rate_changed_at = until;
        }
        self.paused_until = self.paused_until.max(until);
    }

    /// The remaining part of the pause at `now`.
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
        // After idle time there is a burst again.
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

    /// Sends as many writes as the rate allows for some seconds, each with the latency `time`.
    fn send(rate_limit: &mut RateLimit, now: &mut Duration, seconds: u64, time: Duration) {
        let end = *now + Duration::from_secs(seconds);
        while *now < end {
            *now = rate_limit.reserve(*now).max(*now);
            rate_limit.record_write_latency(*now, time);
        }
    }

    #[test]
    fn the_rate_rises_while_requests_wait_and_latency_is_low() {
        let mut rate_limit = RateLimit::default();
        rate_limit.set_rate(NonZeroU32::new(1000).unwrap());
        assert_eq!(rate_limit.rate(), RATE_START);
        let mut now = Duration::from_secs(10);
        // Occasional requests, none of which waits.
        for _ in 0..100 {
            rate_limit.reserve(now);
            rate_limit.record_write_latency(now, WRITE_LATENCY_LOW / 4);
            now += Duration::from_secs(1);
        }
        assert_eq!(rate_limit.rate(), RATE_START);
        send(&mut rate_limit, &mut now, 60, WRITE_LATENCY_LOW / 4);
        assert_eq!(rate_limit.rate(), 1000);
        send(
            &mut rate_limit,
            &mut now,
            60,
            (WRITE_LATENCY_LOW + WRITE_LATENCY_HIGH) / 2,
        );
        assert_eq!(rate_limit.rate(), 1000);
        send(&mut rate_limit, &mut now, 60, WRITE_LATENCY_HIGH * 2);
        assert_eq!(rate_limit.rate(), RATE_START);
    }

    #[test]
    fn rejections_halve_the_rate_once_for_each_pause() {
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
        // The rate recovers, never above its bound.
        send(&mut rate_limit, &mut now, 120, WRITE_LATENCY_LOW / 4);
        assert_eq!(rate_limit.rate(), 100);
    }
}
