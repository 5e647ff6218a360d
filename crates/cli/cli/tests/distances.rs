//! Distances between CPUs: measured by `albacore topology --measure`, passed to `albacore plan`,
//! and rejected if invalid.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail loudly"
)]

mod command;

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use albacore_os::{HostRoot, current_thread, read_mask};
use albacore_topology::{CpuSet, parse_synthetic};
use command::{albacore, albacore_words, assert_refused, data};
use serde_json::{Value, json};

const MACHINE: &str = "pack:2 l3:1 core:2 pu:2";
const SIZE: [&str; 7] = [
    "plan",
    "--workers",
    "2",
    "--threads",
    "2",
    "--mode",
    "scatter",
];

fn plan(options: &[&str]) -> command::CommandOutput {
    albacore(&[&SIZE[..], options].concat())
}

fn plan_json(options: &[&str]) -> Value {
    let ran = plan(&[options, &["--output", "json"]].concat());
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{options:?}");
    serde_json::from_str(&ran.out).unwrap()
}

/// The CPUs of this process, at least two.
fn own_cpus() -> CpuSet {
    let own = read_mask(&HostRoot::live(), current_thread()).unwrap();
    assert!(own.len() >= 2, "the tests need two cpus, not {own}");
    own
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
    entries
        .map(|entry| name(entry).to_str().unwrap().to_owned())
        .collect()
}

#[test]
fn two_cpus_of_this_machine_are_measured_and_the_file_is_planned_with() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("distances.json");
    std::fs::write(&file, "an older one").unwrap();
    let path = file.to_str().unwrap();
    let two: CpuSet = own_cpus().iter().take(2).collect();
    let two = two.to_string();
    let measure = ["topology", "--measure", "--cpuset", &two, "--write", path];
    let text = albacore(&measure);
    assert_eq!((text.code, text.err.as_str()), (0, ""), "{text:?}");
    assert!(text.out.contains("1 pair of cpus: all"), "{}", text.out);
    assert_eq!(names(folder.path()), ["distances.json"]);
    let written = std::fs::read_to_string(&file).unwrap();
    let written: Value = serde_json::from_str(&written).unwrap();
    let cycles = &written["matrix"]["cycles"];
    assert!(cycles[0][1].as_f64() > Some(0.0), "{written}");
    assert_eq!(cycles[0][1], cycles[1][0]);

    assert_eq!(
        plan_json(&["--distances", path])["distances"],
        written["distances"]
    );
    let text = plan(&["--distances", path]).out;
    assert!(text.contains(&format!("from {path}")), "{text}");
    let refused = plan(&["--distances", path, "--topology", MACHINE]);
    let hash = written["topology"].as_str().unwrap();
    let machine = parse_synthetic(MACHINE).unwrap().hash_hex();
    assert_refused(&refused, 64, &[path, hash, &machine, "measure again"]);

    let measured = albacore(&[
        "topology",
        "--measure",
        "--cpuset",
        &two,
        "--output",
        "json",
    ]);
    assert_eq!(measured.out.lines().count(), 1, "one object on one line");
    let measured: Value = serde_json::from_str(&measured.out).unwrap();
    assert_eq!(measured["topology"], written["topology"]);
    assert_eq!(measured["matrix"]["cpus"], written["matrix"]["cpus"]);
}

#[test]
fn measuring_is_refused_where_it_has_no_meaning() {
    let own = own_cpus();
    let first = own.first().unwrap().to_string();
    let one = albacore(&["topology", "--measure", "--cpuset", &first]);
    assert_refused(&one, 1, &["one cpu", "nothing to measure"]);
    let pinned = Command::new("taskset")
        .args(["-c", &first, env!("CARGO_BIN_EXE_albacore")])
        .args(["topology", "--measure", "--cpuset", &own.to_string()])
        .output()
        .unwrap();
    let error = String::from_utf8(pinned.stderr).unwrap();
    assert_eq!(pinned.status.code(), Some(64), "{error}");
    assert!(error.contains("may not run on"), "{error}");
    for (line, words) in [
        (
            "--measure --topology pu:2",
            &["--measure", "--topology"][..],
        ),
        ("--measure --output svg", &["--measure", "json"]),
        ("--write file", &["--measure"]),
        ("--measure --write /no/such/place", &["--write", "folder"]),
        (
            "--measure --write /dev/null",
            &["/dev/null", "is not a file"],
        ),
        ("--measure --write /", &["--write /", "is not a file"]),
    ] {
        let ran = albacore_words(&format!("topology {line}"));
        assert_refused(&ran, 64, words);
    }
}

