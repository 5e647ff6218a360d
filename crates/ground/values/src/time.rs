//! Points in time and durations of the kernel's monotonic clocks.

use std::time::Duration;

/// Microseconds since boot, including time suspended (`CLOCK_BOOTTIME`, the clock of thread start
/// times), or the difference of two such times.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Micros(pub u64);

/// A point in time or a duration in nanoseconds of a monotonic clock; the caller knows which one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// Later than any real time.
    pub const MAX: Self = Self(u64::MAX);

    /// The sum, at most [`Nanos::MAX`].
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference, at least zero.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl From<Duration> for Nanos {
    /// At most [`Nanos::MAX`].
    fn from(duration: Duration) -> Self {
        Self(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Nanos> for Duration {
    fn from(nanos: Nanos) -> Self {
        Self::from_nanos(nanos.0)
    }
}
