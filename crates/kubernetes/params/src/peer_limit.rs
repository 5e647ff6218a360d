//! A limit on connections or streams, in total and per peer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::snapshots::Peer;

/// Limits the number of permits in use, in total and per peer. Clones share the limits.
#[derive(Clone, Debug)]
pub(crate) struct PeerLimiter {
    in_use: Arc<Mutex<HashMap<Peer, usize>>>,
    total_max: usize,
    per_peer_max: usize,
}

/// A permit that is released on drop.
#[derive(Debug)]
pub(crate) struct PeerPermit {
    limiter: PeerLimiter,
    peer: Peer,
}

/// The limit that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LimitReached {
    Total,
    Peer,
}

impl PeerLimiter {
    pub(crate) fn new(total_max: usize, per_peer_max: usize) -> Self {
        Self {
            in_use: Arc::default(),
            total_max,
            per_peer_max,
        }
    }

    pub(crate) fn acquire(&self, peer: Peer) -> Result<PeerPermit, LimitReached> {
        let mut in_use = self.lock();
        let of_peer = in_use.get(&peer).copied().unwrap_or(0);
        if of_peer >= self.per_peer_max {
            return Err(LimitReached::Peer);
        }
        if in_use.values().sum::<usize>() >= self.total_max {
            return Err(LimitReached::Total);
        }
        in_use.insert(peer, of_peer + 1);
        let limiter = self.clone();
        Ok(PeerPermit { limiter, peer })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Peer, usize>> {
        self.in_use.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PeerPermit {
    fn drop(&mut self) {
        let mut in_use = self.limiter.lock();
        if let Some(count) = in_use.get_mut(&self.peer) {
            *count -= 1;
            if *count == 0 {
                in_use.remove(&self.peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_are_limited_in_all_and_per_peer() {
        let limiter = PeerLimiter::new(3, 2);
        let (one, other, third) = (Peer::User(1), Peer::User(2), Peer::User(3));
        let first = limiter.acquire(one).unwrap();
        let second = limiter.acquire(one).unwrap();
        assert_eq!(limiter.acquire(one).unwrap_err(), LimitReached::Peer);
        let _of_other = limiter.acquire(other).unwrap();
        assert_eq!(limiter.acquire(third).unwrap_err(), LimitReached::Total);
        drop(first);
        let _of_third = limiter.acquire(third).unwrap();
        drop(second);
        let in_use = limiter.lock().clone();
        assert_eq!(in_use, HashMap::from([(other, 1), (third, 1)]));
    }
}
