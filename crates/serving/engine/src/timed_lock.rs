//! A mutex that measures how long it is held, the time that is serialized.
//!
//! Holding it takes tens of nanoseconds, about as long as reading the clock. So only one in
//! [`SAMPLE`] acquisitions is measured and counts for all of them, minus the time to read the
//! clock.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use albacore_batching::Nanos;

/// A prime, so that callers that lock in turn are sampled equally.
const SAMPLE: u64 = 17;

/// The shortest of several times between two readings of the clock.
static CLOCK_TIME: LazyLock<Duration> = LazyLock::new(|| {
    let times = (0..100).map(|_| Instant::now().elapsed());
    times.min().unwrap_or_default()
});

#[derive(Debug, Default)]
pub(crate) struct TimedLock<T> {
    mutex: Mutex<T>,
    /// Written under the lock.
    acquired: AtomicU64,
    nanos: AtomicU64,
}

/// The locked value.
pub(crate) struct TimedGuard<'a, T> {
    nanos: &'a AtomicU64,
    /// Time of the acquisition, if it is sampled.
    since: Option<Instant>,
    value: MutexGuard<'a, T>,
}

impl<T> TimedLock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            mutex: Mutex::new(value),
            acquired: AtomicU64::new(0),
            nanos: AtomicU64::new(0),
        }
    }

    /// Locks the value. A panic of another holder does not poison it: holders leave the value
    /// consistent.
    pub(crate) fn lock(&self) -> TimedGuard<'_, T> {
        let value = self.mutex.lock().unwrap_or_else(PoisonError::into_inner);
        let acquired = self.acquired.load(Ordering::Relaxed) + 1;
        self.acquired.store(acquired, Ordering::Relaxed);
        TimedGuard {
            nanos: &self.nanos,
            since: acquired.is_multiple_of(SAMPLE).then(Instant::now),
            value,
        }
    }

    /// Estimated total time for which it was held.
    pub(crate) fn held(&self) -> Nanos {
        Nanos(self.nanos.load(Ordering::Relaxed))
    }
}

impl<T> Deref for TimedGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for TimedGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> Drop for TimedGuard<'_, T> {
    fn drop(&mut self) {
        if let Some(since) = self.since {
            let held = since.elapsed().saturating_sub(*CLOCK_TIME);
            let held = Nanos::from(held).0.saturating_mul(SAMPLE);
            let known = self.nanos.load(Ordering::Relaxed);
            self.nanos
                .store(known.saturating_add(held), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_time_that_the_lock_is_held_is_sampled_without_waiting_time() {
        let lock = TimedLock::new(0_u64);
        for _ in 0..SAMPLE - 1 {
            *lock.lock() += 1;
        }
        assert_eq!(lock.held(), Nanos(0));
        let mut guard = lock.lock();
        *guard += 1;
        std::thread::sleep(Duration::from_millis(2));
        drop(guard);
        assert!(lock.held().0 >= SAMPLE * 1_900_000);
        assert_eq!(*lock.lock(), SAMPLE);
    }
}
