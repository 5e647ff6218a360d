//! Counters of a simulation, and the figures made from them.

use albacore_batching::Nanos;
use albacore_batching::deadlines::{Departure, Member};
use albacore_values::LogHistogram;

/// Batches up to this size are counted separately; larger ones count as this.
const BATCH_MAX: usize = 4096;

/// Times that are known to about 1.6 %.
pub(crate) type Times = LogHistogram<64>;

/// The counters of a run.
#[derive(Clone, Debug)]
pub(crate) struct Counts {
    /// Requests of each model, and of these the bad ones.
    pub(crate) offered: Vec<u64>,
    pub(crate) bad: Vec<u64>,
    waits: Times,
    batches: Vec<u64>,
    /// Busy nanoseconds of each worker.
    busy: Vec<u64>,
    /// When measuring began and ended.
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

/// Counts batches and the time of workers from the end of the warm-up to the last arrival.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    pub(crate) counts: Counts,
    is_measuring: bool,
    /// The last request has arrived.
    is_over: bool,
    /// When the last batch of each worker ends.
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

    /// The warm-up is over.
    pub(crate) fn begin(&mut self, now: u64) {
        self.is_measuring = true;
        self.counts.begin = now;
        for (busy, until) in self.counts.busy.iter_mut().zip(&self.busy_until) {
            *busy = until.saturating_sub(now);
        }
    }

    /// The last request has arrived: the part of a batch after it is not measured.
    pub(crate) fn end(&mut self) {
        for (busy, until) in self.counts.busy.iter_mut().zip(&self.busy_until) {
            *busy = busy.saturating_sub(until.saturating_sub(self.counts.end));
        }
        self.is_over = true;
    }

    pub(crate) fn dispatched(&mut self, worker: usize, departure: &Departure, members: &[Member]) {
        let (start, end) = (departure.start.0, departure.end.0);
        self.busy_until[worker] = end;
        if !self.is_measuring {
            return;
        }
        // After the last arrival only requests are counted, not the time of workers.
        if !self.is_over {
            self.counts.busy[worker] += end - start;
        }
        self.counts.add_batch(departure.rows);
        for member in members {
            self.counts.waits.record(start - member.arrival.0);
        }
    }
}

fn share(part: u64, whole: u64) -> f64 {
    match whole {
        0 => 0.0,
        whole => part as f64 / whole as f64,
    }
}

/// The figures of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// Requests that were measured.
    pub offered: u64,
    /// Requests that were dropped or late.
    pub bad: u64,
    /// `bad` as a share of `offered`.
    pub bad_rate: f64,
    /// The largest bad share of a model.
    pub worst_model_bad_rate: f64,
    /// Mean share of time in which a worker ran nothing.
    pub idle_share: f64,
    /// Workers that ran anything.
    pub workers_used: usize,
    /// Median of the batches' sizes.
    pub batch_median: u64,
    /// Mean of the batches' sizes.
    pub batch_mean: f64,
    /// Median time from arrival to the start of the batch.
    pub queue_p50: Nanos,
    /// Its 99th percentile.
    pub queue_p99: Nanos,
    /// Requests per second that were in time.
    pub good_per_second: f64,
}
