//! Send times of the requests of a run.

use std::path::Path;
use std::time::Duration;

use albacore_load::{gamma, poisson, recorded};
use albacore_random::SplitMix64;

use crate::error::BenchError;

/// Highest rate per second.
const RATE_MAX: f64 = 1e6;

/// Maximum number of requests of a run: their samples take 64 bytes each.
const REQUESTS_MAX: f64 = 5e7;

/// Maximum size of a trace file: one line for each request of a run.
const RECORD_BYTES_MAX: u64 = 1 << 30;

/// The arrival process.
#[derive(Debug)]
pub(crate) enum Arrivals {
    Poisson,
    Gamma(f64),
    Recorded(Vec<Duration>),
}

/// Send times of one run.
#[derive(Debug)]
pub struct Schedule {
    /// Requests per second.
    pub(crate) rate: f64,
    pub(crate) length: Duration,
    pub(crate) times: Vec<Duration>,
}

impl Schedule {
    /// Length of the run.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.length.as_secs_f64()
    }

    /// A window of this length of a longer schedule; its start depends on the seed.
    pub(crate) fn part(self, length: Duration, seed: u64) -> Self {
        if self.length <= length || self.times.is_empty() {
            return self;
        }
        let share = SplitMix64::new(seed).draw() as f64 / u64::MAX as f64;
        let begin = (self.length - length).mul_f64(share);
        let times = self.times.into_iter();
        let inside = times.filter(|&time| time >= begin && time < begin + length);
        Self {
            rate: self.rate,
            length,
            times: inside.map(|time| time - begin).collect(),
        }
    }
}

impl Arrivals {
    /// Parses `--arrivals`.
    pub(crate) fn parse(text: &str) -> Result<Self, BenchError> {
        if text == "poisson" {
            return Ok(Self::Poisson);
        }
        if let Some(shape) = text.strip_prefix("gamma:") {
            let shape = shape
                .parse()
                .ok()
                .filter(|shape| (0.01..=1000.0).contains(shape));
            return shape.map(Self::Gamma).ok_or_else(|| {
                BenchError::Usage(format!(
                    "--arrivals {text}: expected a shape of 0.01 to 1000"
                ))
            });
        }
        let path = Path::new(text);
        let unreadable = |source| BenchError::File {
            path: path.to_owned(),
            source,
        };
        let bytes = std::fs::metadata(path).map_err(unreadable)?.len();
        if bytes > RECORD_BYTES_MAX {
            return Err(BenchError::Failed(format!(
                "{text}: longer than {RECORD_BYTES_MAX} bytes"
            )));
        }
        let lines = std::fs::read_to_string(path).map_err(unreadable)?;
        let times = recorded(&lines).map_err(|source| BenchError::Record {
            path: path.to_owned(),
            source,
        })?;
        Ok(Self::Recorded(times))
    }

    /// Send times of a run at `rate`; the times of a recorded trace are scaled to it.
    pub(crate) fn at(
        &self,
        rate: f64,
        length: Duration,
        seed: u64,
    ) -> Result<Schedule, BenchError> {
        let is_right =
            rate > 0.0 && rate <= RATE_MAX && rate * length.as_secs_f64() <= REQUESTS_MAX;
        if !is_right {
            return Err(BenchError::Usage(format!(
                "--rate {rate} is out of range: give more than 0 and at most {RATE_MAX} requests \
                 per second, {REQUESTS_MAX} in a run"
            )));
        }
        let (times, length) = match self {
            Self::Poisson => (poisson(rate, length, seed), length),
            Self::Gamma(shape) => (gamma(*shape, rate, length, seed), length),
            Self::Recorded(times) => {
                let recorded = self.recorded_rate().unwrap_or(rate);
                let scale = recorded / rate;
                let times: Vec<_> = times.iter().map(|time| time.mul_f64(scale)).collect();
                let length = times.last().copied().unwrap_or(length);
                (times, length)
            }
        };
        Ok(Schedule {
            rate,
            length,
            times,
        })
    }

    /// Rate of the recorded trace.
    pub(crate) fn recorded_rate(&self) -> Option<f64> {
        match self {
            Self::Recorded(times) => {
                let length = times.last()?.as_secs_f64();
                Some(times.len() as f64 / length.max(1e-3))
            }
            Self::Poisson | Self::Gamma(_) => None,
        }
    }

    pub(crate) fn name(&self) -> String {
        match self {
            Self::Poisson => "Poisson".to_owned(),
            Self::Gamma(shape) => format!("Gamma {shape}"),
            Self::Recorded(_) => "recorded".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recorded_trace_is_scaled_to_the_rate() {
        let seconds = |s: &[f64]| {
            s.iter()
                .map(|&s| Duration::from_secs_f64(s))
                .collect::<Vec<_>>()
        };
        let arrivals = Arrivals::Recorded(seconds(&[0.5, 1.0, 1.5, 2.0]));
        assert_eq!(arrivals.recorded_rate(), Some(2.0));
        let schedule = arrivals.at(4.0, Duration::from_secs(9), 1).unwrap();
        assert_eq!(schedule.times, seconds(&[0.25, 0.5, 0.75, 1.0]));
        assert_eq!(schedule.length, Duration::from_secs(1));
    }

    #[test]
    fn the_seed_determines_the_start_of_a_part_of_a_schedule() {
        let second = Duration::from_secs(1);
        let schedule = |seed| {
            let arrivals = Arrivals::Recorded((1..=100).map(|at| at * second).collect());
            arrivals
                .at(1.0, second, seed)
                .unwrap()
                .part(10 * second, seed)
        };
        let [one, other] = [schedule(1), schedule(2)];
        assert_eq!((one.length, one.times.len()), (10 * second, 10));
        assert_ne!(one.times, other.times);
        let short = Arrivals::Recorded(vec![second]).at(1.0, second, 1).unwrap();
        assert_eq!(short.part(10 * second, 1).times, [second]);
    }

    #[test]
    fn invalid_arrivals_and_rates_are_rejected() {
        for text in ["gamma:x", "gamma:0"] {
            assert!(
                Arrivals::parse(text)
                    .unwrap_err()
                    .to_string()
                    .contains("shape"),
                "{text}"
            );
        }
        assert!(
            Arrivals::parse("/no/such/file")
                .unwrap_err()
                .to_string()
                .contains("/no/such/file")
        );
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 2e6] {
            let refused = Arrivals::Poisson.at(rate, Duration::from_secs(1), 1);
            assert!(
                refused.unwrap_err().to_string().contains("--rate"),
                "{rate}"
            );
        }
    }
}
