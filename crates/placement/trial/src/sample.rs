//! Counters of a pod, and the measurements between two samples.

use std::time::Duration;

use albacore_statistics::histogram_quantile;

use crate::limits::{CPU_MICROS_MIN, REQUESTS_MIN, RUN_DELAY_MIN};

/// Metric by which arms are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TrialMetric {
    /// The p99 of the server's own latency histogram, then the CPU time per request.
    Latency,
    /// Run-queue waiting time of the server's threads per second of their CPU time: for servers
    /// that report no latency. Not a latency itself.
    RunDelay,
}

/// Cumulative histogram: the upper bound of each bucket in seconds, and the number of requests
/// since the start of the server that took at most that long.
pub type LatencyHistogram = Vec<(f64, u64)>;

/// Counters of a pod at one moment.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Sample {
    /// Reported by the server; empty with [`TrialMetric::RunDelay`]. Untrusted: any number must be
    /// accepted without a panic.
    pub latency: LatencyHistogram,
    pub usage: PodUsage,
}

/// Kernel counters of a pod's workers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PodUsage {
    /// CPU time in microseconds.
    pub cpu_micros: u64,
    /// Waiting time in run queues, in microseconds.
    pub waiting_micros: u64,
    /// Migrations of their threads between cpus, if counted by the kernel.
    pub migrations: Option<u64>,
    /// The processes included, ascending: counters of different processes are not comparable.
    pub processes: Vec<i32>,
}

/// The measurements of one window.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct WindowStats {
    /// p99 in seconds, or waiting time per CPU time.
    pub(crate) primary: f64,
    /// In microseconds; `None` if requests are unknown.
    pub(crate) cpu_per_request: Option<f64>,
    pub(crate) migrations_per_second: Option<f64>,
    /// Requests per second, or CPU seconds per second.
    pub(crate) load: f64,
}

/// Measures between two samples; `None` if the counters were reset, belong to different processes,
/// or contain too few events.
pub(crate) fn measure(
    metric: TrialMetric,
    first: &Sample,
    last: &Sample,
    time: Duration,
) -> Option<WindowStats> {
    if first.usage.processes != last.usage.processes {
        return None;
    }
    let seconds = time.as_secs_f64().max(1e-3);
    let cpu = last.usage.cpu_micros.checked_sub(first.usage.cpu_micros)?;
    let migrations = first.usage.migrations.zip(last.usage.migrations);
    let migrations = migrations.and_then(|(a, b)| b.checked_sub(a));
    let migrations_per_second = migrations.map(|count| count as f64 / seconds);
    match metric {
        TrialMetric::Latency => {
            let counts = difference(&first.latency, &last.latency)?;
            let requests = counts.last()?.1;
            (requests >= REQUESTS_MIN).then(|| WindowStats {
                primary: histogram_quantile(&counts, 0.99),
                cpu_per_request: Some(cpu as f64 / requests as f64),
                migrations_per_second,
                load: requests as f64 / seconds,
            })
        }
        TrialMetric::RunDelay => {
            let [before, after] = [first, last].map(|sample| sample.usage.waiting_micros);
            let waiting = after.checked_sub(before)?;
            (cpu >= CPU_MICROS_MIN).then(|| WindowStats {
                primary: (waiting as f64 / cpu as f64).max(RUN_DELAY_MIN),
                cpu_per_request: None,
                migrations_per_second,
                load: cpu as f64 / 1e6 / seconds,
            })
        }
    }
}

/// The cumulative difference of two histograms; `None` if their buckets differ or they were reset.
fn difference(first: &LatencyHistogram, last: &LatencyHistogram) -> Option<LatencyHistogram> {
    let pairs = first.iter().zip(last);
    let same_ends = first.len() == last.len() && pairs.clone().all(|(a, b)| a.0 == b.0);
    let counts = pairs.map(|(a, b)| Some((b.0, b.1.checked_sub(a.1)?)));
    counts.collect::<Option<_>>().filter(|_| same_ends)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_time_is_compared_per_cpu_time_with_a_minimum() {
        let sample = |cpu_micros, waiting_micros| Sample {
            latency: Vec::new(),
            usage: PodUsage {
                cpu_micros,
                waiting_micros,
                migrations: Some(cpu_micros / 100),
                processes: vec![1],
            },
        };
        let second = Duration::from_secs(1);
        let of =
            |first: &Sample, last: &Sample| measure(TrialMetric::RunDelay, first, last, second);
        let zero = sample(0, 0);
        let stats = of(&zero, &sample(500_000, 50_000)).unwrap();
        assert_eq!((stats.primary, stats.load), (0.1, 0.5));
        assert_eq!(stats.migrations_per_second, Some(5000.0));
        let least = of(&zero, &sample(500_000, 3)).unwrap();
        assert_eq!(least.primary, RUN_DELAY_MIN);
        assert_eq!(of(&zero, &sample(CPU_MICROS_MIN - 1, 0)), None);
        // A thread that exited is no longer included in the counters.
        assert_eq!(of(&sample(0, 9), &sample(500_000, 8)), None);
    }
}
