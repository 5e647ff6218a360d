//! Ratios of times with confidence intervals.
//!
//! The distribution of window times is skewed and the noise grows with the mean, so ratios are
//! taken pair by pair and their logarithms averaged: the result is a geometric mean with a Student
//! t interval. All settings have equal weight; they are a fixed grid and not a sample, so the
//! interval uses only the variance within each setting, with Welch-Satterthwaite degrees of
//! freedom. The level is 99 %: one of a hundred comparisons of the kernel with itself claims a
//! difference, well below the limit of five.

use statrs::distribution::{ContinuousCDF as _, StudentsT};

/// Default confidence of an interval.
pub const CONFIDENCE: f64 = 0.99;

/// Mean ratio of times; above 1 the second of the two is faster.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Interval {
    pub ratio: f64,
    pub low: f64,
    pub high: f64,
    /// Number of ratios averaged.
    pub count: usize,
}

/// Conclusion from an interval.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpeedDifference {
    Faster,
    Slower,
    /// The interval includes 1.
    Inconclusive,
}

/// Mean of a sample, and its variance for the interval.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SampleMean {
    mean: f64,
    /// Variance of the mean.
    variance: f64,
    count: usize,
}

impl SampleMean {
    /// `None` for fewer than two values.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        let count = values.len();
        if count < 2 {
            return None;
        }
        let mean = values.iter().sum::<f64>() / count as f64;
        let squares = values.iter().map(|value| (value - mean).powi(2));
        let variance = squares.sum::<f64>() / (count - 1) as f64 / count as f64;
        Some(Self {
            mean,
            variance,
            count,
        })
    }
}

impl Interval {
    /// Computes the mean over all samples of logarithms of ratios, at confidence [`CONFIDENCE`].
    /// `None` if there are no samples.
    #[must_use]
    pub fn of(samples: &[SampleMean]) -> Option<Self> {
        Self::with_confidence(samples, CONFIDENCE)
    }

    /// As [`Interval::of`] at a confidence between 0 and 1.
    #[must_use]
    pub fn with_confidence(samples: &[SampleMean], confidence: f64) -> Option<Self> {
        let size = samples.len() as f64;
        let variances = samples.iter().map(|sample| sample.variance);
        let variance = variances.sum::<f64>();
        let parts = samples
            .iter()
            .map(|s| s.variance.powi(2) / (s.count - 1) as f64);
        let parts = parts.sum::<f64>();
        // Without noise, every number of degrees of freedom gives the same interval.
        let degrees = if parts > 0.0 {
            variance.powi(2) / parts
        } else {
            1.0
        };
        let distribution = StudentsT::new(0.0, 1.0, degrees).ok()?;
        let quantile = distribution.inverse_cdf(0.5 + confidence / 2.0);
        let half = quantile * variance.sqrt() / size;
        let mean = samples.iter().map(|sample| sample.mean).sum::<f64>() / size;
        (!samples.is_empty()).then(|| Self {
            ratio: mean.exp(),
            low: (mean - half).exp(),
            high: (mean + half).exp(),
            count: samples.iter().map(|sample| sample.count).sum(),
        })
    }

    #[must_use]
    pub fn speed_difference(&self) -> SpeedDifference {
        if self.low > 1.0 {
            SpeedDifference::Faster
        } else if self.high < 1.0 {
            SpeedDifference::Slower
        } else {
            SpeedDifference::Inconclusive
        }
    }
}

/// The lower median; 0 for an empty list.
#[must_use]
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len().saturating_sub(1) / 2;
    values.get(middle).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use albacore_random::Xoshiro256;

    fn interval(samples: &[&[f64]]) -> Interval {
        let samples: Vec<SampleMean> = samples
            .iter()
            .map(|values| SampleMean::of(values).unwrap())
            .collect();
        Interval::of(&samples).unwrap()
    }

    #[test]
    fn an_interval_is_that_of_students_t() {
        let logarithms = [1.1_f64.ln(), 1.2_f64.ln(), 1.3_f64.ln()];
        let one = interval(&[&logarithms]);
        assert!((one.ratio - (1.1_f64 * 1.2 * 1.3).cbrt()).abs() < 1e-12);
        // t with 2 degrees of freedom at 99.5 %: 9.925
        let half = (one.high / one.ratio).ln();
        assert!(
            (half - 9.925 * 0.083_551 / 3_f64.sqrt()).abs() < 1e-3,
            "{half}"
        );
        assert_eq!(one.speed_difference(), SpeedDifference::Inconclusive);
        // The same sample twice: half the variance, and 4 degrees of freedom: 4.604
        let both = interval(&[&logarithms, &logarithms]);
        let half = (both.high / both.ratio).ln();
        assert!(
            (half - 4.604 * 0.083_551 / 6_f64.sqrt()).abs() < 1e-3,
            "{half}"
        );
        assert_eq!(SampleMean::of(&logarithms[..1]), None);
        assert_eq!(Interval::of(&[]), None);
        assert_eq!(
            interval(&[&[0.5, 0.5]]).speed_difference(),
            SpeedDifference::Faster
        );
    }

    #[test]
    fn equal_things_are_called_different_in_one_of_a_hundred_comparisons() {
        let mut random = Xoshiro256::new(7, 0);
        let mut noise = || (0..12).map(|_| random.unit()).sum::<f64>() - 6.0;
        let mut sample =
            |count| -> Vec<f64> { (0..count).map(|_| 0.1 * (noise() - noise())).collect() };
        let mut claims = [0, 0];
        for _ in 0..4_000 {
            let (one, other) = (sample(5), sample(3));
            let intervals = [interval(&[&one]), interval(&[&one, &other])];
            for (claims, interval) in claims.iter_mut().zip(intervals) {
                *claims +=
                    usize::from(interval.speed_difference() != SpeedDifference::Inconclusive);
            }
        }
        assert!(
            claims.iter().all(|claims| (15..=60).contains(claims)),
            "{claims:?} of 4,000"
        );
    }

    #[test]
    fn clear_differences_are_claimed() {
        let slower = interval(&[&[-0.30, -0.31, -0.29, -0.30]]);
        assert_eq!(slower.speed_difference(), SpeedDifference::Slower);
        let faster = interval(&[&[0.30, 0.31, 0.29, 0.30]]);
        assert_eq!(faster.speed_difference(), SpeedDifference::Faster);
    }
}
