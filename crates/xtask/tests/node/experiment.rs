//! `albacore experiment --node`: a Job with an unprivileged pod that is followed, killed and
//! created again; the results are fetched.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::kernel;
use crate::rig::{Rig, root};

const JOB: &str = "albacore-experiment-tiny";

/// One cell: 10 trials of two policies and the kernel once more, so that it is still running when
/// it is interrupted.
const WINDOWS: usize = 30;

fn experiment(rig: &Rig, more: &str) -> PathBuf {
    let model = root().join("examples/fraud.ubj");
    let text = format!(
        "name: tiny\nworkers: [1]\nthreads: [2]\npolicies: [kernel, scatter]\nmodels:\n\
         - {{name: fraud, file: {}, features: 61}}\nrequests: [{{rows: 2}}]\n\
         load: {{clients: 1}}\ntrials: 10\nwindow: 200ms\nsettle: 20ms\n{more}",
        model.display()
    );
    let file = rig.folder().join("tiny.yaml");
    std::fs::write(&file, text).unwrap();
    file
}

/// Arguments of `albacore experiment` with these results on this node.
fn words<'a>(file: &'a Path, results: &'a Path, node: &'a str) -> Vec<&'a str> {
    let text = |path: &'a Path| path.to_str().unwrap();
    let file = ["experiment", "-f", text(file), "--output", text(results)];
    let place = ["--node", node, "--deployment", "fraud", "-n", "default"];
    [&file[..], &place].concat()
}

#[track_caller]
fn refused(rig: &Rig, words: &[&str], code: i32, why: &str) {
    let output = rig.try_albacore(words);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert!(stderr.contains(why), "{stderr}");
}

fn windows(results: &Path) -> usize {
    let text = std::fs::read_to_string(results.join("experiment.jsonl")).unwrap_or_default();
    let lines = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["kind"] == "window").count()
}

pub(crate) fn runs_as_a_job(rig: &mut Rig) {
    rig.import_experiment_image();
    let node = rig.node.name().to_owned();
    let results = rig.folder().join("results");
    let own_server = "template: {command: [x]}\n";
    let file = experiment(rig, own_server);
    let path = "[{rows: 2, path: /predict}]";
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("[{rows: 2}]", path)).unwrap();
    refused(rig, &words(&file, &results, &node), 64, "remove template");
    let file = experiment(rig, "");
    refused(
        rig,
        &words(&file, &results, "nowhere"),
        1,
        "there is no such node",
    );
    rig.kubectl(&["cordon", &node]);
    refused(rig, &words(&file, &results, &node), 1, "it is cordoned");
    rig.kubectl(&["uncordon", &node]);

    missing_permission_is_named(rig, &words(&file, &results, &node));

    let masks = rig.masks();
    let (stderr, code) = leave_early(rig, &words(&file, &results, &node), |child| {
        signal(child, "INT");
    });
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("keeps running"), "{stderr}");
    assert!(stderr.contains("kubectl delete job"), "{stderr}");
    let job = rig.kubectl(&["get", "job", JOB, "-o", "json"]);
    let job: Value = serde_json::from_str(&job).unwrap();
    let container = &job["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["resources"]["limits"]["cpu"], "4", "{job}");
    let other = experiment(rig, "seed: 2\n");
    let elsewhere = rig.folder().join("elsewhere");
    for (folder, code) in [(&results, 64), (&elsewhere, 1)] {
        refused(
            rig,
            &words(&other, folder, &node),
            code,
            "another experiment",
        );
    }

    let file = experiment(rig, "");
    let (stderr, code) = leave_early(rig, &words(&file, &results, &node), |_| {
        let server = kernel::find("albacore-lab", &uid(rig)).unwrap();
        rig.kill(server);
    });
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("following it"), "{stderr}");
    assert!(stderr.contains("exit code 137"), "{stderr}");
    let before = windows(&results);
    assert!((2..WINDOWS).contains(&before), "{before}: {stderr}");

    let output = rig.try_albacore(&words(&file, &results, &node));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{stderr}");
    assert!(stderr.contains("it is created again"), "{stderr}");
    assert_eq!(windows(&results), WINDOWS, "{stderr}");
    assert_report_written(&results);
    let left = rig.kubectl(&["get", "jobs", "-o", "name"]);
    assert!(!left.contains(JOB), "{left}");
    assert_eq!(
        rig.masks(),
        masks,
        "what the agent places stays where it is"
    );
}

fn assert_report_written(results: &Path) {
    let report = std::fs::read_to_string(results.join("report.html")).unwrap();
    assert!(report.contains("fraud"), "the report is of the model");
    for name in ["windows.csv", "comparisons.csv", "stages.csv"] {
        assert!(results.join(name).is_file(), "{name}");
    }
}

fn missing_permission_is_named(rig: &Rig, words: &[&str]) {
    let stranger = rig.node.plane().kubeconfig_of("stranger", None).unwrap();
    let mut command = Rig::command_as(&stranger, words);
    let output = rig.node.within(move || command.output()).unwrap().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    for part in [
        "\"stranger\" cannot get resource \"jobs\"",
        "needs the rights to get, create",
    ] {
        assert!(stderr.contains(part), "{stderr}");
    }
}

/// The uid of the Job's pod.
fn uid(rig: &Rig) -> String {
    rig.uid("default", &format!("batch.kubernetes.io/job-name={JOB}"))
        .unwrap()
}

pub(crate) fn signal(child: &Child, name: &str) {
    let pid = child.id().to_string();
    let name = format!("-{name}");
    let status = Command::new("kill").args([&name, &pid]).status().unwrap();
    assert!(status.success());
}

/// Runs until a window is fetched and the threads in the pod, which has no capabilities, are
/// pinned; then calls `leave`. Returns its output and exit code.
fn leave_early(rig: &Rig, words: &[&str], leave: impl FnOnce(&Child)) -> (String, i32) {
    let mut command = rig.command(words);
    let start = move || command.stderr(Stdio::piped()).spawn();
    let mut child = rig.node.within(start).unwrap().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut stderr = String::new();
    for line in lines.by_ref().map_while(Result::ok) {
        stderr += &format!("{line}\n");
        if line.contains(" p99 ") {
            break;
        }
    }
    let server = kernel::find("albacore-server", &uid(rig)).expect("a server");
    assert!(kernel::rights(server).contains("CapEff:\t0000000000000000"));
    rig.wait_until("a window of scatter", || {
        let masks = kernel::masks(&kernel::workers(server));
        let is_pinned = masks.len() == 2 && masks.values().all(|mask| !mask.contains('-'));
        is_pinned.then_some(())
    });
    leave(&child);
    stderr.extend(lines.map_while(Result::ok));
    (stderr, child.wait().unwrap().code().unwrap())
}
