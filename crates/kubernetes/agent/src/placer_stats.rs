//! Aggregates the placer's reports into counters as they arrive, so that memory does not grow with
//! the number of reports.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use albacore_api::DriftCause;
use albacore_placer::{PlacerError, Report, SubjectId};
use albacore_plan::{BackOff, MaskDriftCause, Micros};
use albacore_topology::CpuSet;
use albacore_values::sentence;
use k8s_openapi::jiff::Timestamp;

/// Upper bounds of the buckets of spawn-to-verified times, in milliseconds; one more bucket is
/// unbounded. 20 and 60 ms are the objectives for respawned workers and for unexpected threads.
pub(crate) const SPAWN_BUCKETS_MS: [i32; 6] = [5, 10, 20, 60, 300, 1000];

/// Histogram of the time from the spawn of a thread to its verified mask.
pub(crate) type SpawnHistogram = [u64; SPAWN_BUCKETS_MS.len() + 1];

/// Counters of one subject.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct SubjectStats {
    /// The container's last reported cpuset.
    pub(crate) cpuset: Option<CpuSet>,
    /// Verified masks that were later found changed.
    pub(crate) drifts: u64,
    /// The cause of the last drift.
    pub(crate) cause: Option<DriftCause>,
    /// Worker processes that replaced another.
    pub(crate) respawns: u64,
    /// Drifts caused by another process that wrote the mask.
    pub(crate) foreign: u64,
    /// Number of times that a thread was left alone for a while because another process kept
    /// changing its mask.
    pub(crate) back_offs: u64,
    /// The last backoff.
    pub(crate) back_off: Option<BackOffSummary>,
    /// Pinned threads that were later found on their whole cpuset, as counted by the placer.
    pub(crate) widened: u64,
    /// Whether the container's first process started with a mask narrower than its cpuset, as
    /// reported by the placer.
    pub(crate) is_inherited: bool,
    /// Last error of reading or writing a mask.
    pub(crate) failure: Option<String>,
    /// Masks given back because enforcement changed to Observe.
    pub(crate) released: u64,
    /// Masks that could not be given back at that change.
    pub(crate) release_errors: u64,
}

/// Why a thread is in backoff, and until when.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct BackOffSummary {
    /// Number of changes of its mask by another process.
    pub(crate) changes: u32,
    /// Time from the first to the last of these changes.
    pub(crate) seconds: u64,
    /// Time at which the next thread of this subject is placed again.
    pub(crate) retry_at: Timestamp,
}

impl BackOffSummary {
    /// Merges the report on one thread with those on other threads of its subject.
    fn of(back_off: &BackOff, before: Option<&Self>, now: Timestamp) -> Self {
        let micros = |from: Micros, to: Micros| to.0.saturating_sub(from.0);
        let pause = Duration::from_micros(micros(back_off.last, back_off.retry_at));
        let retry_at = now.checked_add(pause).unwrap_or(now);
        let sooner = before.filter(|other| other.retry_at > now && other.retry_at < retry_at);
        Self {
            changes: back_off.changes,
            seconds: micros(back_off.first, back_off.last).div_ceil(1_000_000),
            retry_at: sooner.map_or(retry_at, |other| other.retry_at),
        }
    }
}

/// Why the placer's last step failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PlacerFailure {
    /// A stable code.
    pub(crate) category: &'static str,
    pub(crate) message: String,
}

impl PlacerFailure {
    pub(crate) fn of(error: &PlacerError) -> Self {
        Self {
            category: category(error),
            message: sentence(error),
        }
    }
}

/// Stable code of an error. Exhausted file descriptors have their own code, whatever call failed.
fn category(error: &PlacerError) -> &'static str {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    // bound: the chain of causes is finite.
    while let Some(error) = cause {
        let code = error.downcast_ref().and_then(std::io::Error::raw_os_error);
        if code.is_some_and(|code| [ENFILE, EMFILE].contains(&code)) {
            return FILES_EXHAUSTED;
        }
        cause = error.source();
    }
    error.category()
}

const ENFILE: i32 = 23;
const EMFILE: i32 = 24;

/// Category of errors caused by exhausted file descriptors.
pub(crate) const FILES_EXHAUSTED: &str = "files_exhausted";

