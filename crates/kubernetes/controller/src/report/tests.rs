//! Tests of when a status is written, and of which changes create events.

use super::*;

fn status(goodput: &str, ready: &str) -> InferenceDeploymentStatus {
    InferenceDeploymentStatus {
        goodput: Some(goodput.to_owned()),
        ready: Some(ready.to_owned()),
        ..InferenceDeploymentStatus::default()
    }
}

#[test]
fn changes_of_measurements_are_delayed_and_other_changes_are_not() {
    let start = Instant::now();
    let written = status("10/s", "1/2");
    let mut record = DeploymentRecord::default();
    record.status = Some((written.clone(), "7".to_owned(), start));
    let at = |status: &InferenceDeploymentStatus, seconds| {
        let now = start + Duration::from_secs(seconds);
        write_decision(Some(&written), status, &record, now, measurements_pause(1))
    };
    assert_eq!(at(&written, 99), WriteDecision::Never);
    assert_eq!(at(&status("10/s", "2/2"), 0), WriteDecision::Now);
    let left = Duration::from_secs(20);
    assert_eq!(at(&status("20/s", "1/2"), 10), WriteDecision::After(left));
    assert_eq!(at(&status("20/s", "1/2"), 30), WriteDecision::Now);
    let decision = write_decision(None, &written, &record, start, measurements_pause(1));
    assert_eq!(decision, WriteDecision::Now);
}

#[test]
fn roll_out_progress_is_delayed_and_its_end_is_not() {
    let step = |replicas: i32, progressing: &str, is_over: bool| {
        let condition = |kind: &str, reason: &str| {
            let condition = serde_json::json!({"type": kind, "status": "True",
                "reason": reason, "message": "m", "lastTransitionTime": "2026-11-27T05:00:00Z"});
            serde_json::from_value(condition).unwrap()
        };
        let mut conditions = vec![condition("Progressing", progressing)];
        if !is_over {
            conditions.push(condition("Reconciling", "RollingOut"));
        }
        InferenceDeploymentStatus {
            conditions,
            replicas: Some(replicas),
            ready: Some(format!("0/{replicas}")),
            ..InferenceDeploymentStatus::default()
        }
    };
    let start = Instant::now();
    let after = |before: InferenceDeploymentStatus, next, pause| {
        let mut record = DeploymentRecord::default();
        record.status = Some((before.clone(), "7".to_owned(), start));
        let now = start + pause;
        write_decision(Some(&before), &next, &record, now, measurements_pause(1))
    };
    let first = || step(0, "NewReplicaSetCreated", false);
    let second = || step(2, "ReplicaSetUpdated", false);
    let fifth = PROGRESS_PAUSE / 5;
    let later = WriteDecision::After(fifth * 4);
    assert_eq!(after(first(), second(), fifth), later);
    assert_eq!(after(first(), second(), PROGRESS_PAUSE), WriteDecision::Now);
    let end = || step(2, "NewReplicaSetAvailable", true);
    assert_eq!(after(second(), end(), fifth), WriteDecision::Now);
    // No roll-out is in progress: a lost pod is reported immediately.
    let lost = step(1, "NewReplicaSetAvailable", true);
    assert_eq!(after(end(), lost, fifth), WriteDecision::Now);
}

#[test]
fn many_deployments_wait_longer_so_that_writes_stay_few() {
    assert_eq!(measurements_pause(0), MEASUREMENTS_PAUSE);
    assert_eq!(measurements_pause(1500), MEASUREMENTS_PAUSE);
    assert_eq!(measurements_pause(5000), Duration::from_secs(100));
}

#[test]
fn measurements_of_models_are_delayed_like_all_others() {
    let with = |goodput: &str, is_met| {
        let mut status = status("10/s", "1/2");
        status.models = vec![albacore_api::ModelStatus {
            name: "m".to_owned(),
            goodput: Some(goodput.to_owned()),
            p99: Some(format!("{goodput} ms")),
            bad_rate: Some(format!("{goodput}%")),
            slo_met: Some(is_met),
            ..albacore_api::ModelStatus::default()
        }];
        status
    };
    let (start, written) = (Instant::now(), with("10/s", true));
    let mut record = DeploymentRecord::default();
    record.status = Some((written.clone(), "7".to_owned(), start));
    let of = |status: &InferenceDeploymentStatus| {
        write_decision(
            Some(&written),
            status,
            &record,
            start,
            measurements_pause(1),
        )
    };
    assert_eq!(of(&written), WriteDecision::Never);
    let after = WriteDecision::After(MEASUREMENTS_PAUSE);
    assert_eq!(of(&with("11/s", false)), after);
    let mut loaded = with("10/s", true);
    loaded.models[0].loaded = "1/2".to_owned();
    assert_eq!(of(&loaded), WriteDecision::Now);
}

#[test]
fn a_roll_out_that_gets_stuck_is_an_event_once() {
    let pending = |reason: &str| {
        let condition = serde_json::json!({"type": UPGRADE_PENDING, "status": "True",
            "reason": reason, "message": "m", "lastTransitionTime": "2026-11-23T05:00:00Z"});
        InferenceDeploymentStatus {
            conditions: vec![serde_json::from_value(condition).unwrap()],
            ..InferenceDeploymentStatus::default()
        }
    };
    let (waiting, stuck) = (pending("Waiting"), pending(STUCK));
    let event = EventDraft::warning("RolloutStuck", "Apply", "m");
    assert_eq!(condition_events(Some(&waiting), &stuck), [event]);
    assert_eq!(condition_events(Some(&stuck), &stuck), []);
    assert_eq!(condition_events(None, &waiting), []);
}
