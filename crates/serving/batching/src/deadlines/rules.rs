//! Release rules of queues, and delays of dispatches.

use crate::Nanos;

/// The release rule of a queue: from when on its candidate may be dispatched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// From frontrun on, d - l(b + 1): a request that arrives later does not fit any more.
    Deferred {
        /// How long before frontrun the window opens.
        early: Nanos,
        /// How long the oldest request waits at most; `None`: until then.
        window: Option<Nanos>,
    },
    Eager,
    /// When the oldest request has waited for `delay`, even if that is too late for some.
    Timeout {
        /// How long the oldest request waits.
        delay: Nanos,
    },
}

/// Delays between a decision and the start of its batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    pub control: Nanos,
    /// For each row.
    pub data: Nanos,
}

impl Delays {
    /// The delay of a batch of so many rows.
    #[must_use]
    pub fn of(&self, rows: u64) -> Nanos {
        let data = self.data.0.saturating_mul(rows);
        Nanos(self.control.0.saturating_add(data))
    }

    pub(super) fn is_zero(&self) -> bool {
        *self == Self::default()
    }
}
