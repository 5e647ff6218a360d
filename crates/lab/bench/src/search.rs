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
pub struct Found {
    /// Highest rate within the objective; 0 if there is none.
    pub rate: f64,
    pub goodput: f64,
    /// The generator, not the server, was the limit.
    pub is_generators: bool,
}

/// Runs the search; `tell` is called after every run.
///
/// # Errors
/// Those of [`Bench::probe`] and `tell`.
pub fn highest<E: From<BenchError>>(
    bench: &Bench,
    tell: &mut impl FnMut(Probe) -> Result<(), E>,
) -> Result<Found, E> {
    let mut found = Found {
        rate: 0.0,
        goodput: 0.0,
        is_generators: false,
    };
    let mut over = None;
    let mut rate = FIRST;
    for turn in 0..DOUBLINGS_MAX + HALVINGS {
        let is_within = within(bench, rate, &mut found, tell)?;
        if !is_within {
            over = Some(rate);
        }
        rate = match over {
            None if turn + 1 >= DOUBLINGS_MAX => break,
            None => rate * 2.0,
            Some(over) if over - found.rate <= 0.04 * over => break,
            Some(over) => f64::midpoint(found.rate, over),
        };
        if over.is_some_and(|_| rate < 1.0) {
            break;
        }
    }
    Ok(found)
}

/// Whether one of [`TRIES`] runs at this rate is within the objective.
fn within<E: From<BenchError>>(
    bench: &Bench,
    rate: f64,
    found: &mut Found,
    tell: &mut impl FnMut(Probe) -> Result<(), E>,
) -> Result<bool, E> {
    let schedule = bench.schedule(rate, bench.spec.length)?;
    for _ in 0..TRIES {
        let probe = bench.probe(&schedule)?;
        let (is_within, goodput) = (bench.is_within(&probe), probe.report.goodput);
        found.is_generators = probe.is_behind;
        tell(probe)?;
        if is_within {
            (found.rate, found.goodput) = (rate, goodput);
            return Ok(true);
        }
    }
    Ok(false)
}
