//! Detects whether latency or success rate became worse after a parameter change under live load.

use crate::elimination::{EQUIVALENCE_RATIO, compare};
use crate::interval::{CONFIDENCE, Interval, SpeedDifference, median};
use crate::request_counters::RequestWindow;

/// Load growth above this factor explains worse figures, so no regression is reported.
const LOAD_FACTOR_MAX: f64 = 1.5;

/// Comparison of a number of windows before a change with as many after it.
#[derive(Debug)]
pub struct RegressionCheck {
    before: RequestWindow,
    after: RequestWindow,
    /// p99 before divided by p99 after: above 1 the servers became faster.
    p99: Option<Interval>,
    /// Share of requests answered in time, after divided by before.
    in_time: Option<Interval>,
}

impl RegressionCheck {
    /// Number of windows on each side of the change.
    pub const WINDOWS: u32 = 10;

    /// Minimum number of requests in a window for a meaningful p99.
    pub const REQUESTS_MIN: f64 = 100.0;

    #[must_use]
    pub fn between(before: &[RequestWindow], after: &[RequestWindow]) -> Self {
        let interval = |score: fn(&RequestWindow) -> f64| {
            let scores = |of: &[RequestWindow]| of.iter().map(score).collect::<Vec<f64>>();
            compare(&scores(after), &scores(before), CONFIDENCE)
        };
        let typical = |windows: &[RequestWindow]| {
            let of = |value: fn(&RequestWindow) -> f64| median(windows.iter().map(value).collect());
            RequestWindow {
                requests: of(|window| window.requests),
                bad: of(|window| window.bad),
                p99: of(|window| window.p99),
            }
        };
        Self {
            before: typical(before),
            after: typical(after),
            p99: interval(|of| -of.p99.max(1e-6).ln()),
            in_time: interval(|of| (1.0 - of.bad).max(1e-6).ln()),
        }
    }

    /// True if p99, or the share of requests answered in time, became worse by more than the noise
    /// and by more than a user would notice. If the load grew by more than `LOAD_FACTOR_MAX`, the
    /// change is not blamed. A load that fell is no excuse: closed-loop clients send less to slower
    /// servers.
    #[must_use]
    pub fn is_regression(&self) -> bool {
        let is_slower = |of: &Option<Interval>| {
            of.is_some_and(|of| {
                of.speed_difference() == SpeedDifference::Slower
                    && of.ratio * EQUIVALENCE_RATIO < 1.0
            })
        };
        !self.is_busier() && (is_slower(&self.p99) || is_slower(&self.in_time))
    }

    fn is_busier(&self) -> bool {
        self.after.requests > self.before.requests * LOAD_FACTOR_MAX
    }

    /// Both figures before and after the change, as a sentence without its period.
    #[must_use]
    pub fn text(&self) -> String {
        let (before, after) = (&self.before, &self.after);
        let ratio = self.p99.map_or(String::new(), |of| {
            let (low, ratio, high) = (1.0 / of.high, 1.0 / of.ratio, 1.0 / of.low);
            format!(" ({ratio:.2}x, {low:.2} to {high:.2} at 99 % confidence)")
        });
        let is_idler = after.requests * LOAD_FACTOR_MAX < before.requests;
        let loads = match self.is_busier() || is_idler {
            false => String::new(),
            true => format!(
                "; a window had {:.0} requests before and {:.0} after{}",
                before.requests,
                after.requests,
                if is_idler { "" } else { ": not comparable" }
            ),
        };
        format!(
            "p99: {:.2} ms before, {:.2} ms after{ratio}; late, refused or failed: {:.2} % before, {:.2} % after{loads}",
            before.p99 * 1e3,
            after.p99 * 1e3,
            before.bad * 100.0,
            after.bad * 100.0
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(p99: f64, bad: f64, requests: f64) -> Vec<RequestWindow> {
        let noise = [1.0, 1.03, 0.98, 1.01, 0.97, 1.02, 1.0, 0.99, 1.04, 0.96];
        let window = |noise: &f64| RequestWindow {
            requests: requests * noise,
            bad: bad * noise,
            p99: p99 * noise,
        };
        noise.iter().map(window).collect()
    }

    #[test]
    fn a_change_is_worse_only_beyond_the_noise_and_not_under_a_heavier_load() {
        let before = windows(0.01, 0.01, 1_000.0);
        let is_regression =
            |after: &[RequestWindow]| RegressionCheck::between(&before, after).is_regression();
        assert!(!is_regression(&before));
        assert!(!is_regression(&windows(0.005, 0.01, 1_000.0)));
        assert!(
            !is_regression(&windows(0.0101, 0.01, 1_000.0)),
            "within 2 %"
        );
        assert!(is_regression(&windows(0.012, 0.01, 1_000.0)), "slower");
        assert!(is_regression(&windows(0.01, 0.2, 1_000.0)), "more are late");
        let busier = RegressionCheck::between(&before, &windows(0.02, 0.2, 3_000.0));
        assert!(!busier.is_regression() && busier.text().contains("not comparable"));
        let fewer = RegressionCheck::between(&before, &windows(0.02, 0.01, 500.0));
        assert!(fewer.is_regression(), "clients that wait send less");
        assert!(fewer.text().contains("1000 requests before and 500 after"));
    }

    #[test]
    fn a_change_is_described_by_both_figures() {
        let change =
            RegressionCheck::between(&windows(0.01, 0.0, 500.0), &windows(0.02, 0.01, 500.0));
        let text = change.text();
        assert!(
            text.contains("10.00 ms before, 20.00 ms after (2.00x"),
            "{text}"
        );
    }
}
