//! The release rule: in which window a candidate may be dispatched.

use crate::Nanos;

/// When a batch leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The scheduler's own choice. Nothing has been learned that would make waiting worth it, so a
    /// batch leaves as soon as a worker is free.
    Auto,
    /// As soon as a worker is free.
    Eager,
    /// When the oldest request has waited for `delay`, or when no further request fits.
    Timeout {
        /// How long the oldest request waits.
        delay: Nanos,
    },
}

/// The best batch that a queue could release now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Rows of the batch; of a full one an upper bound, because its last request may not fit.
    pub rows: usize,
    /// When its oldest request arrived.
    pub oldest: Nanos,
    /// Whether no further request fits.
    pub is_full: bool,
}

/// The times at which a candidate may be dispatched, both inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// From here on waiting does not help.
    pub exec: Nanos,
    /// From here on it is late; [`Nanos::MAX`] under a rule that knows no deadlines.
    pub latest: Nanos,
}

impl Policy {
    /// The window of `candidate`. Depends on nothing else, so a timer set for `exec` stays right
    /// until the candidate changes.
    #[must_use]
    pub fn window(&self, candidate: &Candidate) -> Window {
        let exec = match self {
            Self::Timeout { delay } if !candidate.is_full => {
                candidate.oldest.saturating_add(*delay)
            }
            Self::Auto | Self::Eager | Self::Timeout { .. } => candidate.oldest,
        };
        Window {
            exec,
            latest: Nanos::MAX,
        }
    }
}
