//! `batching.prefer: IdleWorkers` under load: a pod becomes spare, and a scale-down deletes it
//! through its kubelet.
use std::collections::BTreeSet;

use serde_json::json;

use crate::rig::Rig;
use crate::wait_ready;

/// Makes one of three pods spare, scales down to two, and restores the deployment.
pub(crate) fn removes_the_idle_pod(rig: &Rig) {
    prefer(rig, json!("IdleWorkers"));
    rig.wait_until("a spare pod", || {
        let path = "jsonpath={.status.traffic.serving}";
        (rig.kubectl(&["get", "infd", "fraud", "-o", path]) == "2/3").then_some(())
    });
    let (serving, spare) = (pods(rig, "=serving"), pods(rig, "=spare"));
    assert_eq!((serving.len(), spare.len()), (2, 1));
    scale(rig, "--replicas=2");
    rig.wait_until("two pods", || (pods(rig, "").len() == 2).then_some(()));
    assert_eq!(pods(rig, ""), serving, "the spare pod is deleted");
    prefer(rig, json!(null));
    scale(rig, "--replicas=3");
    rig.wait_until("three pods", || (pods(rig, "").len() == 3).then_some(()));
    wait_ready(rig);
}

fn prefer(rig: &Rig, preference: serde_json::Value) {
    let patch = json!({"spec": {"batching": {"prefer": preference}}}).to_string();
    rig.kubectl(&["patch", "infd", "fraud", "--type=merge", "-p", &patch]);
}

fn scale(rig: &Rig, replicas: &str) {
    rig.kubectl(&["scale", "infd", "fraud", replicas]);
}

/// Names of the pods whose traffic label has this value.
fn pods(rig: &Rig, value: &str) -> BTreeSet<String> {
    let label = format!("albacore.dev/deployment=fraud,albacore.dev/traffic{value}");
    let names = rig.kubectl(&["get", "pods", "-l", &label, "-o", "name"]);
    names.lines().map(str::to_owned).collect()
}
