//! Quantiles of cumulative histograms as reported by servers.

/// The quantile `share` of cumulative counts, by linear interpolation within its bucket, or the
/// lower bound of the bucket if the upper one is infinite. `counts` contains the upper bound of
/// each bucket and the number of values at most that bound, ascending.
#[must_use]
pub fn histogram_quantile(counts: &[(f64, u64)], share: f64) -> f64 {
    let all = counts.last().map_or(0, |last| last.1);
    let rank = all as f64 * share;
    let (mut below, mut start) = (0_u64, 0.0);
    for &(end, count) in counts {
        if count as f64 >= rank {
            if !end.is_finite() {
                return start;
            }
            let inside = count.saturating_sub(below).max(1) as f64;
            return start + (end - start) * (rank - below as f64) / inside;
        }
        (below, start) = (count, end);
    }
    start
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::histogram_quantile;

    proptest! {
        #[test]
        fn a_quantile_lies_in_its_bucket_and_rises_with_its_share(
            counts in proptest::collection::vec(0_u64..1000, 1..8),
        ) {
            let mut sum = 0;
            let buckets: Vec<(f64, u64)> = counts
                .iter()
                .enumerate()
                .map(|(i, count)| { sum += count; (f64::from(i as u32 + 1), sum) })
                .collect();
            prop_assume!(sum > 0);
            let found: Vec<f64> =
                [0.1, 0.5, 0.99].iter().map(|s| histogram_quantile(&buckets, *s)).collect();
            prop_assert!(found.windows(2).all(|pair| pair[0] <= pair[1]), "{:?}", found);
            for (share, value) in [0.1, 0.5, 0.99].into_iter().zip(found) {
                let bucket = buckets.iter().find(|(_, c)| *c as f64 >= sum as f64 * share);
                let end = bucket.unwrap().0;
                prop_assert!(value <= end && value >= end - 1.0, "{} {:?}", value, buckets);
            }
        }
    }

    #[test]
    fn a_quantile_in_the_last_bucket_is_its_lower_bound() {
        assert_eq!(
            histogram_quantile(&[(0.5, 1), (f64::INFINITY, 9)], 0.99),
            0.5
        );
    }
}
