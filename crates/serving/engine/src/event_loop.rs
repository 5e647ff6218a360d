//! The event loops of the front, which submit requests and collect results.

/// An event loop, counted from 0. Work of a request that need not be shared (memory, submission,
/// notification) is kept by its loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoopIndex(pub usize);
