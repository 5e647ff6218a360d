//! Event queue in order of time; events at the same time are in the order in which they were
//! scheduled.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use albacore_batching::Nanos;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// A batch completes, and its answers are sent.
    BatchDone {
        batch: usize,
    },
    /// A forwarded request reaches a pod.
    Forwarded {
        request: usize,
        pod: usize,
    },
    /// A client retries a request.
    Resent {
        request: usize,
    },
    /// A random pod fails.
    Failure,
    Return {
        pod: usize,
    },
    /// Clients, routers and peers detect the failure or recovery.
    Noticed {
        pod: usize,
        is_up: bool,
    },
    /// Pods report their loads.
    Reports,
    /// Weights are recomputed.
    Weights,
}

#[derive(Debug, Default)]
pub(super) struct Events {
    heap: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    scheduled: u64,
}

impl Events {
    pub(super) fn schedule(&mut self, at: Nanos, event: Event) {
        self.scheduled += 1;
        self.heap.push(Reverse((at, self.scheduled, event)));
    }

    pub(super) fn next_at(&self) -> Option<Nanos> {
        self.heap.peek().map(|next| next.0.0)
    }

    pub(super) fn next(&mut self) -> Option<Event> {
        self.heap.pop().map(|next| next.0.2)
    }
}