#[test]
fn an_interrupted_measurement_leaves_no_file() {
    for _ in 0..10 {
        let folder = tempfile::tempdir().unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_albacore"))
            .args(["topology", "--measure", "--write"])
            .arg(folder.path().join("distances.json"))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let pid = child.id();
        let is_measuring = || {
            let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
            tasks.is_ok_and(|tasks| tasks.count() > 1)
        };
        while child.try_wait().unwrap().is_none() && !is_measuring() {
            std::thread::yield_now();
        }
        // It may have exited already; then there is another attempt.
        let mut kill = Command::new("kill");
        // Not SIGINT: a shell that runs the tests in the background makes them ignore it.
        kill.args(["-TERM", &pid.to_string()]).stderr(Stdio::null());
        kill.status().unwrap();
        let status = child.wait().unwrap();
        if !status.success() {
            assert_eq!(status.signal(), Some(15));
            assert_eq!(names(folder.path()), [""; 0]);
            return;
        }
    }
    panic!("it always ended before it was interrupted");
}

#[test]
fn given_levels_replace_those_of_the_machine_and_are_shown() {
    let usual = plan_json(&["--topology", MACHINE]);
    assert_eq!(
        usual["distances"].to_string(),
        r#"{"cpu":1,"l1":4,"l2":10,"l3":50,"numa":100,"package":200,"machine":200}"#
    );
    let given = plan_json(&["--topology", MACHINE, "--distances", "l3=60,machine=300"]);
    assert_eq!(
        given["distances"].to_string(),
        r#"{"cpu":1,"l1":4,"l2":10,"l3":60,"numa":100,"package":200,"machine":300}"#
    );
    assert!(given["objective"].as_i64() > usual["objective"].as_i64());
    let text = plan(&["--topology", MACHINE, "--distances", "l3=60,machine=300"]).out;
    let line = "distances  l3 60 (default 50), machine 300 (default 200): from --distances\n";
    assert!(text.contains(line), "{text}");

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.yaml");
    let spec = "apiVersion: albacore.dev/v1beta1\nkind: InferenceDeployment\nmetadata: {name: a}\n\
                spec: {workers: 2, threads: 2, mode: Scatter, models: [{name: m, uri: 'pvc://c/m.ubj'}]}\n";
    std::fs::write(&file, spec).unwrap();
    let joint = ["plan", "-f", file.to_str().unwrap(), "--topology", MACHINE];
    let joint = [&joint[..], &["--distances", "l3=60,machine=300"]].concat();
    let text = albacore(&joint).out;
    assert!(text.contains(line), "{text}");
    let joint = albacore(&[&joint[..], &["--output", "json"]].concat()).out;
    let joint: Value = serde_json::from_str(&joint).unwrap();
    assert_eq!(joint["distances"], given["distances"]);
    assert_eq!(joint["objective"], given["objective"]);

    let asks = spec.replace("models:", "placement: {distances: {l3: 70}}, models:");
    std::fs::write(&file, &asks).unwrap();
    let a = ["plan", "-f", file.to_str().unwrap(), "--topology", MACHINE];
    let text = albacore(&a).out;
    let line = "distances  l3 70 (default 50): from spec.placement.distances\n";
    assert!(text.contains(line), "{text}");
    let text = albacore(&[&a[..], &["--distances", "l3=60"]].concat()).out;
    assert!(
        text.contains("l3 60 (default 50): from --distances"),
        "{text}"
    );
    let other = folder.path().join("b.yaml");
    std::fs::write(&other, spec.replace("name: a", "name: b")).unwrap();
    let text = albacore(&[&a[..], &["-f", other.to_str().unwrap()]].concat()).out;
    let line = "distances  the defaults: spec.placement.distances is not used";
    assert!(text.contains(line), "{text}");
}

