//! Times as the kernel's monotonic clocks give them.

/// Microseconds since boot, suspended time included (`CLOCK_BOOTTIME`, the clock of thread start
/// times), or a span between two such times.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Micros(pub u64);
