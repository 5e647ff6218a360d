//! Counters of a simulation, and the figures derived from them.

use albacore_batching::Nanos;
use albacore_batching::deadlines::{DeadlineRequest, DispatchedBatch};
use albacore_values::LogHistogram;

/// Largest batch size with a separate count; larger batches are counted as this size.
const BATCH_MAX: usize = 4096;

/// Histogram of times with a relative precision of about 1.6 %.
pub(crate) type Times = LogHistogram<64>;

#[derive(Clone, Debug)]
pub(crate) struct Counts {
    /// Requests of each model, and the bad ones among them.
    pub(crate) offered: Vec<u64>,
    pub(crate) bad: Vec<u64>,
    waits: Times,
    batches: Vec<u64>,
    /// Busy time of each worker, nanoseconds.
    busy: Vec<u64>,
    /// Start and end of the measurement.
    begin: u64,
    pub(crate) end: u64,
}

impl Counts {
    pub(crate) fn new(models: usize, workers: usize) -> Self {
        Self {
            offered: vec![0; models],
            bad: vec![0; models],
            waits: Times::default(),
            batches: vec![0; BATCH_MAX + 1],
            busy: vec![0; workers],
            begin: 0,
            end: 0,
        }
    }

    fn add_batch(&mut self, rows: u64) {
        let place = usize::try_from(rows).map_or(BATCH_MAX, |rows| rows.min(BATCH_MAX));
        self.batches[place] += 1;
    }

    fn batch_median(&self) -> u64 {
        let total: u64 = self.batches.iter().sum();
        let mut seen = 0;
        for (rows, count) in self.batches.iter().enumerate() {
            seen += count;
            if 2 * seen >= total && total > 0 {
                return rows as u64;
            }
        }
        0
    }

    fn batch_mean(&self) -> f64 {
        let total: u64 = self.batches.iter().sum();
        let rows = self.batches.iter().enumerate();
        let rows: u64 = rows.map(|(rows, count)| rows as u64 * count).sum();
        share(rows, total)
    }

    pub(crate) fn figures(&self) -> Figures {
        let (offered, bad) = (self.offered.iter().sum(), self.bad.iter().sum());
        let worst = self.offered.iter().zip(&self.bad);
        let worst = worst.map(|(&offered, &bad)| share(bad, offered));
        let span = self.end.saturating_sub(self.begin);
        let busy: u64 = self.busy.iter().sum();
        let idle = 1.0 - share(busy, span * self.busy.len() as u64);
        Figures {
            offered,
            bad,
            bad_rate: share(bad, offered),
            worst_model_bad_rate: worst.fold(0.0, f64::max),
            idle_share: idle.max(0.0),
            workers_used: self.busy.iter().filter(|&&busy| busy > 0).count(),
            batch_median: self.batch_median(),
            batch_mean: self.batch_mean(),
            queue_p50: Nanos(self.waits.quantile(0.5)),
            queue_p99: Nanos(self.waits.quantile(0.99)),
            good_per_second: share(offered - bad, span) * 1e9,
        }
    }
}

/// Records batches and worker time from the end of the warm-up to the last arrival.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    pub(crate) counts: Counts,
    is_measuring: bool,
    /// Whether the last request has arrived.
    is_over: bool,
    /// End of the last batch of each worker.
    busy_until: Vec<u64>,
}

impl Recorder {
    pub(crate) fn new(models: usize, workers: usize) -> Self {
        Self {
            counts: Counts::new(models, workers),
            is_measuring: false,
            is_over: false,
            busy_until: vec![0; workers],
        }
    }

    pub(crate) fn is_measuring(&self) -> bool {
        self.is_measuring
    }

    /// Ends the warm-up.
    pub(crate) fn begin(&mut self, now: u64) {
        self.is_measuring = true;
        self.counts.begin = now;
        for (busy, until) in self.counts.busy.iter_mut().zip(&self.busy_until) {
            *busy = until.saturating_sub(now);
        }
    }

    /// Handles the last arrival: excludes the remaining time of running batches.
    pub(crate) fn end(&mut self) {
        for (busy, until) in self.counts.busy.iter_mut().zip(&self.busy_until) {
            *busy = busy.saturating_sub(until.saturating_sub(self.counts.end));
        }
        self.is_over = true;
    }

    pub(crate) fn dispatched(
        &mut self,
        worker: usize,
        departure: &DispatchedBatch,
        requests: &[DeadlineRequest],
    ) {
        let (start, end) = (departure.start.0, departure.end.0);
        self.busy_until[worker] = end;
        if !self.is_measuring {
            return;
        }
        // After the last arrival only requests are counted, not worker time.
        if !self.is_over {
            self.counts.busy[worker] += end - start;
        }
        self.counts.add_batch(departure.rows);
        for request in requests {
            self.counts.waits.record(start - request.arrival.0);
        }
    }
}

fn share(part: u64, whole: u64) -> f64 {
    match whole {
        0 => 0.0,
        whole => part as f64 / whole as f64,
    }
}

/// Figures of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// Measured requests.
    pub offered: u64,
    /// Requests dropped or late.
    pub bad: u64,
    /// `bad` as a share of `offered`.
    pub bad_rate: f64,
    /// The largest bad share of any model.
    pub worst_model_bad_rate: f64,
    /// Mean share of time in which a worker was idle.
    pub idle_share: f64,
    /// Workers that ran at least one batch.
    pub workers_used: usize,
    /// Median batch size.
    pub batch_median: u64,
    /// Mean batch size.
    pub batch_mean: f64,
    /// Median time from arrival to the start of the batch.
    pub queue_p50: Nanos,
    /// 99th percentile of the same time.
    pub queue_p99: Nanos,
    /// Requests per second answered in time.
    pub good_per_second: f64,
}
