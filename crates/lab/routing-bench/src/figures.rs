//! Results of an arm.

use std::time::Duration;

use albacore_load::{Outcome, Report, Sample, percentile};

use crate::kills::Kill;

/// Requests sent within this time after a kill are attributed to its interruption.
const AFTERMATH: Duration = Duration::from_millis(500);

/// Figures of an arm at a load, over all its rounds.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    pub report: Report,
    /// Requests with neither a result nor a rejection for overload (429, `RESOURCE_EXHAUSTED`).
    pub lost: usize,
    pub kills: usize,
    /// Per kill, the longest run of consecutive requests without a good answer, among those sent
    /// from one objective before the kill to 500 ms after it: from the intended time of the first
    /// to that of the next good one. Sorted.
    pub interruptions: Vec<Duration>,
    /// Time from each kill until the pod was ready again; sorted.
    pub down: Vec<Duration>,
    /// CPU time of the router; for grpc-go that of the client, which also sends.
    pub router_cpu: Duration,
    /// Time during which requests were sent and measured.
    pub length: Duration,
    /// Number of retries; Envoy only.
    pub retried: u64,
}

/// One round of an arm.
#[derive(Debug)]
pub(crate) struct Round {
    /// Measured samples, by intended time.
    pub(crate) samples: Vec<Sample>,
    pub(crate) kills: Vec<Kill>,
    pub(crate) router_cpu: Duration,
    pub(crate) retried: u64,
    pub(crate) length: Duration,
}

impl Figures {
    pub(crate) fn of(rounds: &[Round], objective: Duration) -> Self {
        let length = rounds.iter().map(|round| round.length).sum();
        let samples = rounds.iter().flat_map(|round| &round.samples);
        let report = Report::of(samples, length, objective);
        let kills = || {
            let of_round = |round: &'_ Round| round.kills.clone();
            rounds.iter().flat_map(of_round)
        };
        let mut figures = Self {
            report,
            lost: report.unavailable + report.failed + report.unanswered,
            kills: kills().count(),
            interruptions: rounds
                .iter()
                .flat_map(|round| {
                    let of = |kill: &Kill| interruption(&round.samples, kill.at, objective);
                    round.kills.iter().map(of).collect::<Vec<_>>()
                })
                .collect(),
            down: kills().map(|kill| kill.down).collect(),
            router_cpu: rounds.iter().map(|round| round.router_cpu).sum(),
            length,
            retried: rounds.iter().map(|round| round.retried).sum(),
        };
        figures.interruptions.sort_unstable();
        figures.down.sort_unstable();
        figures
    }

    /// 99th percentile over kills.
    #[must_use]
    pub fn interruption_p99(&self) -> Duration {
        percentile(&self.interruptions, 0.99)
    }

    /// Mean number of cpus that the router used.
    #[must_use]
    pub fn router_cpus(&self) -> f64 {
        self.router_cpu.as_secs_f64() / self.length.as_secs_f64().max(1e-9)
    }
}

/// `samples` are sorted by intended time.
fn interruption(samples: &[Sample], kill: Duration, objective: Duration) -> Duration {
    let (first, last) = (kill.saturating_sub(objective), kill + AFTERMATH);
    let start = samples.partition_point(|sample| sample.intended < first);
    let mut longest = Duration::ZERO;
    let mut since: Option<Duration> = None;
    for sample in &samples[start..] {
        if Outcome::of(sample, objective) == Outcome::Good {
            let stretch = since.take().map(|since| sample.intended - since);
            longest = longest.max(stretch.unwrap_or_default());
        } else if sample.intended <= last {
            since = since.or(Some(sample.intended));
        }
        if sample.intended > last && since.is_none() {
            break;
        }
    }
    let end = samples.last().map_or(last, |sample| sample.intended);
    longest.max(since.map_or(Duration::ZERO, |since| end - since))
}

#[cfg(test)]
mod tests {
    use super::*;
    use albacore_load::StageTimes;

    fn ms(time: u64) -> Duration {
        Duration::from_millis(time)
    }

    fn sample(intended: u64, status: u16, latency: u64) -> Sample {
        Sample {
            intended: ms(intended),
            sent: ms(intended),
            latency: ms(latency),
            status,
            stages: StageTimes::default(),
            request: 0,
            lag: Duration::ZERO,
        }
    }

    #[test]
    fn an_interruption_ends_with_the_next_answer_in_time() {
        let samples = [
            sample(100, 503, 1), // long before the kill
            sample(200, 200, 1),
            sample(960, 200, 60), // in flight and late
            sample(1001, 503, 1),
            sample(1004, 0, 1),
            sample(1009, 200, 1),
            sample(1100, 429, 1),
            sample(1103, 200, 1),
            sample(1600, 503, 1), // long after it
            sample(1700, 200, 1),
        ];
        assert_eq!(interruption(&samples, ms(1000), ms(50)), ms(49));
        assert_eq!(interruption(&samples, ms(400), ms(50)), ms(0));
        // No good answer follows.
        assert_eq!(interruption(&samples[..5], ms(1000), ms(50)), ms(44));
    }

    #[test]
    fn requests_neither_answered_nor_refused_are_lost() {
        let round = Round {
            samples: vec![
                sample(1, 200, 1),
                sample(2, 200, 60),
                sample(3, 429, 1),
                sample(4, 503, 1),
                sample(5, 0, 1),
            ],
            kills: vec![Kill {
                pod: 0,
                at: ms(3),
                down: ms(7),
            }],
            router_cpu: ms(500),
            retried: 2,
            length: Duration::from_secs(1),
        };
        let figures = Figures::of(&[round], ms(50));
        assert_eq!((figures.lost, figures.kills, figures.retried), (2, 1, 2));
        assert_eq!(figures.report.shed, 1);
        assert_eq!(figures.interruption_p99(), ms(3));
        assert_eq!(figures.router_cpus(), 0.5);
    }
}
