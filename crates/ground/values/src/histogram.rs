//! Histogram of durations with logarithmic buckets and bounded memory.

/// Counts values in `STEPS` equal buckets per power of two, so that the relative error of a
/// quantile is at most 1 / `STEPS`. `STEPS` is a power of two; values below it are counted exactly.
/// Buckets are allocated up to the largest value only, at most 64 * `STEPS` of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogHistogram<const STEPS: u64> {
    counts: Vec<u64>,
    total: u64,
    max: u64,
}

impl<const STEPS: u64> LogHistogram<STEPS> {
    pub fn record(&mut self, value: u64) {
        let bucket = Self::bucket(value);
        self.grow_to(bucket + 1);
        self.counts[bucket] += 1;
        self.total += 1;
        self.max = self.max.max(value);
    }

    /// Adds the values that `other` counted.
    pub fn merge(&mut self, other: &Self) {
        self.grow_to(other.counts.len());
        let counts = self.counts.iter_mut().zip(&other.counts);
        counts.for_each(|(sum, count)| *sum += count);
        self.total += other.total;
        self.max = self.max.max(other.max);
    }

    /// Upper ends and counts of the non-empty buckets.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        let counts = self.counts.iter().copied().enumerate();
        let filled = counts.filter(|&(_, count)| count > 0);
        filled.map(|(bucket, count)| (self.upper_end(bucket), count))
    }

    /// Number of values recorded.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.total
    }

    /// The largest value; 0 if the histogram is empty.
    #[must_use]
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The lower end of the bucket that contains the quantile; 0 if the histogram is empty.
    #[must_use]
    pub fn quantile(&self, share: f64) -> u64 {
        self.quantile_bucket(share).map_or(0, Self::lower_end)
    }

    /// The upper end of the bucket that contains the quantile, at most the largest recorded value.
    /// Never below the true quantile. `None` if the histogram is empty.
    #[must_use]
    pub fn quantile_bound(&self, share: f64) -> Option<u64> {
        self.quantile_bucket(share)
            .map(|bucket| self.upper_end(bucket))
    }

    /// The largest value that falls into the bucket, at most the largest recorded value.
    fn upper_end(&self, bucket: usize) -> u64 {
        (Self::lower_end(bucket + 1) - 1).min(self.max)
    }

    fn grow_to(&mut self, buckets: usize) {
        if self.counts.len() < buckets {
            self.counts.resize(buckets, 0);
        }
    }

    fn quantile_bucket(&self, share: f64) -> Option<usize> {
        let rank = (self.total as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        self.counts.iter().position(|count| {
            seen += count;
            seen >= rank
        })
    }

    fn bucket(value: u64) -> usize {
        if value < STEPS {
            return value as usize;
        }
        let power = u64::from(value.ilog2() - STEPS.ilog2());
        (power * STEPS + (value >> power)) as usize
    }

    fn lower_end(bucket: usize) -> u64 {
        let bucket = bucket as u64;
        if bucket < 2 * STEPS {
            return bucket;
        }
        let power = bucket / STEPS - 1;
        let first = u128::from(bucket - power * STEPS) << power;
        u64::try_from(first).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Fine = LogHistogram<64>;
    type Coarse = LogHistogram<4>;

    #[test]
    fn values_are_kept_to_one_part_in_the_steps() {
        for value in [0, 1, 63, 64, 65, 127, 128, 1000, 123_456_789, u64::MAX / 2] {
            let kept = Fine::lower_end(Fine::bucket(value));
            assert!(
                kept <= value && value - kept <= value / 64,
                "{value} {kept}"
            );
            assert!(Coarse::lower_end(Coarse::bucket(value) + 1) > value);
        }
        assert!(Fine::bucket(u64::MAX) < 64 * 64);
        let mut times = Fine::default();
        assert_eq!((times.quantile(0.5), times.quantile_bound(0.5)), (0, None));
        (1..=1000).for_each(|n| times.record(n * 1000));
        assert!((times.quantile(0.5) as f64 / 500e3 - 1.0).abs() < 0.02);
        assert!((times.quantile(0.99) as f64 / 990e3 - 1.0).abs() < 0.02);
    }

    #[test]
    fn buckets_are_those_that_hold_values_and_merge_to_the_same() {
        let mut times = Coarse::default();
        assert_eq!(times.buckets().count(), 0);
        [3, 3, 100, 1000]
            .into_iter()
            .for_each(|value| times.record(value));
        let buckets: Vec<_> = times.buckets().collect();
        assert_eq!(buckets, [(3, 2), (111, 1), (1000, 1)]);
        let mut sum = Coarse::default();
        sum.merge(&times);
        assert_eq!(sum, times);
    }

    #[test]
    fn bounds_of_quantiles_are_never_below_the_true_quantiles() {
        let mut times = Coarse::default();
        (1..=1000).for_each(|value| times.record(value));
        for (share, value) in [(0.5, 500), (0.99, 990), (1.0, 1000)] {
            let bound = times.quantile_bound(share).unwrap();
            assert!((value..=value * 5 / 4).contains(&bound), "{share}: {bound}");
        }
        let mut more = Coarse::default();
        more.record(u64::MAX);
        times.merge(&more);
        assert_eq!((times.max(), times.count()), (u64::MAX, 1001));
        assert!(times.quantile_bound(1.0) >= Some(u64::MAX - 1));
    }
}
