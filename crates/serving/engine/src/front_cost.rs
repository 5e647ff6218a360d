//! Cost of a request for the front end, and utilization of its event loops, over periods of at
//! least [`PERIOD`]: cpu time of this process divided by the number of its requests, and cpu time
//! of the thread of each loop divided by elapsed time.
//!
//! The cost of an error is that of a request without rows and results: cpu time divided by the work
//! in units of such requests. The mean cost would be too high for errors between long replies.
//!
//! Workers are separate processes. Periods with few requests are ignored, because other work of the
//! process would be attributed to them.

use albacore_batching::Nanos;
use albacore_batching::auto::FrontCost;

const PERIOD: Nanos = Nanos(1_000_000_000);

const REQUESTS_MIN: u64 = 100;

/// Weight of the newest period: one part in this many.
const NEWEST: u64 = 4;

#[derive(Debug)]
pub(super) struct FrontCostMeter {
    threads: usize,
    /// Requests of this period.
    requests: u64,
    /// Cpu times at the beginning of this period, and its time.
    begin: Option<(FrontCpu, Nanos)>,
    per_request: Option<Nanos>,
    per_error: Option<Nanos>,
    /// Cpu utilization of each event loop, 0 to 1; empty before the first period ends.
    busy_ratios: Vec<f64>,
}

/// Cpu times of the front end since its start.
#[derive(Debug)]
pub(super) struct FrontCpu {
    pub(super) process: Nanos,
    /// Of the thread of each event loop.
    pub(super) loops: Vec<Nanos>,
}

impl FrontCostMeter {
    /// Creates a meter for a front end with `threads` threads.
    pub(super) fn new(threads: usize) -> Self {
        Self {
            threads,
            requests: 0,
            begin: None,
            per_request: None,
            per_error: None,
            busy_ratios: Vec::new(),
        }
    }

    /// Counts requests, accepted or rejected.
    pub(super) fn count(&mut self, requests: u64) {
        self.requests += requests;
    }

    /// Whether [`FrontCostMeter::measure`] should be called.
    pub(super) fn is_due(&self, now: Nanos) -> bool {
        let begin = self.begin.as_ref();
        begin.is_none_or(|(_, at)| now.saturating_sub(*at) >= PERIOD)
    }

    /// Ends a period; `cpu` contains the cumulative cpu times, `work` that of this period in units
    /// of requests without rows and results.
    pub(super) fn measure(&mut self, cpu: FrontCpu, work: f64, now: Nanos) {
        let requests = std::mem::take(&mut self.requests);
        if let Some((previous, began_at)) = &self.begin {
            let period = now.saturating_sub(*began_at).0.max(1) as f64;
            let loops = cpu.loops.iter().zip(&previous.loops);
            let newest =
                loops.map(|(cpu, previous)| cpu.saturating_sub(*previous).0 as f64 / period);
            self.busy_ratios = match self.busy_ratios.is_empty() {
                true => newest.collect(),
                false => {
                    let known = self.busy_ratios.iter();
                    let weight = 1.0 / NEWEST as f64;
                    let smooth = |(known, newest)| known + weight * (newest - known);
                    known.copied().zip(newest).map(smooth).collect()
                }
            };
            if requests >= REQUESTS_MIN {
                let cpu_time = cpu.process.saturating_sub(previous.process).0;
                // An error costs at most as much as the mean request.
                let per_error = (cpu_time as f64 / work.max(requests as f64)) as u64;
                self.per_request = Some(smoothed(self.per_request, cpu_time / requests));
                self.per_error = Some(smoothed(self.per_error, per_error));
            }
        }
        self.begin = Some((cpu, now));
    }

    /// Recent cpu utilization of each event loop, 0 to 1.
    pub(super) fn busy_ratios(&self) -> &[f64] {
        &self.busy_ratios
    }

    /// The measured cost; `None` before the first period with requests.
    pub(super) fn cost(&self) -> Option<FrontCost> {
        Some(FrontCost {
            per_request: self.per_request?,
            threads: self.threads,
        })
    }

    /// Like [`FrontCostMeter::cost`], of a request that is answered with an error.
    pub(super) fn error_cost(&self) -> Option<FrontCost> {
        Some(FrontCost {
            per_request: self.per_error?,
            threads: self.threads,
        })
    }
}

fn smoothed(known: Option<Nanos>, newest: u64) -> Nanos {
    Nanos(known.map_or(newest, |known| (known.0 * (NEWEST - 1) + newest) / NEWEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_divided_by_the_requests_of_busy_periods() {
        let mut meter = FrontCostMeter::new(2);
        let second = |n: u64| Nanos(n * PERIOD.0);
        let cpu = |process| FrontCpu {
            process: Nanos(process),
            loops: Vec::new(),
        };
        assert!(meter.is_due(second(0)));
        meter.measure(cpu(7_000), 0.0, second(0));
        assert!(!meter.is_due(Nanos(1)) && meter.is_due(second(1)));
        meter.count(1000);
        meter.measure(cpu(30_007_000), 1000.0, second(1));
        let cost = FrontCost {
            per_request: Nanos(30_000),
            threads: 2,
        };
        assert_eq!(meter.cost(), Some(cost));
        assert_eq!(meter.error_cost(), Some(cost));
        // A period with few requests does not change the cost.
        meter.count(5);
        meter.measure(cpu(60_000_000), 5.0, second(2));
        assert_eq!(meter.cost(), Some(cost));
    }

    #[test]
    fn each_event_loop_is_as_busy_as_its_thread_was_in_the_last_seconds() {
        let mut meter = FrontCostMeter::new(2);
        let mut at = |second: u64, loops: [u64; 2]| {
            let cpu = FrontCpu {
                process: Nanos(0),
                loops: loops.map(|tenths| Nanos(tenths * PERIOD.0 / 10)).to_vec(),
            };
            meter.measure(cpu, 0.0, Nanos(second * PERIOD.0));
            meter.busy_ratios().to_vec()
        };
        assert_eq!(at(0, [0, 0]), [0.0; 0]);
        assert_eq!(at(1, [10, 5]), [1.0, 0.5]);
        assert_eq!(at(3, [10, 15]), [0.75, 0.5]);
        (4..60).for_each(|second| drop(at(second, [10, 15])));
        assert!(at(60, [10, 15]).iter().all(|&ratio| ratio < 0.01));
    }
}
