//! Figures of a run.

use std::time::Duration;

use crate::Sample;

/// Figures of a set of samples.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Summary {
    pub sent: usize,
    /// Requests answered with status 200.
    pub ok: usize,
    /// Median latency of answered requests, from the intended send time.
    pub p50: Duration,
    /// 99th percentile of these latencies.
    pub p99: Duration,
    /// Requests answered with status 200 within the objective, per second of the run.
    pub goodput: f64,
}

/// The smallest value that at least `share` (0 to 1) of the sorted values do not exceed; zero for
/// an empty slice.
pub fn percentile(sorted: &[Duration], share: f64) -> Duration {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted
        .get(rank.clamp(1, sorted.len().max(1)) - 1)
        .copied()
        .unwrap_or_default()
}

/// Summarizes `samples` of a run of `length` under the latency objective `slo`.
pub fn summarize(samples: &[Sample], length: Duration, slo: Duration) -> Summary {
    let mut latencies: Vec<Duration> = samples
        .iter()
        .filter(|s| s.status == 200)
        .map(|s| s.latency)
        .collect();
    latencies.sort_unstable();
    let good = latencies.partition_point(|latency| *latency <= slo);
    Summary {
        sent: samples.len(),
        ok: latencies.len(),
        p50: percentile(&latencies, 0.50),
        p99: percentile(&latencies, 0.99),
        goodput: good as f64 / length.as_secs_f64(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StageTimes;

    #[test]
    fn percentiles_are_values_that_occurred() {
        let ms: Vec<Duration> = (1..=100).map(Duration::from_millis).collect();
        assert_eq!(percentile(&ms, 0.5), Duration::from_millis(50));
        assert_eq!(percentile(&ms, 0.99), Duration::from_millis(99));
        assert_eq!(percentile(&ms, 1.0), Duration::from_millis(100));
        assert_eq!(percentile(&ms[..1], 0.99), Duration::from_millis(1));
        assert_eq!(percentile(&[], 0.99), Duration::ZERO);
    }

    #[test]
    fn goodput_counts_only_answers_in_time() {
        let sample = |ms, status| Sample {
            intended: Duration::ZERO,
            sent: Duration::ZERO,
            latency: Duration::from_millis(ms),
            status,
            stages: StageTimes::default(),
            request: 0,
            lag: Duration::ZERO,
        };
        let samples = [
            sample(1, 200),
            sample(30, 200),
            sample(1, 429),
            sample(1, 0),
        ];
        let summary = summarize(&samples, Duration::from_secs(2), Duration::from_millis(25));
        assert_eq!((summary.sent, summary.ok, summary.goodput), (4, 2, 0.5));
    }
}
