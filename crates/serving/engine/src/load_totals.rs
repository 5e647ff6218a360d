//! What load reports are computed from: a few sums for each model, which cost a reader far less
//! than the statistics of `/metrics`.

use std::time::Duration;

use super::ModelStats;

/// Sums of one model since it was declared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelLoadTotals {
    pub name: String,
    /// Requests that ended in any way.
    pub requests: u64,
    /// Of these: late, refused or failed.
    pub bad: u64,
    /// Answered requests.
    pub answered: u64,
    /// What these waited for a worker.
    pub queue_wait: Duration,
    /// What finished batches cost, had each been as large as those under load, in time of a worker.
    pub work: Duration,
}

/// Sums of all declared models.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadTotals {
    /// Since the engine started.
    pub at: Duration,
    /// Workers that serve.
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
