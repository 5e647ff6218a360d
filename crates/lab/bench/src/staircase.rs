//! Staircase search for the highest rate within the objective, one run at a time, so that several
//! searches can be interleaved.
//!
//! The rate is raised after a run within the objective and lowered after one that is not; the step
//! is reduced at each reversal. The second half of the runs is centered on the rate at which one of
//! two runs is within the objective.

/// Factor of the first step, and default factor of the last.
const STEP_FIRST: f64 = 1.3;
const STEP_LAST: f64 = 1.03;

#[derive(Clone, Debug)]
pub struct Staircase {
    /// Rate of the next run.
    pub rate: f64,
    step: f64,
    step_last: f64,
    was_within: Option<bool>,
    rates: Vec<f64>,
}

impl Staircase {
    /// Starts at this rate.
    #[must_use]
    pub fn new(rate: f64) -> Self {
        Self::with_last_step(rate, STEP_LAST)
    }

    /// Starts at this rate; steps shrink to this factor. The larger it is, the less consecutive
    /// rates are correlated.
    #[must_use]
    pub fn with_last_step(rate: f64, step_last: f64) -> Self {
        Self {
            rate,
            step: STEP_FIRST,
            step_last,
            was_within: None,
            rates: Vec::new(),
        }
    }

    /// Records whether the run at `rate` was within the objective.
    pub fn record(&mut self, is_within: bool) {
        self.rates.push(self.rate);
        if self.was_within.is_some_and(|was| was != is_within) {
            self.step = self.step.sqrt().max(self.step_last);
        }
        self.was_within = Some(is_within);
        match is_within {
            true => self.rate *= self.step,
            false => self.rate /= self.step,
        }
    }

    fn newer_half(&self) -> impl Iterator<Item = f64> {
        self.rates.iter().copied().skip(self.rates.len() / 2)
    }

    /// Estimate of the rate at which one of two runs is within the objective; NaN before the first
    /// run.
    #[must_use]
    pub fn threshold(&self) -> f64 {
        median(self.newer_half())
    }

    /// Quartiles of the rates of the newer half of the runs.
    #[must_use]
    pub fn spread(&self) -> [f64; 2] {
        [0.25, 0.75].map(|share| quantile(self.newer_half(), share))
    }
}

/// Median; NaN for no values.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    quantile(values, 0.5)
}

/// Quantile at this share; NaN for no values.
fn quantile(values: impl IntoIterator<Item = f64>, share: f64) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let last = values.len().saturating_sub(1);
    let at = (last as f64 * share).round() as usize;
    values.get(at).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_staircase_finds_the_rate_from_below_and_from_above() {
        for first in [100.0, 20_000.0] {
            let mut stairs = Staircase::new(first);
            (0..40).for_each(|_| stairs.record(stairs.rate <= 3000.0));
            let found = stairs.threshold();
            assert!((found / 3000.0 - 1.0).abs() < 0.05, "{found}");
            let [low, high] = stairs.spread();
            assert!(low <= found && found <= high && high / low < 1.1);
        }
    }
}
