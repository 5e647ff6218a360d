//! `albacore tune NAME`: a pod like those of the deployment is measured; the serving pods do not
//! change. Depends on the step of experiments, whose image it uses.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;

use crate::experiment::signal;
use crate::rig::Rig;

const JOB: &str = "albacore-tune-fraud";

fn words(results: &Path) -> Vec<&str> {
    let results = results.to_str().unwrap();
    let place = ["-n", "default", "--output", results];
    [&["tune", "fraud", "--time", "8s"][..], &place].concat()
}

pub(crate) fn measures_another_pod(rig: &mut Rig) {
    let results = rig.folder().join("tuned");
    let unknown = rig.try_albacore(&["tune", "nobody", "-n", "default"]);
    let said = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(
        said.contains("there is no such InferenceDeployment"),
        "{said}"
    );
    let applied = [&words(&results)[..], &["--apply", "--watch-time", "1s"]].concat();
    let idle = rig.try_albacore(&applied);
    let said = String::from_utf8_lossy(&idle.stderr).into_owned();
    assert!(said.contains("its pods answered 0 requests"), "{said}");
    let (masks, serving) = (rig.masks(), serving(rig));

    let said = interrupt_early(rig, &words(&results));
    assert!(said.contains("keeps running"), "{said}");
    let job = rig.kubectl(&["get", "job", JOB, "-o", "json"]);
    let job: Value = serde_json::from_str(&job).unwrap();
    let pod = &job["spec"]["template"];
    let container = &pod["spec"]["containers"][0];
    assert_eq!(container["resources"]["limits"]["cpu"], "4", "{job}");
    assert!(pod["metadata"]["labels"]["albacore.dev/deployment"].is_null());
    assert_eq!(self::serving(rig), serving, "while another is measured");

    if rig.is_release() {
        // more than a minute, because other programs disturb the measurements
        check_results(rig, &results);
    } else {
        rig.kubectl(&["delete", "job", JOB, "--timeout=60s"]);
    }
    assert_eq!(self::serving(rig), serving);
    assert_eq!(rig.masks(), masks, "threads that serve stay where they are");
}

fn check_results(rig: &Rig, results: &Path) {
    let output = rig.try_albacore(&words(results));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("following it"), "{said}");
    let summary = String::from_utf8_lossy(&output.stdout).into_owned();
    let file = results.join("fraud.yaml");
    let file = file.to_str().unwrap();
    assert!(
        summary.contains(&format!("kubectl apply -f {file}")),
        "{summary}"
    );
    let found = std::fs::read_to_string(results.join("tune.json")).unwrap();
    let found: Value = serde_json::from_str(&found).unwrap();
    assert_eq!(found["name"], "fraud", "{found}");
    assert!(results.join("report.html").is_file());
    rig.kubectl(&["apply", "--dry-run=server", "-f", file]);
    let left = rig.kubectl(&["get", "jobs", "-o", "name"]);
    assert!(!left.contains(JOB), "{left}");
}

/// The pods behind the Service, and the pods placed by the agent.
fn serving(rig: &Rig) -> [String; 2] {
    let service = "kubernetes.io/service-name=fraud";
    let addresses = "jsonpath={.items[*].endpoints[*].targetRef.name}";
    let placed = "jsonpath={.items[*].status.pods[*].pod}";
    [
        rig.kubectl(&["get", "endpointslices", "-l", service, "-o", addresses]),
        rig.kubectl(&["get", "nodeplacements", "-o", placed]),
    ]
}

/// Runs until the pod reports its first step, then interrupts it like Ctrl-C; returns its output.
fn interrupt_early(rig: &Rig, words: &[&str]) -> String {
    let mut command = rig.command(words);
    let start = move || command.stderr(Stdio::piped()).spawn();
    let mut child = rig.node.within(start).unwrap().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut said = String::new();
    for line in lines.by_ref().map_while(Result::ok) {
        let is_sent = said.contains("sending 1 files");
        said += &format!("{line}\n");
        if is_sent {
            signal(&child, "INT");
            break;
        }
    }
    said.extend(lines.map_while(Result::ok));
    assert_eq!(child.wait().unwrap().code(), Some(1), "{said}");
    said
}
