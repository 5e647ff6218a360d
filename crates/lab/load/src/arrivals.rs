//! Arrival times, drawn or parsed before the run, so that they cost nothing during it.

use std::time::Duration;

/// Most arrivals of one run: a day at a thousand a second would not fit, a minute at a million
/// does.
const ARRIVALS_MAX: usize = 1 << 26;

/// Poisson arrivals at `rate` per second over `length`, the same for the same `seed`.
pub fn poisson(rate: f64, length: Duration, seed: u64) -> Vec<Duration> {
    renewal(rate, length, seed, Random::exponential)
}

/// Arrivals whose gaps are Gamma distributed with this shape: 1 is Poisson, less is burstier, more
/// is more even.
pub fn gamma(shape: f64, rate: f64, length: Duration, seed: u64) -> Vec<Duration> {
    if shape.is_nan() || shape <= 0.0 {
        return Vec::new();
    }
    renewal(rate, length, seed, |random| random.gamma(shape) / shape)
}

fn renewal(
    rate: f64,
    length: Duration,
    seed: u64,
    mut gap: impl FnMut(&mut Random) -> f64,
) -> Vec<Duration> {
    let mut random = Random(seed);
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
    #[error("{arrivals} arrivals: 1 to {ARRIVALS_MAX} are taken")]
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

/// SplitMix64 (Steele, Lea, Flood 2014), and what is drawn by it.
#[derive(Clone, Copy, Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in [0, 1).
    pub fn uniform(&mut self) -> f64 {
        (self.draw() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn exponential(&mut self) -> f64 {
        -(1.0 - self.uniform()).ln()
    }

    /// By Box and Muller (1958).
    fn normal(&mut self) -> f64 {
        let radius = (2.0 * self.exponential()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// By Marsaglia and Tsang (2000); for shapes below 1 through that of shape + 1.
    fn gamma(&mut self, shape: f64) -> f64 {
        if shape < 1.0 {
            let power = self.exponential() / shape;
            return self.gamma(shape + 1.0) * (-power).exp();
        }
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        // bound: each try is taken with a chance of at least 95 %
        loop {
            let x = self.normal();
            let v = (1.0 + c * x).powi(3);
            if v > 0.0 && (1.0 - self.uniform()).ln() < 0.5 * x * x + d - d * v + d * v.ln() {
                return d * v;
            }
        }
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
    fn gamma_gaps_have_the_mean_and_the_spread_of_their_shape() {
        for shape in [0.05, 0.5, 1.0, 4.0, 15.0] {
            let mut random = Random(3);
            let draws: Vec<f64> = (0..200_000).map(|_| random.gamma(shape)).collect();
            let mean = draws.iter().sum::<f64>() / draws.len() as f64;
            let squares = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>();
            let variance = squares / draws.len() as f64;
            assert!((mean / shape - 1.0).abs() < 0.03, "{shape}: {mean}");
            assert!((variance / shape - 1.0).abs() < 0.08, "{shape}: {variance}");
        }
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
