//! Arrival times, drawn before the run so that drawing costs nothing during it.

use std::time::Duration;

/// Poisson arrivals at `rate` per second over `length`, the same for the same `seed`.
pub fn poisson(rate: f64, length: Duration, seed: u64) -> Vec<Duration> {
    let mut state = seed;
    let mut at = 0.0;
    let mut times = Vec::new();
    if rate.is_nan() || rate <= 0.0 {
        return times;
    }
    // bound: ends when the time drawn passes `length`; each step is positive
    while at < length.as_secs_f64() {
        at += -(1.0 - uniform(&mut state)).ln() / rate;
        times.push(Duration::from_secs_f64(at));
    }
    times.pop();
    times
}

/// SplitMix64 (Steele, Lea, Flood 2014), mapped to [0, 1).
fn uniform(state: &mut u64) -> f64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_rise_have_the_rate_and_repeat_with_the_seed() {
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
    }
}
