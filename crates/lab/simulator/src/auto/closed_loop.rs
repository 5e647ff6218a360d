//! Whether requests come from clients that wait for their answers before they ask again.
//!
//! **Problem.** While requests of such clients are deferred they send none: nobody joins the batch,
//! and all that deferring does is to make them slower. From arrivals alone it cannot be told: with
//! several workers there are always some clients that have just been answered.
//!
//! **Approach.** An experiment. For [`EAGER`] arrivals nothing is deferred, after them it is, and
//! the mean gaps between arrivals are compared. If deferring made them longer by [`LONGER`] and by
//! more than chance explains, clients wait for their answers, and nothing is deferred for [`AGAIN`]
//! times as long as it took to see that; then it is tried again, and each time that it is confirmed
//! for twice as long up to [`AGAIN_MAX`] times. Otherwise it is deferred for [`DEFERRED`] arrivals,
//! and tried again unless requests are dropped: at the peak it could be wrong to dispatch at once.
//! Of a long eager turn the fastest part is compared: other queues may have deferred in the rest.
//!
//! **Limits.** A load that falls by itself just when the deferring begins is mistaken, until it is
//! tried again. Less than [`LONGER`] is not noticed. Each queue tries for itself: of clients that
//! spread their requests over many queues each sees only its own part of the effect.

/// Arrivals that are not deferred before it is tried.
const EAGER: u32 = 768;

/// Nothing is deferred for so many times the time that it took to see that clients wait; at most.
const AGAIN: f64 = 4.0;
const AGAIN_MAX: f64 = 128.0;

/// Arrivals that are deferred before it is tried again, and those of the comparison.
const DEFERRED: u32 = 1 << 17;
const COMPARED: u32 = 1 << 14;

/// Fewer arrivals say nothing.
const COMPARED_MIN: u32 = 64;

/// Gaps must be so much longer.
const LONGER: f64 = 1.1;

/// And by so many standard deviations.
const DEVIATIONS: f64 = 4.0;

#[derive(Clone, Copy, Debug, Default)]
struct Gaps {
    count: u32,
    sum: f64,
    squares: f64,
}

impl Gaps {
    fn add(&mut self, gap: f64) {
        self.count += 1;
        self.sum += gap;
        self.squares += gap * gap;
    }

    fn mean(&self) -> f64 {
        self.sum / f64::from(self.count)
    }

    /// The squared deviation of the mean.
    fn error_squared(&self) -> f64 {
        let mean = self.mean();
        let variance = (self.squares / f64::from(self.count) - mean * mean).max(0.0);
        variance / f64::from(self.count)
    }

    fn are_longer_than(&self, other: &Self) -> bool {
        let more = self.mean() - other.mean();
        let error_squared = self.error_squared() + other.error_squared();
        self.mean() > other.mean() * LONGER && more * more > DEVIATIONS * DEVIATIONS * error_squared
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ClosedLoopDetector {
    is_eager: bool,
    /// Of this turn or the part of it that is going on, and of the last eager turn's fastest part.
    gaps: Gaps,
    eager: Gaps,
    /// Arrivals of this turn, and the time since the last of the turn before, nanoseconds.
    arrivals: u32,
    time: f64,
    /// How long an eager turn is at least, nanoseconds.
    length: f64,
    /// How many times as long as the closed_loop the next one is if clients are seen to wait.
    again: f64,
}

impl Default for ClosedLoopDetector {
    fn default() -> Self {
        Self {
            is_eager: true,
            gaps: Gaps::default(),
            eager: Gaps::default(),
            arrivals: 0,
            time: 0.0,
            length: 0.0,
            again: AGAIN,
        }
    }
}

impl ClosedLoopDetector {
    /// Whether nothing is to be deferred.
    pub(super) fn is_eager(&self) -> bool {
        self.is_eager
    }

    /// A request arrived so long after the one before.
    pub(super) fn arrived(&mut self, gap: f64) {
        self.arrivals = self.arrivals.saturating_add(1);
        self.time += gap;
        // The first gap began in the turn before.
        if self.arrivals == 1 {
            return;
        }
        self.gaps.add(gap);
        if self.is_eager && self.gaps.count == EAGER {
            if self.eager.count == 0 || self.gaps.sum < self.eager.sum {
                self.eager = self.gaps;
            }
            self.gaps = Gaps::default();
        }
    }

    /// Goes on to the next turn if it is time.
    pub(super) fn decide(&mut self, is_dropping: bool) {
        if self.is_eager {
            if self.eager.count > 0 && self.time >= self.length {
                self.turn(false);
            }
            return;
        }
        let is_comparing = (COMPARED_MIN..=COMPARED).contains(&self.gaps.count);
        if is_comparing && self.gaps.are_longer_than(&self.eager) {
            self.length = self.time * self.again;
            self.again = (self.again * 2.0).min(AGAIN_MAX);
            self.eager = Gaps::default();
            self.turn(true);
        } else if self.arrivals >= DEFERRED && !is_dropping {
            self.length = 0.0;
            self.again = AGAIN;
            self.eager = Gaps::default();
            self.turn(true);
        }
    }

    fn turn(&mut self, is_eager: bool) {
        self.is_eager = is_eager;
        self.gaps = Gaps::default();
        self.arrivals = 0;
        self.time = 0.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of so many arrivals, how many were deferred, when gaps are these, eager and deferred.
    fn deferred(arrivals: u32, eager: f64, deferred: f64) -> u32 {
        let mut closed_loop = ClosedLoopDetector::default();
        let mut count = 0;
        for n in 0..arrivals {
            let mean = if closed_loop.is_eager() {
                eager
            } else {
                deferred
            };
            count += u32::from(!closed_loop.is_eager());
            // Three short ones and a long one.
            closed_loop.arrived(mean * if n % 4 == 3 { 3.1 } else { 0.3 });
            if n % 16 == 15 {
                closed_loop.decide(false);
            }
        }
        count
    }

    #[test]
    fn clients_that_wait_are_not_deferred() {
        let share = |part: u32| f64::from(part) / 100_000.0;
        assert!(share(deferred(100_000, 1e6, 5e6)) < 0.02);
        assert!(share(deferred(100_000, 1e6, 1.5e6)) < 0.04);
    }

    #[test]
    fn others_are_but_for_a_hundredth() {
        assert!(deferred(100_000, 1e6, 1e6) > 98_000);
        assert!(deferred(100_000, 1e6, 0.5e6) > 98_000);
    }

    #[test]
    fn nothing_is_tried_while_requests_are_dropped() {
        let mut closed_loop = ClosedLoopDetector::default();
        for n in 0..200_000 {
            closed_loop.arrived(1e6);
            if n % 16 == 15 {
                closed_loop.decide(true);
            }
            assert!(n < 1100 || !closed_loop.is_eager());
        }
    }
}
