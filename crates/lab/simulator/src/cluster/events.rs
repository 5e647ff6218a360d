//! What happens at a known time, in order of time; at one time in the order of scheduling.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use albacore_batching::Nanos;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// A batch is computed, and its answers are there.
    BatchDone {
        batch: usize,
    },
    /// A forwarded request reaches a pod.
    Forwarded {
        request: usize,
        pod: usize,
    },
    /// A client sends a request once more.
    Resent {
        request: usize,
    },
    /// Some pod fails.
    Failure,
    Return {
        pod: usize,
    },
    /// Clients, routers and peers learn of it.
    Noticed {
        pod: usize,
        is_up: bool,
    },
    /// Pods report their load.
    Reports,
    /// Weights are computed.
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
