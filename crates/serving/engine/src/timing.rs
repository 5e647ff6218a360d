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
