//! Index of a worker process in its server.

/// Worker index, 0..W-1. A respawned worker keeps the index of the worker that it replaces.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WorkerIndex(pub u16);

impl WorkerIndex {
    /// The index of a position in a list of workers, saturating at `u16::MAX`, the maximum number
    /// of workers of a server.
    #[must_use]
    pub fn at(position: usize) -> Self {
        Self(u16::try_from(position).unwrap_or(u16::MAX))
    }

    /// The position in a list of workers.
    #[must_use]
    pub fn position(self) -> usize {
        usize::from(self.0)
    }
}