/// Aggregated reports of a placer since it started.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct PlacerStats {
    pub(crate) subjects: BTreeMap<SubjectId, SubjectStats>,
    /// Subjects whose root process ended, until the loop has handled them.
    pub(crate) ended: Vec<SubjectId>,
    pub(crate) spawns: SpawnHistogram,
    /// Drifts of all subjects, including ended ones.
    pub(crate) drifts: u64,
    /// Why the placer's last step failed; `None` if it succeeded.
    pub(crate) failure: Option<PlacerFailure>,
    /// Why new threads are detected by polling although the process connector was requested.
    pub(crate) polling_reason: Option<String>,
    /// Why the file of measured distances is ignored.
    pub(crate) distances_problem: Option<String>,
    /// Why the kernel rejects writes of masks; cleared by the first successful write.
    pub(crate) write_refusal: Option<String>,
    /// Number of reports.
    pub(crate) version: u64,
}

impl PlacerStats {
    /// Adds a report received at `now`.
    pub(crate) fn record(&mut self, report: &Report, now: Timestamp) {
        self.version += 1;
        match report {
            Report::Planned {
                subject, cpuset, ..
            }
            | Report::CpusetChanged { subject, cpuset } => {
                self.subject(*subject).cpuset = Some(cpuset.clone());
            }
            Report::Drift { subject, cause, .. } => self.record_drift(*subject, *cause),
            Report::Pinned {
                spawn_to_verified_micros,
                ..
            } => {
                self.write_refusal = None;
                if let Some(micros) = spawn_to_verified_micros {
                    self.spawns[bucket(*micros)] += 1;
                }
            }
            Report::BackedOff {
                subject, back_off, ..
            } => {
                let stats = self.subject(*subject);
                stats.back_offs += 1;
                stats.back_off = Some(BackOffSummary::of(back_off, stats.back_off.as_ref(), now));
            }
            Report::WorkerSpawned {
                subject, respawns, ..
            } => self.subject(*subject).respawns += u64::from(*respawns > 0),
            Report::StepFailed {
                subject, reason, ..
            } => self.subject(*subject).failure = Some(reason.clone()),
            Report::Released { subject, restored } => {
                let stats = self.subject(*subject);
                stats.released += restored.count as u64;
                stats.release_errors += restored.errors_total as u64;
            }
            Report::SubjectGone { subject } => self.ended.push(*subject),
            Report::Distances { problem } => self.distances_problem.clone_from(problem),
            // Other reports are covered by the table and the placer's own counters.
            _ => {}
        }
    }

    fn record_drift(&mut self, subject: SubjectId, cause: MaskDriftCause) {
        let Some(api_cause) = drift_cause(cause) else {
            return;
        };
        let stats = self.subject(subject);
        stats.foreign += u64::from(cause == MaskDriftCause::Foreign);
        stats.drifts += 1;
        stats.cause = Some(api_cause);
        self.drifts += 1;
    }

    fn subject(&mut self, id: SubjectId) -> &mut SubjectStats {
        self.subjects.entry(id).or_default()
    }

    /// Removes a subject that is no longer placed.
    pub(crate) fn remove(&mut self, subject: SubjectId) {
        self.subjects.remove(&subject);
        self.ended.retain(|ended| *ended != subject);
    }
}

/// Stats written by the placer's thread and read by the loop. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedStats(Arc<Mutex<PlacerStats>>);

impl SharedStats {
    pub(crate) fn lock(&self) -> MutexGuard<'_, PlacerStats> {
        // Each counter is consistent by itself, so a panic of another thread leaves nothing
        // inconsistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Maps a cause to its name in the API; `None` for new threads and new plans, which are expected
/// changes and not drift.
pub(crate) fn drift_cause(cause: MaskDriftCause) -> Option<DriftCause> {
    Some(match cause {
        MaskDriftCause::NewThread | MaskDriftCause::Inherited | MaskDriftCause::Policy => {
            return None;
        }
        MaskDriftCause::CpusetChange => DriftCause::CpusetChange,
        MaskDriftCause::Hotplug => DriftCause::Hotplug,
        MaskDriftCause::Foreign => DriftCause::ForeignWrite,
        MaskDriftCause::Unknown => DriftCause::Unknown,
    })
}

fn bucket(micros: u64) -> usize {
    let is_within = |end: &i32| micros <= u64::from(end.unsigned_abs()) * 1000;
    SPAWN_BUCKETS_MS
        .iter()
        .position(is_within)
        .unwrap_or(SPAWN_BUCKETS_MS.len())
}

#[cfg(test)]
mod tests;
