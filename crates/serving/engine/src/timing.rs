//! Durations of the stages of a request.

use std::time::Duration;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// From submission to the first dispatch.
    pub queue: Duration,
    /// The part of `queue` in which a worker was idle: the batch was deferred on purpose.
    pub deferred: Duration,
    /// Compute time of the worker.
    pub compute: Duration,
}
