//! Indices of queues and requests.

/// Index of a queue of requests that may share a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueIndex(pub usize);

/// Key of a request, assigned by the caller; increases with each arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestKey(pub u64);
