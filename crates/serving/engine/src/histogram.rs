//! Histograms with fixed bounds: durations and row counts.

/// Upper bounds of the duration buckets in nanoseconds; the last bucket is unbounded.
pub const DURATION_BOUNDS_NANOS: [u64; 15] = [
    50_000,
    100_000,
    150_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    1_000_000_000,
    10_000_000_000,
];

/// Upper bounds of the batch size buckets in rows; the last bucket is unbounded.
pub(super) const ROWS_BOUNDS: [u64; 15] = [
    1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 16_384, 65_536,
];

/// A histogram over one of the fixed tables of bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    /// Upper bounds, inclusive; there is one more bucket than bounds.
    pub bounds: &'static [u64; 15],
    /// Number of values per bucket (not cumulative); the last bucket is unbounded.
    pub buckets: [u64; 16],
    /// Sum of all values, in the unit of `bounds`.
    pub sum: u64,
    pub count: u64,
}

impl Histogram {
    /// An empty histogram of durations in nanoseconds.
    #[must_use]
    pub(super) const fn durations() -> Self {
        Self {
            bounds: &DURATION_BOUNDS_NANOS,
            buckets: [0; 16],
            sum: 0,
            count: 0,
        }
    }

    /// An empty histogram of row counts.
    #[must_use]
    pub(super) const fn rows() -> Self {
        Self {
            bounds: &ROWS_BOUNDS,
            buckets: [0; 16],
            sum: 0,
            count: 0,
        }
    }

    /// Counts `value`.
    pub fn record(&mut self, value: u64) {
        let bucket = self.bounds.partition_point(|&bound| bound < value);
        self.buckets[bucket] += 1;
        self.sum = self.sum.saturating_add(value);
        self.count += 1;
    }

    /// Adds the values of `other`, which must have the same bounds.
    pub(super) fn add(&mut self, other: &Self) {
        let buckets = self.buckets.iter_mut().zip(&other.buckets);
        buckets.for_each(|(sum, count)| *sum += count);
        self.sum = self.sum.saturating_add(other.sum);
        self.count += other.count;
    }
}
