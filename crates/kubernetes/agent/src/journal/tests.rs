//! Reports folded into counts.

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
    let now = Timestamp::from_second(1000).unwrap();
    let cpuset = "0-3".parse().unwrap();
    journal.take(&Report::CpusetChanged { subject, cpuset }, now);
    for cause in [
        Cause::NewThread,
        Cause::Inherited,
        Cause::Policy,
        Cause::Foreign,
    ] {
        journal.take(&drift(7, cause), now);
    }
    journal.take(&drift(7, Cause::CpusetChange), now);
    let story = &journal.stories[&subject];
    assert_eq!((story.drifts, story.foreign), (2, 1));
    assert_eq!(story.cause, Some(DriftCause::CpusetChange));
    journal.take(&Report::SubjectGone { subject }, now);
    assert_eq!(journal.gone, [subject]);
    journal.forget(subject);
    assert!(journal.stories.is_empty() && journal.gone.is_empty());
    assert_eq!(journal.drifts, 2, "the node's count stays");
}

#[test]
fn of_threads_that_are_left_alone_the_first_that_is_tried_again_is_told() {
    let mut journal = Journal::default();
    let mut left = |second: i64, changes: u32, retry_seconds: u64| {
        let moment = |seconds: u64| Micros(5_000_000 + seconds * 1_000_000);
        let report = Report::BackedOff {
            subject: SubjectId(7),
            slot: None,
            tid: Tid(1),
            back_off: BackOff {
                changes,
                first: moment(0),
                last: moment(3),
                retry_at: moment(3 + retry_seconds),
            },
        };
        journal.take(&report, Timestamp::from_second(second).unwrap());
        let story = &journal.stories[&SubjectId(7)];
        let left = story.back_off.clone().unwrap();
        (
            story.back_offs,
            left.changes,
            left.seconds,
            left.retry_at.as_second(),
        )
    };
    assert_eq!(left(1000, 4, 60), (1, 4, 3, 1060));
    assert_eq!(left(1001, 4, 60), (2, 4, 3, 1060), "the other thread");
    assert_eq!(left(1060, 5, 120), (3, 5, 3, 1180));
}

#[test]
fn the_causes_that_the_api_documents_are_those_that_occur() {
    let causes = [
        Cause::CpusetChange,
        Cause::Hotplug,
        Cause::Foreign,
        Cause::NewThread,
        Cause::Inherited,
        Cause::Policy,
        Cause::Unknown,
    ];
    let told: Vec<DriftCause> = causes.into_iter().filter_map(drift_cause).collect();
    assert_eq!(told, DriftCause::ALL);
}

#[test]
fn only_a_worker_that_replaces_another_counts_as_respawn() {
    let mut journal = Journal::default();
    let subject = SubjectId(7);
    for respawns in [0, 1, 2] {
        let report = Report::WorkerBorn {
            subject,
            worker: albacore_mapping::WorkerIndex(0),
            pid: Pid(1),
            respawns,
        };
        journal.take(&report, Timestamp::from_second(0).unwrap());
    }
    assert_eq!(journal.stories[&subject].respawns, 2);
}

#[test]
fn births_fall_into_the_first_bucket_that_holds_them() {
    let found = [0, 5_000, 5_001, 20_000, 60_001, 1_000_001].map(bucket);
    assert_eq!(found, [0, 0, 1, 2, 4, 6]);
}
