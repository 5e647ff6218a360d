//! Tests of aggregating reports into counters.

use albacore_os::{Pid, Tid};

use super::*;

fn drift(subject: u32, cause: MaskDriftCause) -> Report {
    Report::Drift {
        subject: SubjectId(subject),
        slot: None,
        front: None,
        pid: Pid(1),
        tid: Tid(1),
        planned: "1".parse().unwrap(),
        actual: "0-3".parse().unwrap(),
        cause,
    }
}

#[test]
fn only_verified_masks_that_were_lost_count_as_drift() {
    let mut stats = PlacerStats::default();
    let subject = SubjectId(7);
    let now = Timestamp::from_second(1000).unwrap();
    let cpuset = "0-3".parse().unwrap();
    stats.record(&Report::CpusetChanged { subject, cpuset }, now);
    for cause in [
        MaskDriftCause::NewThread,
        MaskDriftCause::Inherited,
        MaskDriftCause::Policy,
        MaskDriftCause::Foreign,
    ] {
        stats.record(&drift(7, cause), now);
    }
    stats.record(&drift(7, MaskDriftCause::CpusetChange), now);
    let of_subject = &stats.subjects[&subject];
    assert_eq!((of_subject.drifts, of_subject.foreign), (2, 1));
    assert_eq!(of_subject.cause, Some(DriftCause::CpusetChange));
    stats.record(&Report::SubjectGone { subject }, now);
    assert_eq!(stats.ended, [subject]);
    stats.remove(subject);
    assert!(stats.subjects.is_empty() && stats.ended.is_empty());
    assert_eq!(stats.drifts, 2, "the node's count stays");
}

#[test]
fn the_back_off_of_a_subject_ends_with_that_of_its_first_thread() {
    let mut stats = PlacerStats::default();
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
        stats.record(&report, Timestamp::from_second(second).unwrap());
        let stats = &stats.subjects[&SubjectId(7)];
        let left = stats.back_off.clone().unwrap();
        (
            stats.back_offs,
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
        MaskDriftCause::CpusetChange,
        MaskDriftCause::Hotplug,
        MaskDriftCause::Foreign,
        MaskDriftCause::NewThread,
        MaskDriftCause::Inherited,
        MaskDriftCause::Policy,
        MaskDriftCause::Unknown,
    ];
    let documented: Vec<DriftCause> = causes.into_iter().filter_map(drift_cause).collect();
    assert_eq!(documented, DriftCause::ALL);
}

#[test]
fn only_a_worker_that_replaces_another_counts_as_respawn() {
    let mut stats = PlacerStats::default();
    let subject = SubjectId(7);
    for respawns in [0, 1, 2] {
        let report = Report::WorkerSpawned {
            subject,
            worker: albacore_solver::WorkerIndex(0),
            pid: Pid(1),
            respawns,
        };
        stats.record(&report, Timestamp::from_second(0).unwrap());
    }
    assert_eq!(stats.subjects[&subject].respawns, 2);
}

#[test]
fn spawn_times_fall_into_the_first_bucket_that_holds_them() {
    let found = [0, 5_000, 5_001, 20_000, 60_001, 1_000_001].map(bucket);
    assert_eq!(found, [0, 0, 1, 2, 4, 6]);
}

#[test]
fn running_out_of_file_descriptors_has_a_category_of_its_own() {
    let category = |code| {
        let error = PlacerError::Os(albacore_os::OsError::Call {
            call: "pidfd_open",
            source: std::io::Error::from_raw_os_error(code),
        });
        PlacerFailure::of(&error).category
    };
    assert_eq!(category(EMFILE), FILES_EXHAUSTED);
    assert_eq!(category(ENFILE), FILES_EXHAUSTED);
    assert_eq!(category(5), "os");
}

#[test]
fn the_message_of_a_failure_holds_the_cause() {
    let error = PlacerError::Os(albacore_os::OsError::Call {
        call: "pidfd_open",
        source: std::io::Error::other("no memory"),
    });
    assert_eq!(
        PlacerFailure::of(&error).message,
        "pidfd_open failed: no memory"
    );
}
