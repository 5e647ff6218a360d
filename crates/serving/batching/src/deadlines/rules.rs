//! Release rules of queues, and delays of dispatches.

use crate::Nanos;

/// Release rule of a queue: from when on its candidate may be dispatched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// From frontrun, d - l(b + 1), on: a request that arrives later no longer fits.
    Deferred {
        /// How long before frontrun the window opens.
        early: Nanos,
        /// Longest wait of the oldest request; `None`: until then.
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
    /// Per row.
    pub data: Nanos,
}

impl Delays {
    /// Total delay of a batch.
    #[must_use]
    pub fn of(&self, rows: u64) -> Nanos {
        let data = self.data.0.saturating_mul(rows);
        Nanos(self.control.0.saturating_add(data))
    }

    pub(super) fn is_zero(&self) -> bool {
        *self == Self::default()
    }
}
