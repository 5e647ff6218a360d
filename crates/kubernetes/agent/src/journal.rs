//! What the placer told, folded into counts as it comes: nothing queues up, whatever happens and
//! however often.

use std::collections::BTreeMap;
use std::time::Duration;

use albacore_api::DriftCause;
use albacore_placer::{Report, SubjectId};
use albacore_plan::{BackOff, Cause, Micros};
use albacore_topology::CpuSet;
use k8s_openapi::jiff::Timestamp;

/// Upper ends of the buckets of birth-to-verified times, in milliseconds; one more bucket has none.
/// 20 and 60 ms are what is promised of respawned workers and of threads out of the blue.
pub(crate) const BIRTH_ENDS_MS: [i32; 6] = [5, 10, 20, 60, 300, 1000];

/// What was told of one subject.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Story {
    /// The cpus it may use, as it was told last.
    pub(crate) cpuset: Option<CpuSet>,
    /// Masks that were as planned and then were not.
    pub(crate) drifts: u64,
    /// Why the last of them.
    pub(crate) cause: Option<DriftCause>,
    /// Worker processes that replaced another one.
    pub(crate) respawns: u64,
    /// Masks that somebody else wrote over ours.
    pub(crate) foreign: u64,
    /// How often a thread was left as it was for a while, because somebody else changed its mask
    /// too often.
    pub(crate) back_offs: u64,
    /// The last of them.
    pub(crate) back_off: Option<LeftAlone>,
    /// Threads found on their whole cpuset although they had been pinned, as the placer counts
    /// them.
    pub(crate) widened: u64,
    /// Whether the container's first process began with a mask narrower than its cpuset, as the
    /// placer notes it.
    pub(crate) is_inherited: bool,
    /// Masks that could not be written or read.
    pub(crate) failures: u64,
    /// Why the last of them.
    pub(crate) failure: Option<String>,
    /// Masks that were given back because enforcement changed to Observe, and masks that could not
    /// be.
    pub(crate) released: (usize, usize),
    /// Whether its plan is proven best.
    pub(crate) optimal: Option<bool>,
}

/// Threads that are left as they are for a while.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LeftAlone {
    /// How often somebody else changed the mask of one of them ...
    pub(crate) changes: u32,
    /// ... within so many seconds.
    pub(crate) seconds: u64,
    /// When the first of them is tried again.
    pub(crate) retry_at: Timestamp,
}

impl LeftAlone {
    /// What was told of one thread, beside what was told of others `before`.
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

/// What the placer told since it started.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Journal {
    pub(crate) stories: BTreeMap<SubjectId, Story>,
    /// Subjects whose root process ended, until they are taken note of.
    pub(crate) gone: Vec<SubjectId>,
    /// Threads by the time from their birth to their verified mask, in the buckets of
    /// [`BIRTH_ENDS_MS`].
    pub(crate) births: [u64; BIRTH_ENDS_MS.len() + 1],
    /// Drifts of all subjects, those that are gone included.
    pub(crate) drifts: u64,
    /// What the loop cannot do now, with a stable word for it; `None` while it works.
    pub(crate) trouble: Option<(&'static str, String)>,
    /// Why births are polled although their announcements were asked for.
    pub(crate) deaf: Option<String>,
    /// Why the kernel does not let masks be written, until one is written.
    pub(crate) refused: Option<String>,
    /// Counts what was told.
    pub(crate) version: u64,
}

impl Journal {
    /// Takes a report in, told at `now`.
    pub(crate) fn take(&mut self, report: &Report, now: Timestamp) {
        self.version += 1;
        match report {
            Report::Planned {
                subject,
                cpuset,
                optimal,
                ..
            } => {
                let story = self.story(*subject);
                story.cpuset = Some(cpuset.clone());
                story.optimal = Some(*optimal);
            }
            Report::CpusetChanged { subject, cpuset } => {
                self.story(*subject).cpuset = Some(cpuset.clone());
            }
            Report::Drift { subject, cause, .. } => self.take_drift(*subject, *cause),
            Report::Pinned {
                birth_to_verified_micros,
                ..
            } => {
                self.refused = None;
                if let Some(micros) = birth_to_verified_micros {
                    self.births[bucket(*micros)] += 1;
                }
            }
            Report::BackedOff {
                subject, back_off, ..
            } => {
                let story = self.story(*subject);
                story.back_offs += 1;
                story.back_off = Some(LeftAlone::of(back_off, story.back_off.as_ref(), now));
            }
            Report::WorkerBorn {
                subject, respawns, ..
            } => self.story(*subject).respawns += u64::from(*respawns > 0),
            Report::StepFailed {
                subject, reason, ..
            } => {
                let story = self.story(*subject);
                story.failures += 1;
                story.failure = Some(reason.clone());
            }
            Report::Released { subject, restored } => {
                let story = self.story(*subject);
                story.released.0 += restored.count;
                story.released.1 += restored.errors_total;
            }
            Report::SubjectGone { subject } => self.gone.push(*subject),
            // Tables and counts say these.
            _ => {}
        }
    }

    fn take_drift(&mut self, subject: SubjectId, cause: Cause) {
        let Some(told) = drift_cause(cause) else {
            return;
        };
        let story = self.story(subject);
        story.foreign += u64::from(cause == Cause::Foreign);
        story.drifts += 1;
        story.cause = Some(told);
        self.drifts += 1;
    }

    fn story(&mut self, subject: SubjectId) -> &mut Story {
        self.stories.entry(subject).or_default()
    }

    /// Forgets a subject that is not placed any more.
    pub(crate) fn forget(&mut self, subject: SubjectId) {
        self.stories.remove(&subject);
        self.gone.retain(|gone| *gone != subject);
    }
}

/// The cause of a drift in the words of the API; `None` of what is no drift: births have their own
/// figures, and a new plan is nobody's doing.
pub(crate) fn drift_cause(cause: Cause) -> Option<DriftCause> {
    Some(match cause {
        Cause::NewThread | Cause::Inherited | Cause::Policy => return None,
        Cause::CpusetChange => DriftCause::CpusetChange,
        Cause::Hotplug => DriftCause::Hotplug,
        Cause::Foreign => DriftCause::ForeignWrite,
        Cause::Unknown => DriftCause::Unknown,
    })
}

fn bucket(micros: u64) -> usize {
    let is_within = |end: &i32| micros <= u64::from(end.unsigned_abs()) * 1000;
    BIRTH_ENDS_MS
        .iter()
        .position(is_within)
        .unwrap_or(BIRTH_ENDS_MS.len())
}

#[cfg(test)]
mod tests;
