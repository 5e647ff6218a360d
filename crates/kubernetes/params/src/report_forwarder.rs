//! Forwards the latency reports of pods to the agent, through a pipe.
//!
//! The agent creates the pipe, may start later than this program, and reads the pipe irregularly. A
//! line is written completely or dropped: it has at most PIPE_BUF bytes, which are written to a
//! pipe atomically, and the pod's next report contains its counts again.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use albacore_proto::params as proto;
use albacore_settings::SNAPSHOT_PODS_MAX;
use albacore_settings::agent_stream::{LatencyReport, ServingPod};
use tokio::net::unix::pipe::{OpenOptions, Sender};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tonic::Status;

use crate::limits::{REPORT_PAUSE, REPORT_WRITE_MAX, REPORTS_WAITING_MAX};
use crate::metrics::ParamsMetrics;

#[derive(Debug)]
pub(crate) struct ReportForwarder {
    lines: mpsc::Sender<String>,
    /// Time of each pod's last accepted report, by uid.
    last: Mutex<HashMap<String, Instant>>,
    metrics: ParamsMetrics,
}

impl ReportForwarder {
    /// Forwards reports to the pipe at `path` until this value is dropped.
    pub(crate) fn start(path: PathBuf, metrics: ParamsMetrics) -> Self {
        let (lines, waiting) = mpsc::channel(REPORTS_WAITING_MAX);
        tokio::spawn(write(path, waiting, metrics.clone()));
        Self {
            lines,
            last: Mutex::default(),
            metrics,
        }
    }

    /// Accepts a report of the server of `pod`.
    ///
    /// # Errors
    /// The report is not a histogram, follows the last one too soon, or the queue for the pipe is
    /// full.
    pub(crate) fn accept(
        &self,
        pod: ServingPod,
        report: proto::LatencyReport,
        now: Instant,
    ) -> Result<(), Status> {
        let reject = |status| {
            self.metrics.report("refused");
            Err(status)
        };
        if !self.is_due(&pod.uid, now) {
            let millis = REPORT_PAUSE.as_millis();
            let words = format!("a report of this pod was accepted less than {millis} ms ago");
            return reject(Status::resource_exhausted(words));
        }
        let report = LatencyReport {
            uid: pod.uid,
            bounds_us: report.bounds_us,
            counts: report.counts,
        };
        let line = match report.encode() {
            Ok(line) => line,
            Err(error) => return reject(Status::invalid_argument(error.to_string())),
        };
        if self.lines.try_send(line).is_err() {
            self.metrics.report("dropped");
            return Err(Status::resource_exhausted("the queue of reports is full"));
        }
        Ok(())
    }

    /// Whether the pod's last report is old enough; records the time of this one.
    fn is_due(&self, uid: &str, now: Instant) -> bool {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let is_recent = |at: &Instant| now.duration_since(*at) < REPORT_PAUSE;
        if last.get(uid).is_some_and(is_recent) {
            return false;
        }
        if last.len() >= SNAPSHOT_PODS_MAX {
            last.retain(|_, at| is_recent(at));
        }
        last.insert(uid.to_owned(), now);
        true
    }
}

/// Writes lines until the sender is dropped.
async fn write(path: PathBuf, mut lines: mpsc::Receiver<String>, metrics: ParamsMetrics) {
    let mut pipe: Option<Sender> = None;
    // bound: one pass for each line.
    while let Some(line) = lines.recv().await {
        let written = timeout(REPORT_WRITE_MAX, write_line(&path, &mut pipe, &line)).await;
        let is_written = matches!(written, Ok(Ok(())));
        if let Ok(Err(error)) = written {
            tracing::debug!(path = %path.display(), %error, "cannot write a report to the pipe");
            pipe = None;
        }
        metrics.report(if is_written { "passed_on" } else { "dropped" });
    }
}

async fn write_line(path: &Path, pipe: &mut Option<Sender>, line: &str) -> std::io::Result<()> {
    let pipe = match pipe {
        Some(pipe) => pipe,
        // Fails if the agent has not created the pipe yet, or does not have it open.
        None => pipe.insert(OpenOptions::new().open_sender(path)?),
    };
    // bound: each pass waits until the pipe has room.
    loop {
        pipe.writable().await?;
        match pipe.try_write(line.as_bytes()) {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}
