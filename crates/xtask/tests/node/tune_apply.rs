//! `albacore tune NAME --apply` under load: a configuration that waits too long for batches is
//! replaced, judged by the counters of the serving pods, and kept, or reverted if the pods become
//! slower.

use std::process::Output;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::kernel;
use crate::requests::{Outcomes, Requests};
use crate::rig::Rig;

const OBJECT: &str = "/apis/albacore.dev/v1beta1/namespaces/default/inferencedeployments/fraud";

/// The objective of examples/fraud.yaml is 25 ms: a batch that waits this long has no time to be
/// computed under load, so that other configurations sustain a much higher rate.
const DELAY: &str = "24ms";

/// More than arrive within the delay, so that no batch is dispatched before it ends.
const ROWS: u32 = 65_536;

/// How long the workers are stopped, and how long they run in between: several times the delay of
/// the former configuration, and less than the server tolerates from a worker that hangs.
const STOPPED: Duration = Duration::from_millis(150);
const RUNNING: Duration = Duration::from_millis(50);

pub(crate) fn keeps_what_is_no_worse(rig: &mut Rig) {
    let before = configure(rig);
    let (output, outcomes) = tune(rig, "applied", || std::thread::sleep(RUNNING));
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output:?}");
    assert!(stdout.contains("keeps the chosen values"), "{stdout}");
    let found = std::fs::read_to_string(rig.folder().join("applied/tune.json")).unwrap();
    let chosen = spec(rig);
    assert_ne!(chosen["batching"]["maxDelay"], DELAY, "{found}");
    outcomes.assert_failed_at_most(outcomes.sent() / 100);
    restore(rig, &before);
}

/// The workers are stopped again and again from the change on, as if the chosen values did not suit
/// the machine.
pub(crate) fn reverts_what_is_worse(rig: &mut Rig) {
    let before = configure(rig);
    let own = spec(rig);
    let workers = kernel::workers(rig.front());
    let is_applied = || spec(rig)["batching"]["maxDelay"] != DELAY;
    let (output, _) = tune(rig, "reverted", || {
        if is_applied() {
            workers.iter().for_each(|&pid| kernel::signal(pid, "STOP"));
            std::thread::sleep(STOPPED);
            workers.iter().for_each(|&pid| kernel::signal(pid, "CONT"));
        }
        std::thread::sleep(RUNNING);
    });
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let reason = "worse beyond the noise; default/fraud has its previous values again";
    assert!(stderr.contains(reason), "{stderr}");
    assert_eq!(spec(rig), own);
    restore(rig, &before);
}

/// Sets a configuration that any search improves; returns the former spec.
fn configure(rig: &Rig) -> Value {
    let before = spec(rig);
    let patch =
        json!({"spec": {"batching": {"policy": "Timeout", "maxDelay": DELAY, "maxRows": ROWS}}});
    let patch = patch.to_string();
    rig.kubectl(&["patch", "infd/fraud", "--type=merge", "-p", &patch]);
    rig.wait_until("the delay", || {
        (rig.state("/batching/policy")? == "timeout").then_some(())
    });
    wait_until_settled(rig);
    before
}

fn restore(rig: &Rig, before: &Value) {
    let back = json!([{"op": "replace", "path": "/spec", "value": before}]).to_string();
    rig.kubectl(&["patch", "infd/fraud", "--type=json", "-p", &back]);
    wait_until_settled(rig);
}

/// Searches and applies under load, and calls `disturb` repeatedly until the command ends.
fn tune(rig: &Rig, folder: &str, disturb: impl Fn() + Sync) -> (Output, Outcomes) {
    let results = rig.folder().join(folder);
    let output = ["--output", results.to_str().unwrap()];
    let words = ["tune", "fraud", "-n", "default", "--time", "8s", "--apply"];
    let words = [&words[..], &["--watch-time", "20s"], &output].concat();
    let path = "jsonpath={.spec.clusterIP}";
    let service = rig.kubectl(&["get", "service", "fraud", "-o", path]);
    let requests = Requests::new(format!("{service}:8080").parse().unwrap());
    let mut output = None;
    let outcomes = requests.during(rig, "a configuration is applied", || {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    disturb();
                }
            });
            output = Some(rig.try_albacore(&words));
            is_over.store(true, Ordering::Relaxed);
        });
    });
    (output.unwrap(), outcomes)
}

fn spec(rig: &Rig) -> Value {
    rig.node.plane().read(OBJECT).unwrap()["spec"].take()
}

/// Waits until the controller has nothing more to do for the deployment: the kubelet updates the
/// settings in pods only after a minute.
fn wait_until_settled(rig: &Rig) {
    rig.wait_until("a settled deployment", || {
        let object = rig.node.plane().read(OBJECT).unwrap();
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