#[test]
fn the_text_says_whether_the_nodes_of_a_machine_state_distances() {
    let one = plan(&["--topology", "pack:1 l3:2 core:2 pu:1"]).out;
    assert!(!one.contains("distances"), "{one}");
    let two = plan(&["--topology", MACHINE]).out;
    assert!(
        two.contains("distances  the defaults: the machine does not report"),
        "{two}"
    );
    let folder = tempfile::tempdir().unwrap();
    let copy = Command::new("cp")
        .arg("-r")
        .arg(data("sysfs/server_2_packages_smt"))
        .arg(folder.path().join("system"))
        .status();
    assert!(copy.unwrap().success());
    let system = folder.path().join("system");
    for (node, row) in [("node0", "10 32"), ("node1", "32 10")] {
        std::fs::write(system.join("node").join(node).join("distance"), row).unwrap();
    }
    let stated = plan(&["--topology", system.to_str().unwrap()]).out;
    let line =
        "distances  machine 320 (default 200): from the distances of the machine's NUMA nodes\n";
    assert!(stated.contains(line), "{stated}");
}

#[test]
fn wrong_distances_are_refused_with_what_to_do() {
    let machine = parse_synthetic(MACHINE).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wrong.json");
    let path = file.to_str().unwrap();
    let right = json!({
        "topology": machine.hash_hex(),
        "distances": {"cpu": 1, "l1": 4, "l2": 10, "l3": 50, "numa": 90, "package": 200, "machine": 250},
        "matrix": {"cpus": [0, 1], "cycles": [[null, 4], [4, null]]},
    });
    let options = ["--topology", MACHINE, "--distances", path];
    std::fs::write(&file, right.to_string()).unwrap();
    assert_eq!(plan_json(&options)["distances"]["machine"], 250);
    for (field, value, words) in [
        ("/distances/l3", json!(-5), &["distances.l3", "-5"][..]),
        ("/distances/l3", json!(95), &["numa is 90", "l3 is 95"]),
        (
            "/distances/machine",
            json!(2_000_000),
            &["2000000", "scale"],
        ),
        ("/topology", json!("00ff"), &["00ff", "measure again"]),
        (
            "/matrix/cycles/0/1",
            json!(9),
            &["asymmetric", "0 and 1", "9"],
        ),
        (
            "/matrix/cycles/0",
            json!([4]),
            &["matrix.cycles", "2 rows of 2"],
        ),
        ("/matrix/cpus/1", json!(0), &["matrix.cpus", "cpu 0 twice"]),
        ("/distances", json!(7), &["distances", "--measure --write"]),
    ] {
        let mut wrong = right.clone();
        *wrong.pointer_mut(field).unwrap() = value;
        std::fs::write(&file, wrong.to_string()).unwrap();
        assert_refused(&plan(&options), 64, &[&[path][..], words].concat());
    }
    std::fs::write(&file, "l3: 60").unwrap();
    assert_refused(&plan(&options), 64, &[path, "--measure --write"]);
    for (value, words) in [
        (
            "/no/such/file",
            &["/no/such/file", "cannot be read", "l3=60"][..],
        ),
        ("l4=3", &["l4=3", "LEVEL=CYCLES"]),
        ("l3=-1", &["l3=-1", "LEVEL=CYCLES"]),
        ("l3=60,machine=50", &["machine is 50", "l3 is 60"]),
    ] {
        let ran = plan(&["--topology", MACHINE, "--distances", value]);
        assert_refused(&ran, 64, &[&["--distances"][..], words].concat());
    }
}
