//! Outcomes of the requests of a run, and lag of the generator behind its schedule.

use std::time::Duration;

use crate::{Sample, percentile};

/// Outcome of one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Answered within the objective.
    Good,
    Late,
    /// Refused by admission control: 429, `RESOURCE_EXHAUSTED`.
    Shed,
    /// 503, `UNAVAILABLE`.
    Unavailable,
    Failed,
    /// No response: refused, reset or cut off.
    Unanswered,
}

impl Outcome {
    /// The outcome of a sample under a latency objective.
    pub fn of(sample: &Sample, objective: Duration) -> Self {
        match sample.status {
            200 if sample.latency <= objective => Self::Good,
            200 => Self::Late,
            429 => Self::Shed,
            503 => Self::Unavailable,
            0 => Self::Unanswered,
            _ => Self::Failed,
        }
    }
}

/// Figures of a run under a latency objective. Latencies are those of answered requests, from the
/// intended send time.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Report {
    /// Requests of the run.
    pub sent: usize,
    pub good: usize,
    pub late: usize,
    pub shed: usize,
    pub unavailable: usize,
    pub failed: usize,
    pub unanswered: usize,
    /// Good requests per second of the run.
    pub goodput: f64,
    /// Share of requests that are not good.
    pub bad_rate: f64,
    pub p50: Duration,
    /// 99th percentile.
    pub p99: Duration,
    /// 99.9th percentile.
    pub p999: Duration,
    pub longest: Duration,
    /// 99th percentile of [`Sample::lag`].
    pub lag_p99: Duration,
}

impl Report {
    /// Computes the figures of the `samples` of a run of `length`.
    pub fn of<'a>(
        samples: impl IntoIterator<Item = &'a Sample>,
        length: Duration,
        objective: Duration,
    ) -> Self {
        let mut report = Self::default();
        let (mut latencies, mut lags) = (Vec::new(), Vec::new());
        for sample in samples {
            report.sent += 1;
            lags.push(sample.lag);
            match Outcome::of(sample, objective) {
                Outcome::Good => report.good += 1,
                Outcome::Late => report.late += 1,
                Outcome::Shed => report.shed += 1,
                Outcome::Unavailable => report.unavailable += 1,
                Outcome::Failed => report.failed += 1,
                Outcome::Unanswered => report.unanswered += 1,
            }
            if sample.status == 200 {
                latencies.push(sample.latency);
            }
        }
        latencies.sort_unstable();
        lags.sort_unstable();
        report.goodput = report.good as f64 / length.as_secs_f64();
        report.bad_rate = (report.sent - report.good) as f64 / report.sent.max(1) as f64;
        report.p50 = percentile(&latencies, 0.50);
        report.p99 = percentile(&latencies, 0.99);
        report.p999 = percentile(&latencies, 0.999);
        report.longest = latencies.last().copied().unwrap_or_default();
        report.lag_p99 = percentile(&lags, 0.99);
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StageTimes;

    #[test]
    fn every_request_has_one_outcome() {
        let ms = Duration::from_millis;
        let sample = |status, latency| Sample {
            intended: Duration::ZERO,
            sent: Duration::ZERO,
            latency: ms(latency),
            status,
            stages: StageTimes::default(),
            request: 0,
            lag: ms(latency / 10),
        };
        let samples = [
            sample(200, 1),
            sample(200, 25),
            sample(200, 26),
            sample(429, 1),
            sample(503, 1),
            sample(500, 1),
            sample(504, 1),
            sample(0, 1),
        ];
        let report = Report::of(&samples, Duration::from_secs(2), ms(25));
        let counts = [report.good, report.late, report.shed, report.unavailable];
        assert_eq!(counts, [2, 1, 1, 1]);
        assert_eq!([report.failed, report.unanswered, report.sent], [2, 1, 8]);
        assert_eq!((report.goodput, report.bad_rate), (1.0, 0.75));
        assert_eq!((report.p50, report.longest), (ms(25), ms(26)));
        assert_eq!(report.lag_p99, ms(2));
    }
}
