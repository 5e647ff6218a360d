//! Arrival rate of a queue, and detection of bursts.
//!
//! Arrivals are counted in windows as long as the objective, the time in which the rows of a
//! deferred batch arrive. Their index of dispersion, the variance of the counts over their mean, is
//! 1 for random arrivals and greater for bursts. The variance is half of the mean squared
//! difference of successive counts (von Neumann), so that a growing or falling load is no burst.
//! Variation within a window, for example when a front end reads many connections at once, does not
//! count as a burst, and because requests are counted, a request of many rows does not either.

use crate::Nanos;

/// Window of queues whose objective is longer, or that have none.
const WINDOW_MAX: Nanos = Nanos(100_000_000);
const WINDOW_MIN: Nanos = Nanos(1_000_000);

/// Averaging time of the means: a time, and a minimum number of windows.
const MEMORY: Nanos = Nanos(4_000_000_000);
const MEMORY_WINDOWS: f64 = 64.0;

/// With fewer windows, arrivals are assumed to be random.
const WINDOWS_MIN: f64 = 16.0;

#[derive(Clone, Debug)]
pub(super) struct ArrivalMeter {
    window: Nanos,
    /// When the current window began; `None` before the first arrival.
    begin: Option<Nanos>,
    /// Requests and rows of the current window.
    requests: f64,
    rows: f64,
    /// Number of averaged windows.
    windows: f64,
    /// Requests of the previous window.
    last_requests: f64,
    mean_requests: f64,
    /// Mean of the squared differences of successive counts.
    mean_difference: f64,
    mean_rows: f64,
}

impl ArrivalMeter {
    pub(super) fn new(objective: Option<Nanos>) -> Self {
        Self {
            window: window_of(objective),
            begin: None,
            requests: 0.0,
            rows: 0.0,
            windows: 0.0,
            last_requests: 0.0,
            mean_requests: 0.0,
            mean_difference: 0.0,
            mean_rows: 0.0,
        }
    }

    /// Starts again if the length of the windows changes.
    pub(super) fn set_objective(&mut self, objective: Option<Nanos>) {
        if self.window != window_of(objective) {
            *self = Self::new(objective);
        }
    }

    pub(super) fn arrived(&mut self, rows: u64, now: Nanos) {
        self.advance(now);
        self.requests += 1.0;
        self.rows += rows as f64;
    }

    /// Closes the windows that are over.
    pub(super) fn advance(&mut self, now: Nanos) {
        let begin = *self.begin.get_or_insert(now);
        let ended_windows = now.saturating_sub(begin).0 / self.window.0;
        if ended_windows == 0 {
            return;
        }
        let (requests, rows) = (self.requests, self.rows);
        self.average(requests, rows, 1);
        if ended_windows > 1 {
            self.average(0.0, 0.0, 1);
            self.average(0.0, 0.0, ended_windows - 2);
        }
        (self.requests, self.rows) = (0.0, 0.0);
        self.begin = Some(begin.saturating_add(Nanos(ended_windows * self.window.0)));
    }

    /// Adds `count` windows with these counts to the averages.
    fn average(&mut self, requests: f64, rows: f64, count: u64) {
        let count = count as f64;
        // The first window has no predecessor.
        let difference = match self.windows > 0.0 {
            true => requests - self.last_requests,
            false => 0.0,
        };
        self.last_requests = requests;
        let memory = (MEMORY.0 as f64 / self.window.0 as f64).max(MEMORY_WINDOWS);
        // At first the mean of all windows, later an exponentially weighted mean.
        let growing = count.min((memory - self.windows).max(0.0));
        self.windows += growing;
        let old_weight = match self.windows > 0.0 {
            true => (1.0 - growing / self.windows) * (1.0 - 1.0 / memory).powf(count - growing),
            false => 1.0,
        };
        let toward = |mean: &mut f64, value: f64| *mean = value + (*mean - value) * old_weight;
        toward(&mut self.mean_requests, requests);
        toward(&mut self.mean_difference, difference * difference);
        toward(&mut self.mean_rows, rows);
    }

    /// Rows per second.
    pub(super) fn rows_per_second(&self) -> f64 {
        self.mean_rows * 1e9 / self.window.0 as f64
    }

    pub(super) fn rows_per_request(&self) -> f64 {
        match self.mean_requests > 0.0 {
            true => (self.mean_rows / self.mean_requests).max(1.0),
            false => 1.0,
        }
    }

    /// Index of dispersion of the arrivals per window.
    pub(super) fn dispersion(&self) -> f64 {
        if self.windows < WINDOWS_MIN || self.mean_requests <= 0.0 {
            return 1.0;
        }
        self.mean_difference / 2.0 / self.mean_requests
    }
}

fn window_of(objective: Option<Nanos>) -> Nanos {
    objective
        .unwrap_or(WINDOW_MAX)
        .clamp(WINDOW_MIN, WINDOW_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A meter after `groups` groups of `size` arrivals, `gap` apart.
    fn after(groups: u64, size: u64, gap: u64, rows: u64) -> ArrivalMeter {
        let mut meter = ArrivalMeter::new(Some(Nanos(25 * MS)));
        for group in 0..groups {
            (0..size).for_each(|_| meter.arrived(rows, Nanos(group * gap)));
        }
        meter
    }

    #[test]
    fn the_rate_counts_rows_and_the_dispersion_requests() {
        let even = after(10_000, 1, MS, 10);
        assert!((even.rows_per_second() / 10_000.0 - 1.0).abs() < 0.01);
        assert!((even.rows_per_request() - 10.0).abs() < 1e-9);
        assert!(even.dispersion() < 0.1);
    }

    #[test]
    fn groups_within_a_window_are_no_burst_and_longer_ones_are() {
        // 20 at once every 20 ms would be a burst with a window of 1 ms, but not with one of 25 ms.
        assert!(after(1000, 2, 2 * MS, 1).dispersion() < 0.5);
        assert!(after(1000, 40, 200 * MS, 1).dispersion() > 10.0);
    }

    #[test]
    fn a_load_that_doubles_is_no_burst() {
        let mut meter = after(10_000, 1, MS, 1);
        (0..10_000).for_each(|n| meter.arrived(1, Nanos(10_000 * MS + n * MS / 2)));
        assert!(meter.dispersion() < 0.5, "{}", meter.dispersion());
    }

    #[test]
    fn a_pause_lowers_the_rate_as_time_passes() {
        let mut meter = after(10_000, 1, MS, 1);
        let before = meter.rows_per_second();
        meter.advance(Nanos(14_000 * MS));
        let share = meter.rows_per_second() / before;
        assert!((share - (-1.0_f64).exp()).abs() < 0.01, "{share}");
        meter.advance(Nanos(1_000_000 * MS));
        assert!(meter.rows_per_second() < 1e-6);
    }
}
