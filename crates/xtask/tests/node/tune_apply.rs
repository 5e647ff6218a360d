//! `albacore tune NAME --apply` under load: a configuration that waits too long for batches is
//! replaced, judged by the counters of the serving pods, and kept.

use serde_json::{Value, json};

use crate::requests::Requests;
use crate::rig::Rig;

/// The objective of examples/fraud.yaml is 25 ms: a batch that waits this long has no time to be
/// computed under load, so that other configurations sustain a much higher rate.
const DELAY: &str = "24ms";

/// More than arrive within the delay, so that no batch is dispatched before it ends.
const ROWS: u32 = 65_536;

pub(crate) fn keeps_what_is_no_worse(rig: &mut Rig) {
    let before = spec(rig);
    let patch =
        json!({"spec": {"batching": {"policy": "Timeout", "maxDelay": DELAY, "maxRows": ROWS}}});
    rig.kubectl(&[
        "patch",
        "infd/fraud",
        "--type=merge",
        "-p",
        &patch.to_string(),
    ]);
    rig.wait_until("the delay", || {
        (rig.state("/batching/policy")? == "timeout").then_some(())
    });
    wait_until_settled(rig);
    let results = rig.folder().join("applied");
    let output = ["--output", results.to_str().unwrap()];
    let words = ["tune", "fraud", "-n", "default", "--time", "8s", "--apply"];
    let watch = ["--watch-time", "20s"];
    let words = [&words[..], &watch, &output].concat();
    let path = "jsonpath={.spec.clusterIP}";
    let service = rig.kubectl(&["get", "service", "fraud", "-o", path]);
    let requests = Requests::new(format!("{service}:8080").parse().unwrap());
    let mut output = None;
    let outcomes = requests.during(rig, "a configuration is applied", || {
        output = Some(rig.try_albacore(&words));
    });
    let output = output.unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{stderr}");
    assert!(stdout.contains("keeps the chosen values"), "{stdout}");
    let found = std::fs::read_to_string(results.join("tune.json")).unwrap();
    let chosen = spec(rig);
    assert_ne!(chosen["batching"]["maxDelay"], DELAY, "{found}");
    outcomes.assert_failed_at_most(outcomes.sent() / 100);

    let back = json!([{"op": "replace", "path": "/spec", "value": before}]);
    rig.kubectl(&[
        "patch",
        "infd/fraud",
        "--type=json",
        "-p",
        &back.to_string(),
    ]);
    wait_until_settled(rig);
}

fn spec(rig: &Rig) -> Value {
    let object = rig.kubectl(&["get", "infd/fraud", "-o", "json"]);
    let mut object: Value = serde_json::from_str(&object).unwrap();
    object["spec"].take()
}

/// Waits until the controller has nothing more to do for the deployment: the kubelet updates the
/// settings in pods only after a minute.
fn wait_until_settled(rig: &Rig) {
    let path = "/apis/albacore.dev/v1beta1/namespaces/default/inferencedeployments/fraud";
    rig.wait_until("a settled deployment", || {
        let object = rig.node.plane().read(path).unwrap();
        let (status, generation) = (&object["status"], &object["metadata"]["generation"]);
        let conditions = status["conditions"].as_array()?;
        let is_true = |kind: &str| {
            let mut conditions = conditions.iter();
            conditions.any(|found| found["type"] == kind && found["status"] == "True")
        };
        let is_settled = is_true("Ready") && !is_true("Reconciling");
        (is_settled && status["observedGeneration"] == *generation).then_some(())
    });
}
