//! The bounds of this crate.

use crate::Nanos;

/// A batch with this much blame for deaths of workers is not run again as it is: its halves are,
/// and a request alone is given up. The caller weighs each death: a crash while the batch ran
/// weighs half, so that the second one ends it (a third would take a worker from everybody else for
/// nothing); a death that may have another cause weighs less.
pub const BLAME_MAX: u32 = 8;

/// What has waited this long without a deadline that could make it urgent gets its turn: far longer
/// than objectives are, so that it disturbs nobody, and short enough for a person who waits.
pub(crate) const OVERDUE_AFTER: Nanos = Nanos(1_000_000_000);

/// The turn is every so many batches: those with deadlines keep three quarters of the workers.
pub(crate) const OVERDUE_PERIOD: u32 = 3;
