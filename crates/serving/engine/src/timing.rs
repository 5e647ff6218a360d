//! How long the parts of a request took.

use std::time::Duration;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// From submission to the first dispatch.
    pub queue: Duration,
    /// The part of `queue` in which a worker was free: the batch was deferred on purpose.
    pub deferred: Duration,
    /// In the worker's compute threads.
    pub compute: Duration,
}

impl Timing {
    pub(crate) fn new(queue_nanos: u64, deferred_nanos: u64, compute_nanos: u64) -> Self {
        Self {
            queue: Duration::from_nanos(queue_nanos),
            deferred: Duration::from_nanos(deferred_nanos),
            compute: Duration::from_nanos(compute_nanos),
        }
    }
}
