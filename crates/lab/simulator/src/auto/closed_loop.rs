//! Detects closed-loop clients, which wait for a reply before they send the next request.
//!
//! **Problem.** While requests of such clients are deferred they send none: no request joins the
//! batch, and deferring only makes them slower. Arrivals alone do not show it: with several workers
//! there are always some clients that have just been answered.
//!
//! **Approach.** An experiment. For [`EAGER`] arrivals nothing is deferred, after them it is, and
//! the mean gaps between arrivals are compared. If deferring made them longer by [`LONGER`] and by
//! more than chance explains, the clients are closed-loop, and nothing is deferred for [`AGAIN`]
//! times as long as the detection took; then it is tried again, and each time that it is confirmed
//! for twice as long up to [`AGAIN_MAX`] times. Otherwise requests are deferred for [`DEFERRED`]
//! arrivals before the next experiment, which is postponed while requests are dropped: at the peak
//! it could be wrong to dispatch at once. Of a long eager phase the fastest part is compared: other
//! queues may have deferred in the rest.
//!
//! **Limits.** A load that falls by itself just when the deferring begins is mistaken until the
//! next experiment. Less than [`LONGER`] is not noticed. Each queue experiments for itself: of
//! clients that spread their requests over many queues each sees only its own part of the effect.

/// Arrivals of an eager phase before an experiment.
const EAGER: u32 = 768;

/// How long nothing is deferred after a detection, as a multiple of the time that it took; at first
/// and at most.
const AGAIN: f64 = 4.0;
const AGAIN_MAX: f64 = 128.0;

/// Deferred arrivals before the next experiment, and those of a comparison.
const DEFERRED: u32 = 1 << 17;
const COMPARED: u32 = 1 << 14;

/// Fewer arrivals are not compared.
const COMPARED_MIN: u32 = 64;

/// Gaps must be longer by this factor.
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
    /// Of this phase or the present part of it, and of the fastest part of the last eager phase.
    gaps: Gaps,
    eager: Gaps,
    /// Arrivals of this phase, and the time since the last arrival of the phase before,
    /// nanoseconds.
    arrivals: u32,
    time: f64,
    /// The shortest time of an eager phase, nanoseconds.
    length: f64,
    /// The multiple for the next detection.
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
        // The first gap began in the phase before.
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

    /// Begins the next phase if it is time.
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

    /// How many arrivals are deferred with these gaps in eager and deferred phases.
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
