//! The bounds of this crate.

/// A batch that ended this many workers is not run again: the second death makes the batch the
/// likely cause, and a third would take a worker from everybody else for nothing.
pub const LOSSES_MAX: u32 = 2;

/// Withdrawn requests stay in their queue as tombstones until they outnumber the live ones by this
/// many: then the queue is swept. So memory is bounded by the live requests, and a sweep costs
/// constant time for each withdrawal.
pub(crate) const TOMBSTONES_SLACK: usize = 64;
