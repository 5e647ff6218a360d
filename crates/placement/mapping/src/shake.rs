//! Out of a local optimum: a few moves regardless of gain, then climb again.
//!
//! **Problem.** Exchanges and shifts alone get stuck where only two moves together gain.
//! **Approach.** Iterated local search: some legal moves drawn from a fixed sequence, climb, keep
//! the result unless it is worse. **Proof sketch.** Every state on the way is valid and the best is
//! kept, so this can only help. **Limits.** Rounds are bounded by [`SHAKES_MAX`] and by the work
//! that a climb is ([`SHAKE_WORK_MAX`]); the sequence starts from a constant, so that equal
//! problems have equal answers.

use std::ops::Range;

use crate::improve::Search;
use crate::limits::{SHAKE_PARTS, SHAKE_WORK_MAX, SHAKES_MAX};

/// Tries to reach `goal` in some of all rounds, counted in [`SHAKE_PARTS`]; leaves the best deal
/// found in `search`.
pub(crate) fn shake(
    search: &mut Search<'_>,
    goal: i64,
    part: Range<usize>,
    out_of_budget: &mut dyn FnMut() -> bool,
) {
    let mut best = search.objective();
    let threads = search.threads();
    let rounds = SHAKES_MAX.min(SHAKE_WORK_MAX / (threads * threads).max(1));
    let mut sequence = Sequence(0x9e37_79b9_7f4a_7c15 + part.start as u64);
    for round in rounds * part.start / SHAKE_PARTS..rounds * part.end / SHAKE_PARTS {
        if best >= goal || out_of_budget() {
            return;
        }
        let mut trial = search.clone();
        for _ in 0..2 + round % 4 {
            trial.move_anyway(&mut |below| sequence.below(below));
        }
        trial.climb(goal, out_of_budget);
        let value = trial.objective();
        if value >= best {
            best = value;
            *search = trial;
        }
    }
}

/// xorshift64: a fixed sequence of numbers without pattern.
pub(crate) struct Sequence(pub(crate) u64);

impl Sequence {
    pub(crate) fn below(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 32) as usize) % below.max(1)
    }
}
