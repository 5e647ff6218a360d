//! Conditions under which learned costs are used.

use super::*;

const MS: Nanos = Nanos(1_000_000);

/// The numbers of the batches of one row after which the scheduler gets costs.
fn reported(time: Nanos, batches: u64) -> Vec<u64> {
    let mut queue = LearnedQueue::new(Kind::Value, None);
    let mut is_reported = |_: &u64| queue.observe(1, time) && queue.profile().cost.is_some();
    (1..=batches).filter(&mut is_reported).collect()
}

#[test]
fn costs_of_short_batches_are_updated_periodically_and_of_long_ones_after_each_batch() {
    assert_eq!(reported(Nanos(50_000), 50), [8, 16, 32, 48]);
    assert_eq!(reported(Nanos(MS.0 * 4), 12), [3, 6, 8, 11]);
    assert_eq!(reported(Nanos(MS.0 * 100), 6), [3, 4, 5, 6]);
}
