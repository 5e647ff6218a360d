//! Searches for the highest rate at which every model's bad rate is within its bound, by bisection.

use crate::run::{Watcher, run_watched};
use crate::scenario::{Scenario, Source};

/// Maximum share of bad requests per model.
pub const BAD_RATE_MAX: f64 = 0.01;

/// Relative precision of the rate.
pub const RATE_PRECISION: f64 = 0.002;

/// Factor over a model's bound of bad requests at which a run is aborted, because the remaining
/// requests cannot compensate for it.
pub(crate) const ABORT_FACTOR: f64 = 1.3;

/// Aborts a run that can no longer meet the bound, and reports its progress.
struct GoodputWatcher<'a> {
    /// Allowed bad requests per model.
    allowed: Vec<f64>,
    is_aborted: bool,
    progress: &'a mut dyn FnMut(u64),
    arrived: u64,
}

impl Watcher for GoodputWatcher<'_> {
    fn should_continue(&mut self, arrived: u64, _of: u64, bad: &[u64]) -> bool {
        (self.progress)(arrived - self.arrived);
        self.arrived = arrived;
        let mut pairs = bad.iter().zip(&self.allowed);
        self.is_aborted = pairs.any(|(&bad, allowed)| bad as f64 > allowed * ABORT_FACTOR);
        !self.is_aborted
    }
}

/// Whether every model's bad rate is within its bound at this rate, with random arrivals.
pub fn is_good_at(scenario: &Scenario, rate: f64, progress: &mut dyn FnMut(u64)) -> bool {
    let scenario = scenario.at_rate(rate);
    let requests = match scenario.source {
        Source::Drawn { requests, .. } => requests as f64,
        Source::Closed { .. } | Source::Listed(_) => return false,
    };
    let share = |model_rate: f64| BAD_RATE_MAX * requests * model_rate / rate;
    let mut watcher = GoodputWatcher {
        allowed: scenario.rates().into_iter().map(share).collect(),
        is_aborted: false,
        progress,
        arrived: 0,
    };
    let figures = run_watched(&scenario, &mut watcher);
    !watcher.is_aborted && figures.worst_model_bad_rate <= BAD_RATE_MAX
}

/// Goodput of a scenario with random arrivals, in requests per second; its rate is ignored.
/// `progress` is called with numbers of simulated requests.
pub fn goodput(scenario: &Scenario, progress: &mut dyn FnMut(u64)) -> f64 {
    highest_rate(scenario.rate_bound(), |rate| {
        is_good_at(scenario, rate, progress)
    })
}

/// The highest good rate below `bound`, assuming that every rate above a bad one is bad.
pub(crate) fn highest_rate(bound: f64, mut is_good_at: impl FnMut(f64) -> bool) -> f64 {
    let (mut good, mut bad) = (0.0, bound);
    // Goodputs below a quarter of the bound are rare: start above it.
    let mut tried = bad * 0.75;
    // bound: the interval is halved each time, until 0.2 % or zero.
    for _ in 0..40 {
        if is_good_at(tried) {
            good = tried;
        } else {
            bad = tried;
        }
        if bad - good <= RATE_PRECISION * bad {
            break;
        }
        tried = (good + bad) / 2.0;
    }
    good
}
