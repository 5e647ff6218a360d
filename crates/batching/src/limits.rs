//! The bounds of this crate.

/// A batch with this much blame for deaths of workers is not run again. The caller weighs each
/// death: a crash while the batch ran weighs half, so that the second one ends it (a third would
/// take a worker from everybody else for nothing); a death that may have another cause weighs less.
pub const BLAME_MAX: u32 = 8;

/// Withdrawn requests stay in their queue as tombstones until they outnumber the live ones by this
/// many: then the queue is swept. So memory is bounded by the live requests, and a sweep costs
/// constant time for each withdrawal.
pub(crate) const TOMBSTONES_SLACK: usize = 64;
