//! What the placer told, folded into counts as it comes: nothing queues up, whatever happens and however often.

use std::collections::BTreeMap;

use albacore_placer::{Report, SubjectId};
use albacore_plan::Cause;
use albacore_topology::CpuSet;

/// Upper ends of the buckets of birth-to-verified times, in milliseconds; one more bucket has none. 20 and 60 ms are what
/// is promised of respawned workers and of threads out of the blue.
pub(crate) const BIRTH_ENDS_MS: [i32; 6] = [5, 10, 20, 60, 300, 1000];

/// What was told of one subject.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Story {
    /// The cpus it may use, as it was told last.
    pub(crate) cpuset: Option<CpuSet>,
    /// Masks that were as planned and then were not.
    pub(crate) drifts: u64,
    /// Why the last of them.
    pub(crate) cause: Option<Cause>,
    /// Masks that somebody else wrote over ours.
    pub(crate) foreign: u64,
    /// Threads that are left alone because they pin themselves.
    pub(crate) self_pinned: u64,
    /// Threads found on their whole cpuset although they had been pinned, as the placer counts them.
    pub(crate) widened: u64,
    /// Whether the container's first process began with a mask narrower than its cpuset, as the placer notes it.
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

/// What the placer told since it started.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Journal {
    /// Of each subject.
    pub(crate) stories: BTreeMap<SubjectId, Story>,
    /// Subjects whose root process ended, until they are taken note of.
    pub(crate) gone: Vec<SubjectId>,
    /// Threads by the time from their birth to their verified mask, in the buckets of [`BIRTH_ENDS_MS`].
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
    /// Takes a report in.
    pub(crate) fn take(&mut self, report: &Report) {
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
            Report::SelfPinned { subject, .. } => self.story(*subject).self_pinned += 1,
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
        let story = self.story(subject);
        match cause {
            // Births have their own figures, and a new plan is nobody's drift.
            Cause::NewThread | Cause::Inherited | Cause::Policy => return,
            Cause::SelfPin | Cause::Foreign => story.foreign += 1,
            Cause::CpusetChange | Cause::Hotplug | Cause::Unknown => {}
        }
        story.drifts += 1;
        story.cause = Some(cause);
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

fn bucket(micros: u64) -> usize {
    let is_within = |end: &i32| micros <= u64::from(end.unsigned_abs()) * 1000;
    BIRTH_ENDS_MS
        .iter()
        .position(is_within)
        .unwrap_or(BIRTH_ENDS_MS.len())
}

#[cfg(test)]
mod tests {
    use albacore_os::{Pid, Tid};

    use super::*;

    fn drift(subject: u32, cause: Cause) -> Report {
        Report::Drift {
            subject: SubjectId(subject),
            slot: None,
            pid: Pid(1),
            tid: Tid(1),
            planned: "1".parse().unwrap(),
            actual: "0-3".parse().unwrap(),
            cause,
        }
    }

    #[test]
    fn only_masks_that_were_lost_count_as_drift() {
        let mut journal = Journal::default();
        let subject = SubjectId(7);
        journal.take(&Report::CpusetChanged {
            subject,
            cpuset: "0-3".parse().unwrap(),
        });
        for cause in [
            Cause::NewThread,
            Cause::Inherited,
            Cause::Policy,
            Cause::Foreign,
        ] {
            journal.take(&drift(7, cause));
        }
        journal.take(&drift(7, Cause::CpusetChange));
        let story = &journal.stories[&subject];
        assert_eq!((story.drifts, story.foreign), (2, 1));
        assert_eq!(story.cause, Some(Cause::CpusetChange));
        journal.take(&Report::SubjectGone { subject });
        assert_eq!(journal.gone, [subject]);
        journal.forget(subject);
        assert!(journal.stories.is_empty() && journal.gone.is_empty());
        assert_eq!(journal.drifts, 2, "the node's count stays");
    }

    #[test]
    fn births_fall_into_the_first_bucket_that_holds_them() {
        let found = [0, 5_000, 5_001, 20_000, 60_001, 1_000_001].map(bucket);
        assert_eq!(found, [0, 0, 1, 2, 4, 6]);
    }
}
