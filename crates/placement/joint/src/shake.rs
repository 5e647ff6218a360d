//! Out of a local optimum: a few exchanges regardless of gain, then mend and climb again.
//!
//! As `shake` for one deployment: every state on the way is valid, what is not better is taken
//! back, the sequence of numbers is fixed. Where every thread runs already and may stay, nobody is
//! shaken: then only moves that pay one by one are proposed.

use super::climb::{Climber, Spent, look, make, mend};
use super::search::{Move, Search};
use crate::limits::{SHAKE_TRIES_MAX, SHAKE_WORK_MAX, SHAKES_MAX};

/// What is small in a good state: breaches, minus value less cost of moves, minus threads that
/// stay.
fn key(search: &Search<'_>) -> (i64, i64, i64) {
    let worth = search.value + search.move_cost * search.kept;
    (search.breach(), -worth, -search.kept)
}

/// Tries to reach `goal` from where `climber` ended; leaves the best state found in `search`.
pub(super) fn shake(search: &mut Search<'_>, climber: &mut Climber, goal: i64, spent: Spent<'_>) {
    let threads = search.threads.len();
    let work = (threads + search.site.cpus) * search.site.cpus;
    let rounds = SHAKES_MAX.min(SHAKE_WORK_MAX / work.max(1));
    let mut best = key(search);
    let mut sequence = Sequence(0x9e37_79b9_7f4a_7c15);
    for round in 0..rounds {
        if (search.breach() == 0 && search.value >= goal) || spent() {
            return;
        }
        search.trail.clear();
        for _ in 0..2 + round % 4 {
            kick(search, &mut sequence);
        }
        mend(search, spent);
        climber.note(search, &search.trail);
        climber.climb_on(search, goal, spent);
        let after = key(search);
        if after <= best {
            best = after;
        } else {
            climber.note(search, &search.trail);
            let undone = search.undo();
            climber.note(search, &undone);
        }
        climber.rest();
    }
}

/// An exchange that breaks no rule on mains further.
fn kick(search: &mut Search<'_>, sequence: &mut Sequence) {
    let threads = search.threads.len();
    for _ in 0..SHAKE_TRIES_MAX {
        let step = Move::Exchange(sequence.below(threads), sequence.below(threads));
        if look(search, step).is_some_and(|(breach, _)| breach <= 0) {
            return make(search, step);
        }
    }
}

/// xorshift64: a fixed sequence of numbers without pattern.
struct Sequence(u64);

impl Sequence {
    fn below(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 32) as usize) % below.max(1)
    }
}
