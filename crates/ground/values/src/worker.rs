//! The number of a worker process in its server.

/// Index of a worker, 0..W-1; a respawned worker keeps the index of the one it replaces.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WorkerIndex(pub u16);

impl WorkerIndex {
    /// Of a position in a list of workers. Servers have at most `u16::MAX` of them; a position
    /// beyond is taken for the last.
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
