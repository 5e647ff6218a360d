//! Permits for the processing of requests in their event loop.
//!
//! **Problem.** An event loop runs ready tasks in order. A flood on a thousand connections is
//! always ready, and a request of another model waits behind all of it, twice: to be read and to be
//! answered.
//!
//! **Approach.** Reading the rows of a request and serializing its results, most of its cost,
//! requires the permit of the event loop if the request exceeds its share of the front's time
//! ([`crate::admission`]): one request at a time, in arrival order. Releasing the permit makes the
//! next one ready behind all other tasks that are ready by then; so between two of them every other
//! request makes progress. Requests within their share need no permit, and a free permit is granted
//! immediately.
//!
//! **Limits.** Reading the head of a request needs no permit, and neither do rejections.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::LoopIndex;

/// The permits of all event loops, one each.
#[derive(Debug)]
pub(super) struct FrontPermits(Box<[Arc<Semaphore>]>);

/// A permit, held until it is dropped. It must not be held while its task waits.
#[derive(Debug)]
pub struct FrontPermit {
    _permit: Option<OwnedSemaphorePermit>,
}

impl FrontPermit {
    /// For a request that needs no permit.
    pub(super) const NOT_NEEDED: Self = Self { _permit: None };
}

impl FrontPermits {
    pub(super) fn new(loops: usize) -> Self {
        Self((0..loops).map(|_| Arc::new(Semaphore::new(1))).collect())
    }

    /// Waits for the permit.
    pub(super) async fn acquire(&self, event_loop: LoopIndex) -> FrontPermit {
        let permits = Arc::clone(&self.0[event_loop.0]);
        FrontPermit {
            // Never closed, so the permit is always granted.
            _permit: permits.acquire_owned().await.ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    #[test]
    fn turns_of_a_loop_are_exclusive_and_in_order() {
        let permits = FrontPermits::new(2);
        let mut context = Context::from_waker(Waker::noop());
        let mut waiting = [(); 3].map(|()| Box::pin(permits.acquire(LoopIndex(0))));
        let first = waiting[0].as_mut().poll(&mut context);
        assert!(first.is_ready(), "it is free");
        for waiting in &mut waiting[1..] {
            assert!(waiting.as_mut().poll(&mut context).is_pending());
        }
        let mut other = pin!(permits.acquire(LoopIndex(1)));
        assert!(other.as_mut().poll(&mut context).is_ready(), "another loop");
        drop(first);
        assert!(waiting[2].as_mut().poll(&mut context).is_pending());
        let second = waiting[1].as_mut().poll(&mut context);
        assert!(second.is_ready());
        // A request that is dropped passes its permit on.
        drop(second);
        assert!(waiting[2].as_mut().poll(&mut context).is_ready());
    }
}
