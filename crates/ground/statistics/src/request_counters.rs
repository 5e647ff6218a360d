//! Requests answered by servers, from their own counters: for servers that already have traffic.

use crate::histogram::histogram_quantile;

/// Counters of a server at one moment, or their increase over an interval. They restart at zero
/// when the server restarts.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct RequestCounters {
    /// Requests answered within their latency objective.
    good: f64,
    /// Requests that were late, refused or failed.
    bad: f64,
    /// Upper bounds of buckets in seconds, ascending, with the number of requests that took at most
    /// that long.
    latency: Vec<(f64, u64)>,
    pub workers: u64,
    pub threads: u64,
}

/// Requests answered between two moments.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RequestWindow {
    pub requests: f64,
    /// Share of requests that were late, refused or failed.
    pub bad: f64,
    /// In seconds.
    pub p99: f64,
}

/// Sum over all series of a metric that have all these labels; `None` if there are none. `text` is
/// in the Prometheus exposition format.
#[must_use]
pub fn metric_sum(text: &str, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let labels: Vec<String> = labels.iter().map(|(k, v)| format!("{k}=\"{v}\"")).collect();
    let series = text.lines().filter(|line| {
        let rest = line.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
            && labels.iter().all(|label| line.contains(label))
    });
    let values = series.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    values.fold(None, |sum, value| Some(sum.unwrap_or(0.0) + value))
}

impl RequestCounters {
    /// Parses the text of `/metrics`; `None` if it is not from an Albacore server.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let sum = |name: &str| metric_sum(text, name, &[]);
        let bad = ["late", "shed", "failed"].map(|of| sum(&format!("albacore_{of}_total")));
        let buckets = "albacore_request_duration_seconds_bucket{";
        let ends = text.lines().filter_map(|line| {
            let labels = line.strip_prefix(buckets)?;
            let end = labels.split_once("le=\"")?.1.split_once('"')?.0;
            let count = line.rsplit(' ').next()?.parse::<u64>().ok()?;
            Some((end.parse::<f64>().ok()?, count))
        });
        Some(Self {
            good: sum("albacore_good_total")?,
            bad: bad.into_iter().flatten().sum(),
            latency: merged(ends.collect()),
            workers: sum("albacore_workers")? as u64,
            threads: sum("albacore_threads")? as u64,
        })
    }

    /// Increase of the counters since `before`; `None` if the server restarted in between.
    #[must_use]
    pub fn since(&self, before: &Self) -> Option<Self> {
        let earlier = |end: f64| {
            let mut ends = before.latency.iter();
            ends.find(|of| of.0 == end).map_or(0, |of| of.1)
        };
        let latency = self.latency.iter();
        let latency = latency.map(|&(end, n)| Some((end, n.checked_sub(earlier(end))?)));
        let (good, bad) = (self.good - before.good, self.bad - before.bad);
        let grown = Self {
            good,
            bad,
            latency: latency.collect::<Option<_>>()?,
            ..*self
        };
        (good >= 0.0 && bad >= 0.0).then_some(grown)
    }
}

impl RequestWindow {
    /// Sums the counter increases of several servers; `None` if they answered no requests.
    #[must_use]
    pub fn of(grown: impl IntoIterator<Item = RequestCounters>) -> Option<Self> {
        let (mut good, mut bad, mut latency) = (0.0, 0.0, Vec::new());
        for server in grown {
            good += server.good;
            bad += server.bad;
            latency.extend(server.latency);
        }
        let (latency, requests) = (merged(latency), good + bad);
        let is_timed = latency.last().is_some_and(|last| last.1 > 0);
        (is_timed && requests > 0.0).then(|| Self {
            requests,
            bad: bad / requests,
            p99: histogram_quantile(&latency, 0.99),
        })
    }
}

/// Sums the counts of equal buckets, ascending.
fn merged(mut buckets: Vec<(f64, u64)>) -> Vec<(f64, u64)> {
    buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
    buckets.dedup_by(|next, kept| {
        let is_same = next.0 == kept.0;
        kept.1 = kept.1.saturating_add(if is_same { next.1 } else { 0 });
        is_same
    });
    buckets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(good: u32, late: u32, buckets: [u32; 3]) -> RequestCounters {
        let [a, b, c] = buckets;
        let text = format!(
            "albacore_good_total{{model=\"m\"}} {good}\nalbacore_late_total{{model=\"m\"}} {late}\n\
             albacore_workers 2\nalbacore_threads 3\n\
             albacore_request_duration_seconds_bucket{{model=\"m\",le=\"0.001\"}} {a}\n\
             albacore_request_duration_seconds_bucket{{model=\"m\",le=\"0.002\"}} {b}\n\
             albacore_request_duration_seconds_bucket{{model=\"m\",le=\"+Inf\"}} {c}\n\
             albacore_request_duration_seconds_bucket{{model=\"n\",le=\"0.001\"}} 0\n"
        );
        RequestCounters::parse(&text).unwrap()
    }

    #[test]
    fn a_window_is_the_growth_of_the_counters() {
        let before = served(10, 0, [10, 10, 10]);
        assert_eq!((before.workers, before.threads), (2, 3));
        let grown = served(100, 10, [60, 110, 110]).since(&before).unwrap();
        let window = RequestWindow::of([grown.clone()]).unwrap();
        assert_eq!((window.requests, window.bad), (100.0, 0.1));
        assert!((window.p99 - 0.00198).abs() < 1e-9, "{window:?}");
        let beyond = served(110, 0, [10, 10, 110]).since(&before).unwrap();
        assert_eq!(RequestWindow::of([beyond.clone()]).unwrap().p99, 0.002);
        let both = RequestWindow::of([grown, beyond]).unwrap();
        assert_eq!((both.requests, both.bad), (200.0, 0.05));
        assert_eq!(both.p99, 0.002, "half of them took longer");
    }

    #[test]
    fn counters_of_a_server_that_was_started_again_are_not_compared() {
        let before = served(10, 0, [10, 10, 10]);
        assert_eq!(served(5, 0, [5, 5, 5]).since(&before), None);
        assert_eq!(RequestWindow::of(before.since(&before)), None);
    }

    #[test]
    fn series_are_found_by_their_labels_and_added_up() {
        let text = "albacore_x_total{model=\"a\",kind=\"value\"} 2\n\
                    albacore_x_total{model=\"b\",kind=\"value\"} 3\n\
                    albacore_x_total_more{model=\"a\"} 9\nalbacore_y 0.5\n";
        assert_eq!(metric_sum(text, "albacore_x_total", &[]), Some(5.0));
        assert_eq!(
            metric_sum(text, "albacore_x_total", &[("model", "b")]),
            Some(3.0)
        );
        assert_eq!(metric_sum(text, "albacore_y", &[]), Some(0.5));
        assert_eq!(metric_sum(text, "albacore_z", &[]), None);
    }
}
