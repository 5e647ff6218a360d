//! Requests that are not finished, and the batches that run.

use albacore_batching::Nanos;
use slab::Slab;

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Between client and pods, or in a batch.
    Elsewhere,
    /// In the queue of this cell.
    Waiting { cell: usize },
}

#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) model: usize,
    /// When the client sent it.
    pub(super) sent: Nanos,
    pub(super) router: usize,
    /// The pod that its router counts it at.
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
    /// Its pod failed: it has no requests any more.
    pub(super) is_lost: bool,
}

/// The keys of the values that `is_asked` accepts.
pub(super) fn keys<T>(values: &Slab<T>, is_asked: impl Fn(&T) -> bool) -> Vec<usize> {
    let asked = values.iter().filter(|(_, value)| is_asked(value));
    asked.map(|(key, _)| key).collect()
}
