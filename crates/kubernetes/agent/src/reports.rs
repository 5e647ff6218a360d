//! What pods on trial report of their latency, out of the pipe from params.
//!
//! params is reached by pods and may be taken over, and what a server reports is the server's word.
//! So reading never waits, takes a bounded number of bytes a turn, keeps one report for each pod
//! that is on trial and nothing else. The worst that numbers can do is to have the trial of the pod
//! that they are said to be of misjudged.

use std::collections::BTreeMap;
use std::path::Path;

use albacore_os::{FifoReader, OsError};
use albacore_settings::REPORT_LINE_BYTES_MAX;
use albacore_settings::agent_stream::LatencyReport;

use crate::limits::REPORTS_BYTES_MAX;
use crate::trial::Latency;

/// The newest latency of each pod that was read; by uid.
pub(crate) type Latest = BTreeMap<String, Latency>;

/// The pipe from params.
#[derive(Debug)]
pub(crate) struct Reports {
    pipe: FifoReader,
}

impl Reports {
    /// Opens the pipe, and makes it if it is not there.
    ///
    /// # Errors
    /// It cannot be made, or something else has its name.
    pub(crate) fn open(path: &Path) -> Result<Self, OsError> {
        let pipe = FifoReader::new(path, REPORT_LINE_BYTES_MAX)?;
        Ok(Self { pipe })
    }

    /// What was reported since the last call of pods that `is_wanted` names by uid.
    pub(crate) fn read(&mut self, is_wanted: impl Fn(&str) -> bool) -> Latest {
        let mut latest = Latest::new();
        let mut refused = None;
        let mut take = |line: &[u8]| match LatencyReport::decode(line) {
            Ok(report) if is_wanted(&report.uid) => {
                let latency = cumulative(&report);
                latest.insert(report.uid, latency);
            }
            Ok(_) => {}
            Err(error) => refused = Some(error),
        };
        if let Err(error) = self.pipe.read(REPORTS_BYTES_MAX, &mut take) {
            tracing::debug!(%error, "reports of latency cannot be read");
        }
        if let Some(error) = refused {
            tracing::debug!(%error, "a report of latency is not taken");
        }
        latest
    }
}

fn cumulative(report: &LatencyReport) -> Latency {
    let ends = report.bounds_us.iter().map(|micros| *micros as f64 / 1e6);
    let mut sum = 0_u64;
    let count = |count: &u64| {
        sum = sum.saturating_add(*count);
        sum
    };
    ends.chain([f64::INFINITY])
        .zip(report.counts.iter().map(count))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn the_newest_report_of_each_pod_on_trial_is_kept_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("reports");
        let mut reports = Reports::open(&path).unwrap();
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
        assert_eq!(latest, Latest::from([("a".to_owned(), latency)]));
        assert!(reports.read(|_| true).is_empty(), "each is read once");
    }
}
