//! Corrects predictions by the measured capacities of the calibrated configurations.
//!
//! The model ignores interrupts, context switches and cache pollution by the load generator. The
//! resulting error is about the same factor for similar configurations, so each prediction is
//! multiplied by the ratio of measured to predicted capacity of the configurations calibrated with
//! its number of threads: that of one worker, that of as many as fit on the cpus, or a weighted
//! geometric mean of both.

use crate::Context;
use crate::calibration::{Calibrated, Costs};
use crate::placement::Placements;
use crate::prediction::{Predicted, predict};

/// Bounds of the factor: values beyond are measurement errors.
const FACTOR: [f64; 2] = [0.3, 3.0];

/// Correction factors of predictions.
#[derive(Debug)]
pub(crate) struct Correction {
    /// For one worker, by its threads.
    one: Vec<Factor>,
    /// For as many workers as fit on the cpus.
    full: Option<Factor>,
}

/// Ratio of measured to predicted capacity of a configuration.
#[derive(Clone, Copy, Debug)]
struct Factor {
    workers: u16,
    threads: u16,
    factor: f64,
}

impl Correction {
    pub(crate) fn of(context: &Context<'_>, costs: &Costs, placements: &mut Placements) -> Self {
        let mut factor = |of: &Calibrated| {
            let predicted = predict(context, costs, placements, &of.configuration)?;
            let factor = of.capacity / predicted.goodput;
            factor.is_finite().then(|| Factor {
                workers: of.configuration.workers,
                threads: of.configuration.threads,
                factor: factor.clamp(FACTOR[0], FACTOR[1]),
            })
        };
        Self {
            one: costs.by_threads.iter().filter_map(&mut factor).collect(),
            full: costs.full.as_ref().and_then(&mut factor),
        }
    }

    /// The prediction with corrected goodput.
    pub(crate) fn correct(&self, predicted: Predicted) -> Predicted {
        let of = &predicted.configuration;
        Predicted {
            goodput: predicted.goodput * self.factor(of.workers, of.threads),
            ..predicted
        }
    }

    fn factor(&self, workers: u16, threads: u16) -> f64 {
        let mut one = self.one.iter();
        let one = one.find(|of| of.threads == threads);
        let one = one.map_or(1.0, |of| of.factor);
        let Some(full) = self.full else { return one };
        let share = f64::from(workers - 1) / f64::from(full.workers.max(2) - 1);
        let share = share.min(1.0);
        one.powf(1.0 - share) * full.factor.powf(share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calibrated_configurations_are_predicted_as_measured_and_others_interpolated() {
        let factor = |workers, threads, factor| Factor {
            workers,
            threads,
            factor,
        };
        let correction = Correction {
            one: vec![factor(1, 1, 0.9), factor(1, 2, 0.8)],
            full: Some(factor(5, 1, 0.4)),
        };
        let is_near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(is_near(correction.factor(1, 1), 0.9));
        assert!(is_near(correction.factor(1, 2), 0.8));
        assert!(is_near(correction.factor(5, 1), 0.4));
        assert!(is_near(correction.factor(9, 1), 0.4));
        assert!(is_near(correction.factor(3, 1), 0.6));
    }
}
