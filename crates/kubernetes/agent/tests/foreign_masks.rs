//! Another process changes masks repeatedly: tests of the report and of the retry.
#![allow(clippy::unwrap_used, clippy::panic)] // tests fail by panicking

mod rig;

use rig::{Pod, Rig, taskset, wait};
use serde_json::json;

/// Changes the mask of a thread repeatedly until the agent stops repairing it.
fn overwrite_mask_repeatedly(rig: &Rig, pod: &Pod) {
    let thread = *pod.threads().keys().next().unwrap();
    let reason = || {
        rig.entry(pod)["reason"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    wait("it is left alone", || {
        if pod.is_pinned(2) {
            taskset(thread, "0-1");
        }
        reason().contains("mask changed")
    });
}

/// Notes of the events of an object.
fn notes(rig: &Rig, name: &str, reason: &str) -> Vec<String> {
    let events = rig.events_of(name).into_iter();
    let ours = events.filter(|e| e["reason"] == reason);
    ours.map(|e| e["note"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn repeated_foreign_mask_writes_are_reported_and_an_edit_or_a_restart_ends_the_backoff() {
    let rig = Rig::start();
    rig.deploy("fraud", 2, 1, &json!({}));
    let mut pod = rig.pod("fraud-1", "fraud", &["2", "1", "named"]);
    let agent = rig.agent(&[]);
    rig.wait_for_verified(&pod, 2);
    overwrite_mask_repeatedly(&rig, &pod);
    let reason = rig.entry(&pod)["reason"].as_str().unwrap().to_owned();
    assert!(
        reason.starts_with("1 thread: mask changed 4 times in "),
        "{reason}"
    );
    assert!(
        reason.contains(" by another process; next attempt "),
        "{reason}"
    );
    assert!(
        reason.ends_with("or edit the deployment"),
        "the way out: {reason}"
    );
    wait("an event says so", || {
        let notes = notes(&rig, "fraud-1", "ForeignPinning");
        let left = notes
            .iter()
            .find(|note| note.contains("are not pinned until"));
        left.is_some_and(|note| {
            note.contains("does not report which")
                && note.contains("Stop the program that sets masks")
        })
    });
    let text = rig.entry(&pod).to_string();
    assert!(
        !text.contains("pin themselves") && !text.contains("SelfPin"),
        "{text}"
    );

    // Any edit of the deployment makes the agent retry at once.
    let patch = json!({"spec": {"batching": {"maxRows": 99}}});
    rig.patch("infd", "fraud", &patch);
    rig.wait_for_verified(&pod, 2);
    assert!(pod.is_pinned(2));

    overwrite_mask_repeatedly(&rig, &pod);
    rig.run_container(&mut pod, &["2", "1", "named"]);
    rig.wait_for_verified(&pod, 2);
    assert!(pod.is_pinned(2));
    assert!(agent.stop().success());
}
