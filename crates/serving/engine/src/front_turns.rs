//! Turns of requests in their event loop.
//!
//! **Problem.** An event loop runs ready tasks in order. A flood on a thousand connections is
//! always ready, and a request of another model waits behind all of it, twice: to be read and to be
//! answered.
//!
//! **Approach.** Reading the rows of a request and serializing its results, most of its cost, is
//! done in turns: one request at a time, in arrival order, among those that exceed their share of
//! the front's time ([`crate::admission`]). The end of a turn makes the next one ready behind all
//! other tasks that are ready by then; so between two turns every other request makes progress.
//! Requests within their share take no turn, and a free turn is granted immediately.
//!
//! **Limits.** Reading the head of a request takes no turn, and neither do rejections.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::LoopIndex;

/// The turns of all event loops.
#[derive(Debug)]
pub(super) struct FrontTurns(Box<[Arc<Semaphore>]>);

/// A turn, held until it is dropped. It must not be held while its task waits.
#[derive(Debug)]
pub struct FrontTurn {
    _permit: Option<OwnedSemaphorePermit>,
}

impl FrontTurn {
    /// For a request that needs no turn.
    pub(super) const FREE: Self = Self { _permit: None };
}

impl FrontTurns {
    pub(super) fn new(loops: usize) -> Self {
        Self((0..loops).map(|_| Arc::new(Semaphore::new(1))).collect())
    }

    /// Waits for the next turn.
    pub(super) async fn next(&self, event_loop: LoopIndex) -> FrontTurn {
        let turns = Arc::clone(&self.0[event_loop.0]);
        FrontTurn {
            // Never closed, so the permit is always granted.
            _permit: turns.acquire_owned().await.ok(),
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
        let turns = FrontTurns::new(2);
        let mut context = Context::from_waker(Waker::noop());
        let mut waiting = [(); 3].map(|()| Box::pin(turns.next(LoopIndex(0))));
        let first = waiting[0].as_mut().poll(&mut context);
        assert!(first.is_ready(), "it is free");
        for waiting in &mut waiting[1..] {
            assert!(waiting.as_mut().poll(&mut context).is_pending());
        }
        let mut other = pin!(turns.next(LoopIndex(1)));
        assert!(other.as_mut().poll(&mut context).is_ready(), "another loop");
        drop(first);
        assert!(waiting[2].as_mut().poll(&mut context).is_pending());
        let second = waiting[1].as_mut().poll(&mut context);
        assert!(second.is_ready());
        // A request that is dropped gives its turn to the next one.
        drop(second);
        assert!(waiting[2].as_mut().poll(&mut context).is_ready());
    }
}
