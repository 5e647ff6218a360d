//! Latency reports of pods on trial, read from the pipe that albacore-params writes.
//!
//! Neither albacore-params, which accepts connections from pods, nor the reports of a server are
//! trusted. Therefore reading never blocks, takes a bounded number of bytes per iteration, and
//! keeps one report per pod on trial. A false report can at worst cause a wrong verdict in the
//! trial of the pod that it names.

use std::collections::BTreeMap;
use std::path::Path;

use albacore_os::{FifoReader, OsError};
use albacore_settings::REPORT_LINE_BYTES_MAX;
use albacore_settings::agent_stream::LatencyReport;
use albacore_trial::LatencyHistogram;

use crate::limits::REPORTS_BYTES_MAX;

/// The newest histogram of each pod, by uid.
pub(crate) type LatestLatency = BTreeMap<String, LatencyHistogram>;

#[derive(Debug)]
pub(crate) struct LatencyReports {
    pipe: FifoReader,
}

impl LatencyReports {
    /// Opens the pipe and creates it if it does not exist.
    ///
    /// # Errors
    /// The pipe cannot be created, or the path is not a pipe.
    pub(crate) fn open(path: &Path) -> Result<Self, OsError> {
        let pipe = FifoReader::new(path, REPORT_LINE_BYTES_MAX)?;
        Ok(Self { pipe })
    }

    /// Returns the reports since the last call of the pods whose uid `is_wanted` accepts.
    pub(crate) fn read(&mut self, is_wanted: impl Fn(&str) -> bool) -> LatestLatency {
        let mut latest = LatestLatency::new();
        let mut refused = None;
        let mut take = |line: &[u8]| match LatencyReport::decode(line) {
            Ok(report) if is_wanted(&report.uid) => {
                let latency = report.cumulative();
                latest.insert(report.uid, latency);
            }
            Ok(_) => {}
            Err(error) => refused = Some(error),
        };
        if let Err(error) = self.pipe.read(REPORTS_BYTES_MAX, &mut take) {
            tracing::debug!(%error, "latency reports cannot be read");
        }
        if let Some(error) = refused {
            tracing::debug!(%error, "a latency report is invalid");
        }
        latest
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn only_the_newest_report_of_each_pod_on_trial_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("reports");
        let mut reports = LatencyReports::open(&path).unwrap();
        assert!(reports.read(|_| true).is_empty(), "nobody writes");
        let mut params = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        let mut report = |uid: &str, counts: [u64; 2]| {
            let report = LatencyReport {
                uid: uid.to_owned(),
                bounds_us: vec![2000],
                counts: counts.to_vec(),
            };
            params
                .write_all(report.encode().unwrap().as_bytes())
                .unwrap();
            params.write_all(b"rubbish\n{}\n\xff\n").unwrap();
        };
        report("a", [1, 2]);
        report("b", [7, 7]);
        report("a", [3, u64::MAX]);
        let latest = reports.read(|uid| uid == "a");
        let latency = vec![(0.002, 3), (f64::INFINITY, u64::MAX)];
        assert_eq!(latest, LatestLatency::from([("a".to_owned(), latency)]));
        assert!(reports.read(|_| true).is_empty(), "each is read once");
    }
}
