//! The bounds of this crate.

use crate::Nanos;

/// A batch that reaches this blame for lost workers is no longer replayed whole: it is split into
/// halves, and a single request is abandoned. The caller weighs each loss: a crash while the batch
/// ran weighs half, so the second crash is the last (a third would cost one more worker without
/// benefit); a loss that may have another cause weighs less.
pub const BLAME_MAX: u32 = 8;

/// A request without an urgent deadline is overdue after this wait: far longer than usual
/// objectives, so that it delays no other request, and short enough for an interactive user.
pub(crate) const OVERDUE_AFTER: Nanos = Nanos(1_000_000_000);

/// At most one batch in this many contains overdue requests: requests with deadlines keep three
/// quarters of the workers.
pub(crate) const OVERDUE_PERIOD: u32 = 3;
