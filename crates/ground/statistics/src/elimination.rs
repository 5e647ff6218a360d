//! Successive elimination (Even-Dar et al., JMLR 2006): arms are measured side by side, one value
//! each per round, and compared after fixed numbers of rounds. An arm that is worse than the best
//! by more than the noise is eliminated.
//!
//! Few comparisons at fixed rounds bound the rate of false positives; comparing after every round
//! eventually finds a difference between equal arms.

use crate::interval::{Interval, SampleMean, SpeedDifference};

/// Arms whose ratio is below this count as equal.
pub const EQUIVALENCE_RATIO: f64 = 1.02;

/// Numbers of rounds after which arms are compared, of at most `rounds_max`: half of them, three
/// quarters and all.
#[must_use]
pub const fn comparison_rounds(rounds_max: usize) -> [usize; 3] {
    [
        rounds_max.div_ceil(2),
        (rounds_max * 3).div_ceil(4),
        rounds_max,
    ]
}

/// The ratio of `one` to `other`, computed from logarithms of the measured quantity, paired by
/// round as far as both have values; `None` for fewer than two pairs.
#[must_use]
pub fn compare(one: &[f64], other: &[f64], confidence: f64) -> Option<Interval> {
    let pairs = one.iter().zip(other);
    let ratios = pairs.map(|(one, other)| one - other);
    let sample = SampleMean::of(&ratios.collect::<Vec<f64>>())?;
    Interval::with_confidence(&[sample], confidence)
}

/// Result of one comparison of all arms.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ArmComparison {
    /// The arm with the highest mean.
    pub leader: usize,
    /// Arms that are worse than the leader by more than the noise.
    pub behind: Vec<usize>,
    /// True if every other arm is either in `behind` or at most a factor [`EQUIVALENCE_RATIO`]
    /// worse than the leader.
    pub is_decided: bool,
}

impl ArmComparison {
    /// Compares arms by the logarithms of the measured quantity, one value per round; an eliminated
    /// arm is `None`. Returns `None` if no arm has a value.
    #[must_use]
    pub fn of(arms: &[Option<Vec<f64>>], confidence: f64) -> Option<Self> {
        let measured = arms.iter().enumerate();
        let measured = measured.filter_map(|(index, values)| Some((index, values.as_deref()?)));
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let with_mean = measured.clone().filter(|(_, values)| !values.is_empty());
        let (leader, best) = with_mean.max_by(|a, b| mean(a.1).total_cmp(&mean(b.1)))?;
        let mut comparison = Self {
            leader,
            behind: Vec::new(),
            is_decided: true,
        };
        for (index, values) in measured.filter(|(index, _)| *index != leader) {
            match compare(best, values, confidence) {
                Some(interval) if interval.speed_difference() == SpeedDifference::Faster => {
                    comparison.behind.push(index)
                }
                Some(interval) if interval.high <= EQUIVALENCE_RATIO => {}
                _ => comparison.is_decided = false,
            }
        }
        Some(comparison)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CONFIDENCE;

    #[test]
    fn arms_behind_the_leader_are_named_and_equal_ones_decide() {
        let arm = |mean: f64| Some(vec![mean, mean + 0.001, mean - 0.001, mean]);
        let arms = [arm(0.0), arm(0.3), None, arm(0.299)];
        let comparison = ArmComparison::of(&arms, CONFIDENCE).unwrap();
        assert_eq!((comparison.leader, comparison.is_decided), (1, true));
        assert_eq!(
            comparison.behind,
            [0, 3],
            "3 has the same noise and is 0.1 % behind"
        );
        let noisy = Some(vec![0.2, 0.5, 0.1, 0.3]);
        let comparison = ArmComparison::of(&[arm(0.3), noisy], CONFIDENCE).unwrap();
        assert_eq!((comparison.behind.len(), comparison.is_decided), (0, false));
        let alone = ArmComparison::of(&[None, arm(1.0)], CONFIDENCE).unwrap();
        assert_eq!((alone.leader, alone.is_decided), (1, true));
        assert_eq!(
            ArmComparison::of(&[None, Some(Vec::new())], CONFIDENCE),
            None
        );
    }

    #[test]
    fn only_rounds_that_both_arms_have_are_compared() {
        let interval = compare(&[0.1, 0.2, 9.0], &[0.0, 0.1], CONFIDENCE).unwrap();
        assert!((interval.ratio - 0.1_f64.exp()).abs() < 1e-12);
        assert_eq!(compare(&[0.1], &[0.1, 0.2], CONFIDENCE), None);
        assert_eq!(comparison_rounds(8), [4, 6, 8]);
    }
}
