//! Data for albacore-params: each pod of the node by its address, and each change at once, with or
//! without a reader.
#![allow(clippy::unwrap_used, clippy::panic)] // tests fail by panicking

mod rig;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use albacore_settings::agent_stream::{ModelParameters, NodeSnapshot};
use albacore_settings::{ModelBatching, Policy};
use rig::{Rig, wait};
use serde_json::json;

/// Reads snapshots until `is_last` accepts one of them.
fn read_until(path: &Path, is_last: impl Fn(&NodeSnapshot) -> bool) -> NodeSnapshot {
    let pipe = std::fs::File::open(path).unwrap();
    for line in BufReader::new(pipe).split(b'\n') {
        let line = line.unwrap();
        if line.is_empty() {
            continue;
        }
        let decoded = NodeSnapshot::decode(&line).unwrap();
        assert_eq!(decoded.unknown_fields, 0);
        if is_last(&decoded.snapshot) {
            return decoded.snapshot;
        }
    }
    panic!("the feed ended");
}

#[test]
fn params_gets_each_pod_and_each_change() {
    let rig = Rig::start();
    rig.deploy(
        "fraud",
        2,
        1,
        &json!({"batching": {"policy": "Eager", "maxRows": 64}}),
    );
    let pod = rig.pod("fraud-1", "fraud", &["2", "1", "named"]);
    let path = rig.folder.path().join("feed");
    let feed = path.to_str().unwrap();
    let agent = rig.agent(&["--feed", feed]);
    pod.wait_until_pinned(2);
    let first = read_until(&path, |line| !line.pods.is_empty());
    assert_eq!(first.node, rig::NODE);
    let sent = &first.pods[0];
    assert_eq!(sent.address, Some("10.1.0.7".parse().unwrap()));
    assert_eq!(
        (sent.uid.as_str(), sent.deployment.as_str()),
        (pod.uid.as_str(), "fraud")
    );
    assert_eq!(sent.parameters.batching.batch_rows_max, 64);
    let plain = ModelParameters::defaults("m".to_owned());
    assert_eq!(sent.parameters.models, [plain]);
    assert!(
        first.metrics.contains("albacore_agent_threads_verified"),
        "{}",
        first.metrics
    );

    // A change of the deployment is sent at once, not only after the next interval.
    let reader = {
        let path = path.clone();
        std::thread::spawn(move || {
            read_until(&path, |line| {
                line.pods
                    .iter()
                    .any(|p| p.parameters.batching.batch_rows_max == 99)
            })
        })
    };
    std::thread::sleep(Duration::from_secs(3));
    let start = Instant::now();
    rig.patch(
        "infd",
        "fraud",
        &json!({"spec": {"batching": {"maxRows": 99}, "models": [{"name": "m",
            "uri": "pvc://models/m.ubj", "slo": {"latency": "25ms"}, "threads": 1, "weight": 250,
            "batching": {"policy": "Deferred", "window": "5ms"}}]}}),
    );
    let changed = reader.join().unwrap();
    let of_model = ModelParameters {
        model: "m".to_owned(),
        threads: Some(1),
        weight: 250,
        batching: Some(ModelBatching {
            policy: Policy::Deferred,
            batch_rows_max: 99,
            window: Some(Duration::from_millis(5)),
        }),
    };
    assert_eq!(changed.pods[0].parameters.models, [of_model]);
    println!(
        "from the start of kubectl to the line: {:?}",
        start.elapsed()
    );
    assert_eq!(changed.pods[0].generation, 2);

    // Without a reader for a while, the agent continues to work.
    pod.kill(pod.worker(0));
    wait("it is replaced", || pod.is_pinned(2));
    a_path_that_is_no_pipe_is_refused(&rig);
    assert!(agent.stop().success());
}

/// Attempts of albacore-params to misuse the pipes as its own user on its read-only mount. Prints a
/// line for each success.
const PARAMS: &str = r#"
mount -t tmpfs -o mode=0777 none "$1"
"$0" --node-name node-1 --kubeconfig "$2" --cgroup /nowhere --heartbeat "$1/heartbeat" \
    --feed "$1/feed" --reports "$1/reports" 2>/dev/null &
for try in $(seq 1200); do [ -p "$1/reports" ] && break; sleep 0.1; done
mount --bind "$1" "$1"
mount -o remount,bind,ro "$1"
setpriv --reuid 65532 --regid 65532 --clear-groups sh -c '
    (echo x > "$0/reports") 2>/dev/null && echo writes reports
    timeout 120 head -c 1 "$0/feed" > /dev/null && echo reads feed
    (echo x > "$0/feed") 2>/dev/null && echo writes feed
    timeout 1 head -c 1 "$0/reports" 2>/dev/null | grep -q . && echo reads reports
    rm "$0/reports" 2>/dev/null && echo removes
    mv "$0/reports" "$0/other" 2>/dev/null && echo renames
    touch "$0/new" 2>/dev/null && echo makes
    true' "$1"
kill -KILL $!
"#;

#[test]
fn params_writes_reports_and_nothing_else_on_a_mount_that_is_read_only() {
    let rig = Rig::start();
    let folder = rig.folder.path().join("pipes");
    std::fs::create_dir(&folder).unwrap();
    rig.open_folders();
    let output = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", PARAMS])
        .arg(env!("CARGO_BIN_EXE_albacore-agent"))
        .arg(&folder)
        .arg(&rig.kubeconfig)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(said, "writes reports\nreads feed\n", "{errors}");
}

/// A file that is not a pipe is rejected, and the error contains its name.
fn a_path_that_is_no_pipe_is_refused(rig: &Rig) {
    let plain = rig.folder.path().join("plain");
    std::fs::write(&plain, "").unwrap();
    let refused = Command::new(env!("CARGO_BIN_EXE_albacore-agent"))
        .args([
            "--node-name",
            "x",
            "--feed",
            plain.to_str().unwrap(),
            "--kubeconfig",
        ])
        .arg(&rig.kubeconfig)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && said.contains("a named pipe"),
        "{said}"
    );
}

#[test]
fn an_invalid_command_line_exits_with_64() {
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_albacore-agent"));
        let output = command.args(arguments).env_clear().output().unwrap();
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    assert_eq!(run(&["--enforcement", "Maybe"]).0, Some(64));
    assert_eq!(run(&["--help"]).0, Some(0));
    let (code, said) = run(&[]);
    assert_eq!(code, Some(1));
    assert!(said.contains("--node-name is missing"), "{said}");
    let (code, said) = run(&["--node-name", "n"]);
    assert_eq!(code, Some(1));
    assert!(
        said.contains("does not run in a pod with a service account"),
        "{said}"
    );
}

#[test]
fn the_agent_links_no_server() {
    let output = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--package",
            "albacore-agent",
            "--edges",
            "normal,features",
        ])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let tree = String::from_utf8(output.stdout).unwrap();
    assert!(
        tree.contains("hyper feature \"client\""),
        "the tree is read: {tree}"
    );
    for banned in ["hyper feature \"server\"", "tonic", "prost ", "axum"] {
        assert!(!tree.contains(banned), "{banned} is linked");
    }
}
