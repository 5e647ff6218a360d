//! Searches for the highest rate within the objective: doubles the rate, then bisects.

use crate::error::BenchError;
use crate::probe::{Bench, Probe};

/// Initial rate, in requests per second.
const FIRST: f64 = 64.0;

/// Maximum number of doublings: no generator can send at higher rates.
const DOUBLINGS_MAX: usize = 14;

/// Number of bisections: the rate is found to within 3 %.
const HALVINGS: usize = 5;

/// Runs that must fail before a rate is considered too high: other programs on the machine
/// occasionally disturb a run.
const TRIES: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HighestRate {
    /// Highest rate within the objective; 0 if there is none.
    pub rate: f64,
    pub goodput: f64,
    /// The generator, not the server, was the limit.
    pub is_generator_limited: bool,
}

/// Runs the search; `on_progress` is called after every run.
///
/// # Errors
/// Those of [`Bench::probe`] and `on_progress`.
pub fn find_highest_rate<E: From<BenchError>>(
    bench: &Bench,
    on_progress: &mut impl FnMut(Probe) -> Result<(), E>,
) -> Result<HighestRate, E> {
    let mut found = HighestRate {
        rate: 0.0,
        goodput: 0.0,
        is_generator_limited: false,
    };
    let mut too_high = None;
    let mut rate = FIRST;
    for attempt in 0..DOUBLINGS_MAX + HALVINGS {
        let is_within = within(bench, rate, &mut found, on_progress)?;
        if !is_within {
            too_high = Some(rate);
        }
        rate = match too_high {
            None if attempt + 1 >= DOUBLINGS_MAX => break,
            None => rate * 2.0,
            Some(too_high) if too_high - found.rate <= 0.04 * too_high => break,
            Some(too_high) => f64::midpoint(found.rate, too_high),
        };
        if too_high.is_some_and(|_| rate < 1.0) {
            break;
        }
    }
    Ok(found)
}

/// Whether one of [`TRIES`] runs at this rate is within the objective.
fn within<E: From<BenchError>>(
    bench: &Bench,
    rate: f64,
    found: &mut HighestRate,
    on_progress: &mut impl FnMut(Probe) -> Result<(), E>,
) -> Result<bool, E> {
    let schedule = bench.schedule(rate, bench.spec.length)?;
    for _ in 0..TRIES {
        let probe = bench.probe(&schedule)?;
        let (is_within, goodput) = (bench.is_within(&probe), probe.report.goodput);
        found.is_generator_limited = probe.is_generator_late;
        on_progress(probe)?;
        if is_within {
            (found.rate, found.goodput) = (rate, goodput);
            return Ok(true);
        }
    }
    Ok(false)
}
