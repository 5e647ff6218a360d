//! Counts of times in fixed memory: 4 buckets for each power of two microseconds, so a quantile is
//! right to 25 %, and it is always reported as its bucket's upper end: never better than measured.

const PER_OCTAVE: u32 = 4;
const BUCKETS: usize = 41 * PER_OCTAVE as usize;

/// A distribution of times in microseconds, up to about 12 days.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Histogram {
    buckets: Vec<u64>,
    count: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: vec![0; BUCKETS],
            count: 0,
            max: 0,
        }
    }
}

fn bucket(micros: u64) -> usize {
    if micros < u64::from(PER_OCTAVE) {
        return micros as usize;
    }
    let octave = micros.ilog2();
    let quarter = (micros >> (octave - 2)) & 3;
    (((octave - 1) * PER_OCTAVE) as usize + quarter as usize).min(BUCKETS - 1)
}

fn upper_end(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let per_octave = u64::from(PER_OCTAVE);
    if bucket < per_octave {
        return bucket;
    }
    let (octave, quarter) = (bucket / per_octave + 1, bucket % per_octave);
    ((per_octave + quarter + 1) << (octave - 2)) - 1
}

impl Histogram {
    pub fn record(&mut self, micros: u64) {
        self.buckets[bucket(micros)] += 1;
        self.count += 1;
        self.max = self.max.max(micros);
    }

    /// How many times were counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The longest time; 0 if there was none.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The time that `percent` of the counted ones do not exceed, in microseconds; `None` if none
    /// was counted.
    pub fn percentile(&self, percent: f64) -> Option<u64> {
        let rank = (self.count as f64 * percent / 100.0).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (i, &count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Some(upper_end(i).min(self.max));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_lies_in_its_bucket_and_quantiles_are_never_below_the_truth() {
        for micros in (0..100_000u64).chain([1 << 33, u64::from(u32::MAX)]) {
            let b = bucket(micros);
            assert!(micros <= upper_end(b), "{micros}");
            assert!(b == 0 || micros > upper_end(b - 1), "{micros}");
        }
        let mut histogram = Histogram::default();
        assert_eq!(histogram.percentile(50.0), None);
        for micros in 1..=1000 {
            histogram.record(micros);
        }
        for (percent, truth) in [(50.0, 500), (99.0, 990), (100.0, 1000)] {
            let told = histogram.percentile(percent).unwrap();
            assert!(told >= truth && told <= truth * 5 / 4, "{percent}: {told}");
        }
        histogram.record(u64::MAX);
        assert_eq!((histogram.max(), histogram.count()), (u64::MAX, 1001));
    }
}
