//! The write fence (fencing by deadline): prevents writes of a leader that was paused until another
//! one was elected.
//!
//! It closes at a deadline on the monotonic clock, which is read right before each request is sent.
//! That clock does not count the time during which the whole machine is suspended. After a suspend,
//! writes are limited by the connection, which the API server has closed meanwhile.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// When a program may write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Writes {
    /// Always, because there is only one instance, or it only reads.
    #[default]
    Always,
    /// While it holds its [`crate::Lease`]; other writes are rejected before they are sent.
    WhileLeading,
}

/// A fence that is open until a deadline.
#[derive(Debug)]
pub(crate) struct WriteFence {
    writes: Writes,
    open_until: Mutex<Option<Instant>>,
}

impl WriteFence {
    pub(crate) fn new(writes: Writes) -> Self {
        let open_until = Mutex::new(None);
        Self { writes, open_until }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        // A single value is stored, so a panic leaves no partial state.
        self.open_until
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Permits writes until `until`.
    pub(crate) fn open_until(&self, until: Instant) {
        *self.lock() = Some(until);
    }

    /// Forbids writes from now on.
    pub(crate) fn close(&self) {
        *self.lock() = None;
    }

    /// Waits until the fence is closed, including all extensions of its deadline.
    pub(crate) async fn closed(&self) {
        if self.writes == Writes::Always {
            return std::future::pending().await;
        }
        // bound: one turn for each extension
        loop {
            let until = *self.lock();
            match until {
                Some(until) if Instant::now() < until => {
                    tokio::time::sleep_until(until.into()).await;
                }
                _ => return,
            }
        }
    }

    /// Whether a write may be sent at `now`.
    pub(crate) fn is_open(&self, now: Instant) -> bool {
        match self.writes {
            Writes::Always => true,
            Writes::WhileLeading => self.lock().is_some_and(|until| now < until),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn the_fence_closes_after_its_last_extension() {
        let start = Instant::now();
        let fence = WriteFence::new(Writes::WhileLeading);
        let (first, last) = (Duration::from_millis(2_000), Duration::from_millis(2_050));
        fence.open_until(start + first);
        // Polled second, while the first future waits for the first deadline.
        let extend = async { fence.open_until(start + last) };
        tokio::join!(biased; fence.closed(), extend);
        assert!(start.elapsed() >= last);
    }

    #[test]
    fn writes_are_permitted_until_a_moment() {
        let now = Instant::now();
        let second = Duration::from_secs(1);
        let fence = WriteFence::new(Writes::WhileLeading);
        assert!(!fence.is_open(now));
        fence.open_until(now + second);
        assert!(fence.is_open(now));
        assert!(!fence.is_open(now + second));
        fence.close();
        assert!(!fence.is_open(now));
        assert!(WriteFence::new(Writes::Always).is_open(now));
    }
}
