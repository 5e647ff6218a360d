//! Statistics of the last minute: outcomes of requests, idle time of workers, and the resulting
//! load. Per-model statistics are in `model_window`.
//!
//! Time is divided into [`SPANS`] spans; the oldest is dropped as a whole when a new one begins, so
//! the window is between 55 and 60 seconds long, or as long as the server has been running.

use albacore_batching::{DeploymentLoad, ModelLoad, Nanos, RequestCounts};

use super::model_window::{KindLoad, Latencies, model_load};

/// Spans of the window.
const SPANS: usize = 12;

/// Spans of the newest part of the window, in addition to the current one.
pub(super) const NEWEST: usize = 3;

/// Nanoseconds of a span.
const SPAN_NANOS: u64 = 5_000_000_000;

/// A ring buffer of values by span, with the span number of each value.
#[derive(Clone, Debug)]
pub(super) struct SlidingWindow<T> {
    numbers: [u64; SPANS],
    values: [T; SPANS],
}

pub(super) fn number(now: Nanos) -> u64 {
    now.0 / SPAN_NANOS
}

fn index_of(number: u64) -> usize {
    (number % SPANS as u64) as usize
}

impl<T: Default> SlidingWindow<T> {
    pub(super) fn new() -> Self {
        Self {
            numbers: [0; SPANS],
            values: std::array::from_fn(|_| T::default()),
        }
    }

    /// The value of span `number`, reset if its place held an older span.
    pub(super) fn of(&mut self, number: u64) -> &mut T {
        let at = index_of(number);
        if self.numbers[at] < number {
            self.numbers[at] = number;
            self.values[at] = T::default();
        }
        &mut self.values[at]
    }

    /// Whether span `number` has left the window, because its place holds a newer one.
    pub(super) fn has_left(&self, number: u64) -> bool {
        self.numbers[index_of(number)] > number
    }

    /// The values of the window that ends now.
    pub(super) fn recent(&self, now: Nanos) -> impl Iterator<Item = &T> {
        self.last(SPANS, now)
    }

    /// The values of the last `count` spans.
    pub(super) fn last(&self, count: usize, now: Nanos) -> impl Iterator<Item = &T> {
        let now = number(now);
        let spans = self.numbers.iter().zip(&self.values);
        spans
            .filter(move |&(&number, _)| number + count as u64 > now && number <= now)
            .map(|(_, value)| value)
    }
}

/// Requests by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    pub good: u64,
    /// Answered after the objective.
    pub late: u64,
    /// Rejected by admission.
    pub shed: u64,
    /// Accepted and not answered.
    pub failed: u64,
}

impl Outcomes {
    pub(super) fn add(&mut self, other: &Self) {
        self.good += other.good;
        self.late += other.late;
        self.shed += other.shed;
        self.failed += other.failed;
    }

    /// Number of late, shed and failed requests.
    #[must_use]
    pub fn bad(&self) -> u64 {
        self.late + self.shed + self.failed
    }

    #[must_use]
    pub fn all(&self) -> u64 {
        self.good + self.bad()
    }

    /// [`Outcomes::bad`] as a fraction of all; 0 without requests.
    #[must_use]
    pub fn bad_rate(&self) -> f64 {
        let bad = self.bad();
        bad as f64 / ((self.good + bad) as f64).max(1.0)
    }
}

/// Idle time of the workers.
#[derive(Debug)]
pub(super) struct IdleWindow {
    /// Idle worker time in nanoseconds.
    idle: SlidingWindow<u64>,
    /// Number of idle workers, since `since`.
    idle_workers: usize,
    since: Nanos,
}

impl IdleWindow {
    pub(super) fn new() -> Self {
        Self {
            idle: SlidingWindow::new(),
            idle_workers: 0,
            since: Nanos(0),
        }
    }

    /// Sets the number of idle workers from now on.
    pub(super) fn idle(&mut self, workers: usize, now: Nanos) {
        if workers != self.idle_workers {
            self.add_idle_time(now);
            self.idle_workers = workers;
        }
    }

    /// Adds the idle time up to now.
    fn add_idle_time(&mut self, now: Nanos) {
        let (first, last) = (number(self.since), number(now));
        // Spans before the window are dropped anyway.
        let first = first.max(last.saturating_sub(SPANS as u64));
        for span in first..=last {
            let from = self.since.0.max(span * SPAN_NANOS);
            let to = now.0.min((span + 1) * SPAN_NANOS);
            *self.idle.of(span) += to.saturating_sub(from) * self.idle_workers as u64;
        }
        self.since = self.since.max(now);
    }

    /// The load, computed from each model's window and the fraction of bad requests that its
    /// objective allows.
    pub(super) fn load(
        &mut self,
        workers: usize,
        models: &[(Vec<KindLoad>, Option<f64>)],
        now: Nanos,
    ) -> ServerLoad {
        self.add_idle_time(now);
        let start = (number(now) + 1).saturating_sub(SPANS as u64) * SPAN_NANOS;
        let nanos = (now.0 - start).max(1);
        let idle: u64 = self.idle.recent(now).sum();
        let idle_share = idle as f64 / (nanos as f64 * workers.max(1) as f64);
        let idle_share = idle_share.min(1.0);
        let window_seconds = nanos as f64 / 1e9;
        let (mut outcomes, mut newest) = (Outcomes::default(), Outcomes::default());
        let mut latencies = Latencies::default();
        for kind in models.iter().flat_map(|(kinds, _)| kinds) {
            outcomes.add(&kind.outcomes);
            newest.add(&kind.newest);
            latencies.merge(&kind.latencies);
        }
        let nanos_of = |share| latencies.quantile_bound(share).map(|micros| micros * 1000);
        ServerLoad {
            window_seconds,
            outcomes,
            newest,
            goodput_per_second: outcomes.good as f64 / window_seconds.max(1.0),
            bad_rate: outcomes.bad_rate(),
            idle_share,
            factor: factor(models, idle_share),
            latency_p50_nanos: nanos_of(0.5),
            latency_p99_nanos: nanos_of(0.99),
        }
    }
}

