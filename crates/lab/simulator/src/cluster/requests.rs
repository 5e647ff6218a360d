//! Unfinished requests and running batches.

use albacore_batching::Nanos;
use slab::Slab;

/// Location of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// On the network or in a batch.
    Elsewhere,
    /// In the queue of this cell.
    Waiting { cell: usize },
}

#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) model: usize,
    /// Send time of the client.
    pub(super) sent: Nanos,
    pub(super) router: usize,
    /// The pod to which its router attributes it.
    pub(super) routed: Option<usize>,
    pub(super) place: Place,
    pub(super) is_measured: bool,
    pub(super) is_forwarded: bool,
    pub(super) is_resent: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Batch {
    pub(super) cell: usize,
    pub(super) pod: usize,
    pub(super) requests: Vec<usize>,
    /// The pod failed: the batch has no requests any more.
    pub(super) is_lost: bool,
}

/// Keys of the values for which `predicate` returns true.
pub(super) fn keys_where<T>(values: &Slab<T>, predicate: impl Fn(&T) -> bool) -> Vec<usize> {
    let matching = values.iter().filter(|(_, value)| predicate(value));
    matching.map(|(key, _)| key).collect()
}
