//! Arrival times, drawn or parsed before the run, so that they cost no time during it.

use std::time::Duration;

use albacore_random::Xoshiro256;

/// Maximum number of arrivals of a run: enough for a minute at a million per second, too few for a
/// day at a thousand per second.
const ARRIVALS_MAX: usize = 1 << 26;

/// Poisson arrivals at `rate` per second over `length`, the same for the same `seed`.
pub fn poisson(rate: f64, length: Duration, seed: u64) -> Vec<Duration> {
    renewal(rate, length, seed, Xoshiro256::exponential)
}

/// Arrivals with Gamma-distributed interarrival times of this shape: 1 is Poisson, a smaller shape
/// is burstier, a larger one more regular.
pub fn gamma(shape: f64, rate: f64, length: Duration, seed: u64) -> Vec<Duration> {
    if shape.is_nan() || shape <= 0.0 {
        return Vec::new();
    }
    renewal(rate, length, seed, |random| random.gamma(shape))
}

fn renewal(
    rate: f64,
    length: Duration,
    seed: u64,
    mut gap: impl FnMut(&mut Xoshiro256) -> f64,
) -> Vec<Duration> {
    let mut random = Xoshiro256::new(seed, 0);
    let mut at = 0.0;
    let mut times = Vec::new();
    if rate.is_nan() || rate <= 0.0 {
        return times;
    }
    // bound: ARRIVALS_MAX; ends earlier when the drawn time passes `length`
    while times.len() < ARRIVALS_MAX {
        at += gap(&mut random) / rate;
        if at >= length.as_secs_f64() {
            break;
        }
        times.push(Duration::from_secs_f64(at));
    }
    times
}

/// A trace of arrivals is invalid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// Not a number of seconds.
    #[error("line {line} is {text:?}: write a time in seconds after the start")]
    NotATime {
        /// From 1.
        line: usize,
        text: String,
    },
    /// Earlier than the previous line.
    #[error("line {line} is earlier than the previous line: times must ascend")]
    NotAscending {
        /// From 1.
        line: usize,
    },
    /// No arrivals, or too many.
    #[error("the trace has {arrivals} arrivals: expected 1 to {ARRIVALS_MAX}")]
    Count { arrivals: usize },
}

/// Parses a trace of arrivals: one time per line, in seconds after the start, ascending; empty
/// lines and comments after `#` are ignored.
///
/// # Errors
/// [`TraceError`].
pub fn recorded(text: &str) -> Result<Vec<Duration>, TraceError> {
    let mut times: Vec<Duration> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let text = line.split('#').next().unwrap_or_default().trim();
        if text.is_empty() {
            continue;
        }
        let line = index + 1;
        let seconds = text.parse().ok();
        let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let Some(time) = time else {
            let text = text.chars().take(40).collect();
            return Err(TraceError::NotATime { line, text });
        };
        if times.last().is_some_and(|last| *last > time) {
            return Err(TraceError::NotAscending { line });
        }
        times.push(time);
    }
    match times.len() {
        1..=ARRIVALS_MAX => Ok(times),
        arrivals => Err(TraceError::Count { arrivals }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_ascend_have_the_rate_and_repeat_with_the_seed() {
        let times = poisson(1000.0, Duration::from_secs(20), 7);
        assert!(times.windows(2).all(|pair| pair[0] <= pair[1]));
        assert!(
            times
                .last()
                .is_some_and(|last| *last < Duration::from_secs(20))
        );
        assert!((19_000..21_000).contains(&times.len()), "{}", times.len());
        assert_eq!(times, poisson(1000.0, Duration::from_secs(20), 7));
        assert_ne!(times, poisson(1000.0, Duration::from_secs(20), 8));
        assert!(poisson(0.0, Duration::from_secs(1), 1).is_empty());
        assert!(gamma(0.0, 1.0, Duration::from_secs(1), 1).is_empty());
    }

    #[test]
    fn gamma_arrivals_have_the_rate() {
        let times = gamma(0.5, 1000.0, Duration::from_secs(20), 7);
        assert!((18_500..21_500).contains(&times.len()), "{}", times.len());
    }

    #[test]
    fn traces_are_parsed_and_invalid_lines_are_named() {
        let ms = Duration::from_millis;
        let text = "# a trace\n0\n0.5 # twice\n\n0.5\n1e0\n";
        assert_eq!(recorded(text), Ok(vec![ms(0), ms(500), ms(500), ms(1000)]));
        assert_eq!(
            recorded("1\n0.5"),
            Err(TraceError::NotAscending { line: 2 })
        );
        for text in ["x", "-1", "nan", "1e400"] {
            let said = recorded(text).unwrap_err().to_string();
            assert!(said.contains("line 1"), "{said}");
        }
        assert_eq!(recorded("#"), Err(TraceError::Count { arrivals: 0 }));
    }
}