/// The factor by which the number of pods should be multiplied.
fn factor(models: &[(Vec<KindLoad>, Option<f64>)], idle_share: f64) -> f64 {
    let models = models.iter();
    let models: Vec<ModelLoad> = models
        .map(|(kinds, allowed)| model_load(kinds, *allowed))
        .collect();
    let mut all = RequestCounts::default();
    models.iter().for_each(|model| all.add(&model.all));
    DeploymentLoad::new(1, idle_share, all, &models).factor()
}

/// Load of the server in the window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ServerLoad {
    /// Length of the window.
    pub window_seconds: f64,
    /// All requests by outcome.
    pub outcomes: Outcomes,
    /// Outcomes of the last 15 to 20 s.
    pub newest: Outcomes,
    /// Requests answered in time, per second.
    pub goodput_per_second: f64,
    /// Late, shed and failed requests as a fraction of all.
    pub bad_rate: f64,
    /// Idle time of workers as a fraction of the time of all workers.
    pub idle_share: f64,
    /// The factor by which the number of pods should be multiplied: 1/(1-r) with r the bad fraction
    /// of the worst model or kind if that is above 0, else 1-f with f = `idle_share`.
    pub factor: f64,
    /// Median time from submission to reply in nanoseconds, at most one part in 16 too high; `None`
    /// without replies.
    pub latency_p50_nanos: Option<u64>,
    /// The 99th percentile, likewise.
    pub latency_p99_nanos: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::super::Kind;
    use super::super::model_window::ModelWindow;
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn at(seconds: u64) -> Nanos {
        Nanos(seconds * SECOND)
    }

    fn is_near(value: f64, expected: f64) -> bool {
        (value - expected).abs() < 1e-9
    }

    #[test]
    fn idle_time_is_counted_over_spans_and_forgotten_with_them() {
        let mut window = IdleWindow::new();
        assert!(is_near(window.load(2, &[], at(0)).idle_share, 0.0));
        window.idle(2, at(10));
        assert!(is_near(window.load(2, &[], at(20)).idle_share, 0.5));
        window.idle(1, at(20));
        let load = window.load(2, &[], at(40));
        assert!(is_near(load.idle_share, 0.5) && is_near(load.window_seconds, 40.0));
        assert!(is_near(load.factor, 0.625), "0.5 / 0.8");
        let load = window.load(2, &[], at(1000));
        assert!(is_near(load.idle_share, 0.5) && is_near(load.window_seconds, 55.0));
        window.idle(0, at(1000));
        assert!(is_near(window.load(2, &[], at(2000)).factor, 1.0));
        window.idle(2, at(2000));
        assert!(is_near(window.load(2, &[], at(9000)).factor, 0.0));
    }

    #[test]
    fn latencies_of_the_last_minute_are_at_most_a_sixteenth_too_high() {
        let mut model = ModelWindow::default();
        let mut quantiles = |latencies: &[u64], now| {
            for (at, &latency) in latencies.iter().enumerate() {
                let kind = [Kind::Value, Kind::Contribs][at % 2];
                model.record_answered(kind, latency, now);
            }
            let load = IdleWindow::new().load(1, &[(model.kinds(now), None)], now);
            (load.latency_p50_nanos, load.latency_p99_nanos)
        };
        let latencies: Vec<u64> = (1..=1000).map(|micros| micros * 1000).collect();
        let (p50, p99) = quantiles(&latencies, at(1));
        assert!((500_000..=531_250).contains(&p50.unwrap()), "{p50:?}");
        assert!((990_000..=1_051_875).contains(&p99.unwrap()), "{p99:?}");
        assert_eq!(quantiles(&[], at(100)), (None, None));
    }

    fn factor_of(models: &[(u64, u64)]) -> f64 {
        let windows = models.iter().map(|&(good, late)| {
            let mut model = ModelWindow::default();
            let outcomes = model.outcomes(Some(Kind::Value), at(10));
            (outcomes.good, outcomes.late) = (good, late);
            (model.kinds(at(10)), Some(0.01))
        });
        let windows: Vec<_> = windows.collect();
        IdleWindow::new().load(1, &windows, at(10)).factor
    }

    #[test]
    fn the_factor_is_that_of_the_rule_with_its_floor_and_its_cap() {
        assert!(is_near(factor_of(&[(50, 50)]), 2.0));
        assert!(is_near(factor_of(&[(98, 2)]), 1.11), "the floor");
        let kept = factor_of(&[(999, 1)]);
        assert!(is_near(kept, 1.0), "so few bad requests count as none");
        // Without idle time a fifth of the allowed fraction is an alert, as for the autoscaler.
        assert!(is_near(factor_of(&[(9979, 21)]), 1.11));
        assert!(is_near(factor_of(&[(996, 4)]), 1.11));
        assert!(is_near(factor_of(&[(0, 50)]), 10.0), "the cap");
        assert!(is_near(factor_of(&[(50, 0)]), 1.0));
    }

    #[test]
    fn the_factor_is_that_of_the_worst_model() {
        assert!(is_near(factor_of(&[(100_000, 0), (50, 50)]), 2.0));
    }
}
