//! Observe mode on a real node, set by the object and by the chart, and an agent that is stopped.

use serde_json::Value;

use crate::kernel;
use crate::rig::Rig;
use crate::{THREADS, WORKERS, is_scattered};

/// The entry of the server's pod in the node's report, and the time of the last verification.
fn entry(rig: &Rig) -> (Value, String) {
    let path = format!(
        "/apis/albacore.dev/v1alpha1/nodeplacements/{}",
        rig.node.name()
    );
    let mut report = rig.node.plane().read(&path).unwrap();
    let time = report["status"]["lastVerificationTime"].as_str();
    let time = time.unwrap_or_default().to_owned();
    let pods = report["status"]["pods"].take();
    let pods = pods.as_array().cloned().unwrap_or_default();
    let is_ours = |pod: &Value| pod["pod"].as_str().unwrap().starts_with("default/fraud-");
    let pod = pods.into_iter().find(is_ours).unwrap_or_default();
    (pod, time)
}

/// `status/reason` of the condition Placed, and the column PINNED of kubectl.
fn placed(rig: &Rig) -> (String, String) {
    let path = "/apis/albacore.dev/v1beta1/namespaces/default/inferencedeployments/fraud";
    let status = rig.node.plane().read(path).unwrap()["status"].take();
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let placed = conditions.into_iter().find(|c| c["type"] == "Placed");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let says = placed.map(|c| format!("{}/{}", text(&c["status"]), text(&c["reason"])));
    (says.unwrap_or_default(), text(&status["pinned"]))
}

/// Whether all threads of the workers may run on all cpus.
fn is_free(front: i32) -> bool {
    let masks = kernel::masks(&kernel::workers(front));
    masks.len() == WORKERS * THREADS && masks.values().all(|mask| mask == "0-1")
}

/// Waits until the agent reports that it observes every worker and has planned every thread without
/// writing any mask.
fn wait_until_observed(rig: &Rig) {
    rig.wait_until("an observer that sees all workers", || {
        let (pod, _) = entry(rig);
        let is_seen = pod["observed"] == true
            && pod["workers"] == WORKERS
            && pod["planned"] == WORKERS * THREADS;
        (is_seen && pod["reason"].is_null()).then_some(())
    });
}

/// Kills a worker: its replacement is reported and not pinned.
fn a_new_worker_is_left_alone(rig: &Rig, front: i32) {
    let victim = *kernel::workers(front).first().unwrap();
    rig.kill(victim);
    rig.wait_until("another worker", || {
        (!kernel::workers(front).contains(&victim) && is_free(front)).then_some(())
    });
    wait_until_observed(rig);
    assert!(is_free(front), "{:?}", rig.masks());
}

/// `placement.enforcement` of a running deployment: pinned masks are given back, then nothing is
/// written.
pub(crate) fn by_the_object(rig: &mut Rig) {
    let front = rig.front();
    let enforce = |how: &str| {
        let patch = format!(r#"{{"spec": {{"placement": {{"enforcement": "{how}"}}}}}}"#);
        rig.kubectl(&["patch", "infd/fraud", "--type=merge", "--patch", &patch]);
    };
    enforce("Observe");
    rig.wait_until("masks that are given back", || is_free(front).then_some(()));
    rig.wait_until("Observed", || {
        (placed(rig).0 == "True/Observed").then_some(())
    });
    a_new_worker_is_left_alone(rig, front);
    enforce("Enforce");
    rig.wait_until("the placement", || is_scattered(front).then_some(()));
}

/// Set by the chart: the agent has no capabilities, but still sees every process.
pub(crate) fn by_the_chart(rig: &mut Rig) {
    let front = rig.front();
    rig.helm("upgrade", &["agent.enforcement=Observe"]);
    rig.wait_until("masks that are given back", || is_free(front).then_some(()));
    wait_until_observed(rig);
    let agent = rig.agent();
    let rights = kernel::rights(agent);
    assert!(rights.contains("CapEff:\t0000000000000000"), "{rights}");
    assert!(rights.contains("Uid:\t65532"), "{rights}");
    assert!(!kernel::shares_pid_namespace(agent), "hostPID is not set");
    a_new_worker_is_left_alone(rig, front);
    let shown = rig.ask_agent("dump").unwrap();
    let pods: Value = serde_json::from_str(&shown).unwrap();
    let threads = pods[0]["threads"].as_array().unwrap();
    assert_eq!(threads.len(), WORKERS * THREADS, "{shown}");
    assert!(
        threads.iter().all(|thread| thread["mask"] == "0-1"),
        "{shown}"
    );
    rig.helm("upgrade", &[]);
    rig.wait_until("the placement", || is_scattered(front).then_some(()));
}

/// A stopped agent verifies nothing, and after a minute its reports are considered stale. The
/// kubelet would restart it after some minutes; it is continued before.
pub(crate) fn a_frozen_agent(rig: &mut Rig) {
    rig.wait_until("Verified", || {
        let all = format!("{0}/{0}", WORKERS * THREADS);
        (placed(rig) == ("True/Verified".to_owned(), all)).then_some(())
    });
    let agent = rig.agent();
    kernel::signal(agent, "STOP");
    rig.wait_until("AgentSilent", || {
        (placed(rig) == ("Unknown/AgentSilent".to_owned(), "?".to_owned())).then_some(())
    });
    let before = entry(rig).1;
    kernel::signal(agent, "CONT");
    rig.wait_until("a renewal", || (entry(rig).1 != before).then_some(()));
    rig.wait_until("Verified", || {
        (placed(rig).0 == "True/Verified").then_some(())
    });
}
