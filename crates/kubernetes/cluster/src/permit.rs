//! Whether this process may write: the wall between a leader that was paused and the cluster that
//! went on without it.
//!
//! The moment is monotonic and asked right before a request is sent. A machine that is suspended as
//! a whole does not count the time of its sleep on that clock; what such a machine still sends in
//! its first instant is bounded by the connection, which the API server has closed meanwhile.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::cluster::Writes;

/// The permission to write, until a moment.
#[derive(Debug)]
pub(crate) struct Permit {
    writes: Writes,
    until: Mutex<Option<Instant>>,
}

impl Permit {
    pub(crate) fn new(writes: Writes) -> Self {
        let until = Mutex::new(None);
        Self { writes, until }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        // One word is stored at once, so a panic elsewhere leaves nothing half done.
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Permits writes until `until`.
    pub(crate) fn extend(&self, until: Instant) {
        *self.lock() = Some(until);
    }

    /// Forbids writes from now on.
    pub(crate) fn revoke(&self) {
        *self.lock() = None;
    }

    /// Returns when writes are not permitted any more, as often as the permission was extended
    /// meanwhile.
    pub(crate) async fn ended(&self) {
        if self.writes == Writes::Always {
            return std::future::pending().await;
        }
        // bound: a turn for each extension; each ends with the permission.
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
    pub(crate) fn is_valid(&self, now: Instant) -> bool {
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
    async fn the_end_is_that_of_the_last_extension() {
        let start = Instant::now();
        let permit = Permit::new(Writes::WhileLeading);
        let (first, last) = (Duration::from_millis(2_000), Duration::from_millis(2_050));
        permit.extend(start + first);
        // Polled after the other, which waits for the first end by then.
        let extend = async { permit.extend(start + last) };
        tokio::join!(biased; permit.ended(), extend);
        assert!(start.elapsed() >= last);
    }

    #[test]
    fn writes_are_permitted_until_a_moment() {
        let now = Instant::now();
        let second = Duration::from_secs(1);
        let permit = Permit::new(Writes::WhileLeading);
        assert!(!permit.is_valid(now));
        permit.extend(now + second);
        assert!(permit.is_valid(now));
        assert!(!permit.is_valid(now + second));
        permit.revoke();
        assert!(!permit.is_valid(now));
        assert!(Permit::new(Writes::Always).is_valid(now));
    }
}
