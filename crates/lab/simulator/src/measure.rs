//! Counters of a simulation, and the figures made from them.

use albacore_batching::Nanos;
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
    pub(crate) waits: Times,
    batches: Vec<u64>,
    /// Busy nanoseconds of each worker.
    pub(crate) busy: Vec<u64>,
    /// When measuring began and ended.
    pub(crate) begin: u64,
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

    pub(crate) fn add_batch(&mut self, rows: u64) {
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
