//! Readiness probe and metrics of this program.

use std::fmt;
use std::sync::Arc;

use albacore_program::MonitoringEndpoints;

use crate::limits::SNAPSHOT_AGE_MAX;
use crate::metrics::ParamsMetrics;
use crate::snapshots::SnapshotStore;

#[derive(Debug)]
pub(crate) struct ParamsMonitoring {
    pub(crate) snapshots: Arc<SnapshotStore>,
    pub(crate) metrics: ParamsMetrics,
}

impl MonitoringEndpoints for ParamsMonitoring {
    fn readiness(&self) -> (bool, String) {
        if self.snapshots.is_fresh() {
            return (true, "[+] feed\n".to_owned());
        }
        let seconds = SNAPSHOT_AGE_MAX.as_secs();
        let text =
            format!("[-] feed: waits for a snapshot of the agent younger than {seconds} s\n");
        (false, text)
    }

    fn metrics(&self) -> Result<String, fmt::Error> {
        self.metrics.text(&self.snapshots)
    }
}
