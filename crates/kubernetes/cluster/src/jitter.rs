//! Random pauses and names, seeded by the standard library's hash maps. Not suitable for secrets.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

/// 64 random bits.
fn bits() -> u64 {
    RandomState::new().hash_one(0_u8)
}

/// `pause` plus up to half of it, so that requests that failed together are not retried
/// simultaneously.
pub(crate) fn with_jitter(pause: Duration) -> Duration {
    let part = u32::try_from(bits() % 1024).unwrap_or_default();
    pause + pause * part / 2048
}

/// A random pause below `max`, so that processes do not act simultaneously.
pub fn jitter(max: Duration) -> Duration {
    let part = u32::try_from(bits() % 1024).unwrap_or_default();
    max * part / 1024
}

/// Exponential backoff: `first` doubled `times` times, at most `max`, with jitter.
pub(crate) fn backoff(first: Duration, max: Duration, times: u32) -> Duration {
    let pause = first.saturating_mul(1_u32.checked_shl(times).unwrap_or(u32::MAX));
    with_jitter(pause.min(max))
}

/// `prefix` and 64 random bits: a unique name for the holder of a lease.
pub fn unique(prefix: &str) -> String {
    format!("{prefix}_{:016x}", bits())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_their_bound_and_differ() {
        let [first, max] = [Duration::from_millis(100), Duration::from_secs(60)];
        for times in 0..40 {
            let bare = (first * 2_u32.pow(times.min(20))).min(max);
            let pause = backoff(first, max, times);
            assert!((bare..=bare * 3 / 2).contains(&pause), "{times}: {pause:?}");
        }
        assert!((0..40).all(|_| jitter(max) < max));
        assert_ne!(unique("a"), unique("a"));
    }
}
