//! The sums that load reports are computed from, per model; reading them is much cheaper than the
//! statistics of `/metrics`.

use std::time::Duration;

use super::ModelStats;

/// Sums of one model since it was declared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelLoadTotals {
    pub name: String,
    /// Completed requests, with any outcome.
    pub requests: u64,
    /// Of these: late, rejected or failed.
    pub bad: u64,
    /// Answered requests.
    pub answered: u64,
    /// Total queueing delay of answered requests.
    pub queue_wait: Duration,
    /// Worker time of finished batches, normalized to the batch size under load.
    pub work: Duration,
}

/// Sums of all declared models.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadTotals {
    /// Time since the engine started.
    pub at: Duration,
    /// Number of workers that serve.
    pub workers_ready: usize,
    pub models: Vec<ModelLoadTotals>,
}

impl ModelLoadTotals {
    pub(super) fn of(stats: &ModelStats) -> Self {
        let ended = [
            stats.answered_total,
            stats.shed_total,
            stats.failed_total,
            stats.abandoned_total,
        ];
        let waited = stats.kinds.iter().map(|kind| kind.queue_nanos.sum);
        Self {
            name: stats.name.clone(),
            requests: ended.iter().sum(),
            bad: stats.late_total + stats.shed_total + stats.failed_total,
            answered: stats.answered_total,
            queue_wait: Duration::from_nanos(waited.sum()),
            work: Duration::from_nanos(stats.work_nanos_total),
        }
    }
}
