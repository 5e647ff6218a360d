//! The bounds of this crate.

use crate::Nanos;

/// A batch with this much blame for lost workers is not replayed as it is: its halves are, and a
/// request alone is abandoned. The caller weighs each loss: a crash while the batch ran weighs
/// half, so that the second one is the last (a third would take one more worker for nothing); a
/// loss that may have another cause weighs less.
pub const BLAME_MAX: u32 = 8;

/// A request without a deadline that could make it urgent is overdue after this: far longer than
/// objectives are, so that it disturbs no other, and short enough for a person who waits.
pub(crate) const OVERDUE_AFTER: Nanos = Nanos(1_000_000_000);

/// At most one in so many batches is of overdue requests: those with deadlines keep three quarters
/// of the workers.
pub(crate) const OVERDUE_PERIOD: u32 = 3;
