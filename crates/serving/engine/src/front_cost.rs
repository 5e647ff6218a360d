//! What a request costs the front end: cpu time of this process over the requests that it took, by
//! periods of at least [`PERIOD`].
//!
//! Workers are other processes. Periods with few requests are not used: what the process does
//! besides would count as theirs.

use albacore_batching::Nanos;
use albacore_batching::auto::FrontCost;

const PERIOD: Nanos = Nanos(1_000_000_000);

const REQUESTS_MIN: u64 = 100;

/// The weight of the newest period: one part in so many.
const NEWEST: u64 = 4;

#[derive(Debug)]
pub(super) struct FrontCostMeter {
    threads: usize,
    /// Requests of this period.
    requests: u64,
    /// Cpu time of the process when this period began, and when that was.
    begin: Option<(Nanos, Nanos)>,
    per_request: Option<Nanos>,
}

impl FrontCostMeter {
    /// For a front end of so many threads.
    pub(super) fn new(threads: usize) -> Self {
        Self {
            threads,
            requests: 0,
            begin: None,
            per_request: None,
        }
    }

    /// A request was taken or refused.
    pub(super) fn count(&mut self) {
        self.requests += 1;
    }

    /// Whether [`FrontCostMeter::measure`] should be called.
    pub(super) fn is_due(&self, now: Nanos) -> bool {
        self.begin
            .is_none_or(|(_, at)| now.saturating_sub(at) >= PERIOD)
    }

    /// Ends a period; `cpu` is the cpu time of this process so far.
    pub(super) fn measure(&mut self, cpu: Nanos, now: Nanos) {
        let begin = self.begin.replace((cpu, now));
        let requests = std::mem::take(&mut self.requests);
        let Some((before, _)) = begin.filter(|_| requests >= REQUESTS_MIN) else {
            return;
        };
        let newest = cpu.saturating_sub(before).0 / requests;
        self.per_request = Some(match self.per_request {
            None => Nanos(newest),
            Some(known) => Nanos((known.0 * (NEWEST - 1) + newest) / NEWEST),
        });
    }

    /// What was measured; `None` before the first period with requests.
    pub(super) fn cost(&self) -> Option<FrontCost> {
        Some(FrontCost {
            per_request: self.per_request?,
            threads: self.threads,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_divided_by_the_requests_of_busy_periods() {
        let mut meter = FrontCostMeter::new(2);
        let second = |n: u64| Nanos(n * PERIOD.0);
        assert!(meter.is_due(second(0)));
        meter.measure(Nanos(7_000), second(0));
        assert!(!meter.is_due(Nanos(1)) && meter.is_due(second(1)));
        (0..1000).for_each(|_| meter.count());
        meter.measure(Nanos(30_007_000), second(1));
        let cost = FrontCost {
            per_request: Nanos(30_000),
            threads: 2,
        };
        assert_eq!(meter.cost(), Some(cost));
        // A quiet period says nothing of requests.
        (0..5).for_each(|_| meter.count());
        meter.measure(Nanos(60_000_000), second(2));
        assert_eq!(meter.cost(), Some(cost));
    }
}
