//! Errors of explanations.

use crate::{MappingViolation, ProblemError, Slot};

/// Why a mapping cannot be explained.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExplainError {
    /// The problem is outside the limits.
    #[error(transparent)]
    Problem(#[from] ProblemError),
    /// The mapping does not fit this problem.
    #[error("the mapping does not fit this problem: {}", .0.first().map_or_else(String::new, ToString::to_string))]
    Mapping(Vec<MappingViolation>),
    /// The mapping has no such thread.
    #[error(
        "there is no thread {}.{}: workers are 0 to {workers_last}, ranks 0 to {ranks_last}",
        slot.worker.0, slot.rank.0
    )]
    NoThread {
        slot: Slot,
        /// W - 1.
        workers_last: u16,
        /// T - 1.
        ranks_last: u16,
    },
}
