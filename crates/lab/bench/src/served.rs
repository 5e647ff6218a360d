//! What a server has answered to all its clients, from its own counters: for servers that have
//! traffic already.

use std::net::{SocketAddr, ToSocketAddrs as _};

use albacore_load::get;
use albacore_statistics::histogram_quantile;

use crate::comparison::server_metrics::ServerMetrics;
use crate::error::BenchError;

/// Where a server reports `/metrics`.
#[derive(Clone, Debug)]
pub struct ServerAddress {
    url: String,
    address: SocketAddr,
}

/// Counters of a server at one moment; they begin at zero when it is started again.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Served {
    /// Requests that were answered within their objective.
    good: f64,
    /// Requests that were late, refused or failed.
    bad: f64,
    /// Upper bounds of buckets in seconds, ascending, and requests that took at most that long.
    latency: Vec<(f64, u64)>,
    pub workers: u64,
    pub threads: u64,
}

/// What a server did between two moments.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ServedWindow {
    pub requests: f64,
    /// Share of requests that were late, refused or failed.
    pub bad: f64,
    /// Seconds.
    pub p99: f64,
}

impl ServerAddress {
    /// # Errors
    /// `url` is not `http://HOST:PORT`, or there is no such host.
    pub fn parse(url: &str) -> Result<Self, BenchError> {
        let place = url.strip_prefix("http://").unwrap_or_default();
        let found = place.trim_end_matches('/').to_socket_addrs().ok();
        let address = found.and_then(|mut found| found.next());
        let address = address.ok_or_else(|| {
            BenchError::Usage(format!("{url}: http://HOST:PORT of a server is due"))
        })?;
        Ok(Self {
            url: url.trim_end_matches('/').to_owned(),
            address,
        })
    }

    /// # Errors
    /// The server does not answer, or is not Albacore's.
    pub fn served(&self) -> Result<Served, BenchError> {
        let url = format!("{}/metrics", self.url);
        let asked = get(self.address, "/metrics");
        let (status, body) = asked.map_err(|source| BenchError::Look {
            url: url.clone(),
            source,
        })?;
        let text = String::from_utf8(body).ok().filter(|_| status == 200);
        let served = text.and_then(|text| Served::parse(&ServerMetrics(text)));
        served.ok_or_else(|| {
            let what = "it reports no requests of a server of Albacore";
            BenchError::Failed(format!("{url}: {what} (status {status})"))
        })
    }
}

impl Served {
    fn parse(metrics: &ServerMetrics) -> Option<Self> {
        let sum = |name: &str| metrics.sum(name, &[]);
        let bad = ["late", "shed", "failed"].map(|of| sum(&format!("albacore_{of}_total")));
        let buckets = "albacore_request_duration_seconds_bucket{";
        let ends = metrics.0.lines().filter_map(|line| {
            let labels = line.strip_prefix(buckets)?;
            let end = labels.split_once("le=\"")?.1.split_once('"')?.0;
            let count = line.rsplit(' ').next()?.parse::<u64>().ok()?;
            Some((end.parse::<f64>().ok()?, count))
        });
        let mut latency: Vec<(f64, u64)> = ends.collect();
        latency.sort_by(|a, b| a.0.total_cmp(&b.0));
        latency.dedup_by(|next, kept| {
            let is_same = next.0 == kept.0;
            kept.1 = kept.1.saturating_add(if is_same { next.1 } else { 0 });
            is_same
        });
        Some(Self {
            good: sum("albacore_good_total")?,
            bad: bad.into_iter().flatten().sum(),
            latency,
            workers: sum("albacore_workers")? as u64,
            threads: sum("albacore_threads")? as u64,
        })
    }

    /// What was answered since `before`; `None` if the server was started again since, or answered
    /// nothing.
    #[must_use]
    pub fn since(&self, before: &Self) -> Option<ServedWindow> {
        let (good, bad) = (self.good - before.good, self.bad - before.bad);
        let earlier = |end: f64| {
            let mut ends = before.latency.iter();
            ends.find(|of| of.0 == end).map_or(0, |of| of.1)
        };
        let grown = self.latency.iter();
        let grown = grown.map(|&(end, n)| Some((end, n.checked_sub(earlier(end))?)));
        let grown: Vec<(f64, u64)> = grown.collect::<Option<_>>()?;
        let is_timed = grown.last().is_some_and(|last| last.1 > 0);
        (is_timed && good >= 0.0 && bad >= 0.0 && good + bad > 0.0).then(|| ServedWindow {
            requests: good + bad,
            bad: bad / (good + bad),
            p99: histogram_quantile(&grown, 0.99),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(good: u32, late: u32, buckets: [u32; 3]) -> Served {
        let [a, b, c] = buckets;
        let text = format!(
            "albacore_good_total{{model=\"m\"}} {good}\nalbacore_late_total{{model=\"m\"}} {late}\n\
             albacore_workers 2\nalbacore_threads 3\n\
             albacore_request_duration_seconds_bucket{{model=\"m\",le=\"0.001\"}} {a}\n\
             albacore_request_duration_seconds_bucket{{model=\"m\",le=\"0.002\"}} {b}\n\
             albacore_request_duration_seconds_bucket{{model=\"m\",le=\"+Inf\"}} {c}\n\
             albacore_request_duration_seconds_bucket{{model=\"n\",le=\"0.001\"}} 0\n"
        );
        Served::parse(&ServerMetrics(text)).unwrap()
    }

    #[test]
    fn a_window_is_the_growth_of_the_counters() {
        let before = served(10, 0, [10, 10, 10]);
        assert_eq!((before.workers, before.threads), (2, 3));
        let window = served(100, 10, [60, 110, 110]).since(&before).unwrap();
        assert_eq!((window.requests, window.bad), (100.0, 0.1));
        assert!((window.p99 - 0.00198).abs() < 1e-9, "{window:?}");
        let beyond = served(110, 0, [10, 10, 110]).since(&before).unwrap();
        assert_eq!(beyond.p99, 0.002);
    }

    #[test]
    fn counters_of_a_server_that_was_started_again_are_not_compared() {
        let before = served(10, 0, [10, 10, 10]);
        assert_eq!(served(5, 0, [5, 5, 5]).since(&before), None);
        assert_eq!(before.since(&before), None);
    }

    #[test]
    fn an_address_has_host_and_port() {
        ServerAddress::parse("http://127.0.0.1:8080/").unwrap();
        for bad in ["127.0.0.1:8080", "http://127.0.0.1", "grpc://127.0.0.1:1"] {
            let error = ServerAddress::parse(bad).unwrap_err().to_string();
            assert!(error.contains(bad), "{error}");
        }
    }
}
