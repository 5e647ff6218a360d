//! `albacore run` with invalid input: the documented exit code, one clear sentence, and no process
//! left running.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail loudly"
)]

mod deployment;
mod running;

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use deployment::{Folder, root};
use running::{ANY_PORTS, Running, refused};

/// Asserts that a valid file fails with one sentence on standard error that starts with `speaker`
/// and contains these words.
fn assert_refused(file: &Path, args: &[&str], speaker: &str, words: &[&str]) {
    assert_ends(1, file, args, speaker, words);
}

/// Asserts that a file is rejected as invalid with one sentence that contains these words.
fn assert_invalid(file: &Path, words: &[&str]) {
    assert_ends(64, file, &ANY_PORTS, "albacore", words);
}

fn assert_ends(code: i32, file: &Path, args: &[&str], speaker: &str, words: &[&str]) {
    let args = [&["--output", "json"], args].concat();
    let ran = refused(&[], file, &args);
    assert_eq!(ran.code, code, "{ran:#?}");
    assert_eq!(ran.err.lines().count(), 1, "{ran:#?}");
    assert!(ran.err.starts_with(&format!("{speaker}: ")), "{ran:#?}");
    for word in words {
        assert!(ran.err.contains(word), "{word:?} is not in {ran:#?}");
    }
    assert!(ran.left.is_empty(), "{ran:#?}");
}

/// Asserts that the deployment of the example with `old` replaced ends with this code and with
/// these words after the file's name.
fn assert_edit_ends(code: i32, folder: &Folder, old: &str, new: &str, words: &[&str]) {
    let text = deployment::fraud_text();
    assert!(text.contains(old), "{old}");
    let file = folder.write(&text.replace(old, new));
    let name = file.display().to_string();
    let words = [&[name.as_str()], words].concat();
    assert_ends(code, &file, &ANY_PORTS, "albacore", &words);
}

/// Asserts that the server rejects a model file with these bytes, with these words after the
/// model's name and path.
fn assert_model_refused(folder: &Folder, name: &str, bytes: &[u8], words: &[&str]) {
    let path = folder.path().join(name);
    fs::write(&path, bytes).unwrap();
    let text = deployment::fraud_text();
    let model = root().join("examples/fraud.ubj").display().to_string();
    let file = folder.write(&text.replace(&model, &path.display().to_string()));
    let path = path.display().to_string();
    let words = [&["\"fraud\"", path.as_str()], words].concat();
    assert_refused(&file, &ANY_PORTS, "albacore", &words);
}

#[test]
fn a_folder_without_a_model_is_refused() {
    let folder = Folder::new("empty");
    let path = folder.path().join("models");
    fs::create_dir(&path).unwrap();
    let path = path.display().to_string();
    let text = deployment::fraud_text();
    let model = root().join("examples/fraud.ubj").display().to_string();
    let file = folder.write(&text.replace(&model, &path));
    let words = ["\"fraud\"", &path, "has no model file"];
    assert_refused(&file, &ANY_PORTS, "albacore", &words);
}

#[test]
fn invalid_fields_are_named_with_file_line_value_and_remedy() {
    let folder = Folder::new("fields");
    let refuse = |old, new, words: &[&str]| assert_edit_ends(64, &folder, old, new, words);
    let fail = |old, new, words: &[&str]| assert_edit_ends(1, &folder, old, new, words);
    refuse(
        "batching:",
        "batchng:",
        &["spec.batchng", "did you mean \"batching\"?"],
    );
    let unit = &[
        "spec.models[0].slo.latency is \"25\"",
        "write \"25us\", \"25ms\"",
    ];
    refuse("latency: 25ms", "latency: \"25\"", unit);
    refuse(
        "workers: 2",
        "workers: 9999",
        &["spec.workers is 9999", "from 1 to"],
    );
    refuse(
        "workers: 2\n  threads: 2",
        "workers: 200\n  threads: 200",
        &["40000", "at most 2048"],
    );
    refuse(
        "file:///",
        "pvc://",
        &["spec.models[0].uri", "which needs a cluster"],
    );
    let model = "spec.models[0].uri: ";
    fail(
        "fraud.ubj",
        "none.ubj",
        &[model, "none.ubj cannot be opened", "give the path"],
    );
    let file = root().join("examples/fraud.ubj").display().to_string();
    fail(
        &file,
        "/dev/null",
        &[model, "is not a file", "give the path"],
    );
}

#[test]
fn parameters_of_models_and_of_the_front_end_that_are_wrong_are_bad_usage() {
    let folder = Folder::new("parameters");
    let slo = "slo: {latency: 25ms, percentile: 99}";
    let refuse = |more: &str, words: &[&str]| {
        let new = format!("{slo}\n    {more}");
        assert_edit_ends(64, &folder, slo, &new, words);
    };
    let weight = "spec.models[0].weight is";
    refuse("weight: 0", &[weight, " 0", "from 1 to 10000"]);
    refuse("weight: 10001", &[weight, " 10001", "from 1 to 10000"]);
    let batching = "spec.models[0].batching";
    refuse(
        "batching: {prefer: Neither}",
        &[batching, ".prefer is \"Neither\"", "IdleWorkers"],
    );
    refuse(
        "batching: {policy: Eager, window: 5ms}",
        &[
            batching,
            ".window is 5ms",
            "policy Eager defers none; remove it",
        ],
    );
    refuse(
        "batching: {policy: Timeout, maxDelay: 1ms, window: 5ms}",
        &[batching, ".window is 5ms", "set maxDelay instead"],
    );
    refuse(
        "threads: 3",
        &["spec.models[0].threads is 3", "from 1 to spec.threads, 2"],
    );
    let front = |threads: &str, words: &[&str]| {
        let new = format!("  front: {{threads: {threads}}}\n  batching:");
        assert_edit_ends(64, &folder, "  batching:", &new, words);
    };
    front("0", &["spec.front.threads is 0", "from 1 to 256"]);
    let text = fs::read_to_string(folder.fraud("  front: {threads: 2}\n")).unwrap();
    let ran = refused(&[], &folder.write(&text), &["--cpus", "0"]);
    let words = "spec.front.threads is 2, more than the 1 cpu that can be used here";
    assert!(ran.code == 64 && ran.err.contains(words), "{ran:#?}");
    front(
        "256",
        &[
            "spec.front.threads is 256, more than the",
            "cpus that can be used here",
        ],
    );
}

#[test]
fn a_file_that_is_missing_empty_or_no_yaml_is_named() {
    let folder = Folder::new("files");
    let missing = folder.path().join("none.yaml");
    let words = ["none.yaml cannot be read", "give -f the path"];
    assert_refused(&missing, &ANY_PORTS, "albacore", &words);
    let empty = folder.write("");
    assert_invalid(&empty, &["deployment.yaml: is empty; it must hold"]);
    let broken = folder.write("spec: [");
    assert_invalid(&broken, &["deployment.yaml"]);
    assert_refused(folder.path(), &ANY_PORTS, "albacore", &["cannot be read"]);
}

#[test]
fn models_that_cannot_be_served_are_refused_by_the_server_in_its_own_words() {
    let folder = Folder::new("models");
    let whole = fs::read(root().join("examples/fraud.ubj")).unwrap();
    let gblinear = fs::read(root().join("tests/data/models/xgb_gblinear.ubj")).unwrap();
    let refuse = |name, bytes: &[u8], words: &[&str]| {
        assert_model_refused(&folder, name, bytes, words);
    };
    refuse(
        "half.ubj",
        &whole[..whole.len() / 2],
        &["damaged model", "the file ends"],
    );
    refuse(
        "text.ubj",
        b"hello, world\n",
        &["not a model", "save_model"],
    );
    refuse(
        "picture.png",
        b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
        &["not a model", "save_model"],
    );
    refuse("empty.ubj", b"", &["not a model", "save_model"]);
    refuse(
        "model.pkl",
        b"\x80\x04\x95\x10\0\0\0\0\0\0\0\x8c\x0fxgboost.sklearn\x94",
        &["model.pkl", "a Python pickle", "save_model"],
    );
    refuse("linear.ubj", &gblinear, &["not supported", "gblinear"]);
}

#[test]
fn a_port_in_use_is_named_with_its_flag() {
    let folder = Folder::new("ports");
    let file = folder.fraud("");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    for (flag, other) in [("--http", "--grpc"), ("--grpc", "--http")] {
        let args = [flag, &taken, other, "127.0.0.1:0"];
        let words = [flag, &taken, "in use", "choose another"];
        assert_refused(&file, &args, "albacore-server", &words);
    }
}

#[test]
fn a_custom_server_that_cannot_run_is_reported_with_its_error() {
    let folder = Folder::new("own");
    let file = folder.custom_server(&["/nowhere/gunicorn"], &[]);
    let words = [
        "deployment.yaml",
        "/nowhere/gunicorn",
        "cannot be started",
        "give a program",
    ];
    assert_refused(&file, &[], "albacore", &words);
    let file = folder.custom_server(&["sh", "-c", "exit 3"], &[]);
    let words = ["container `server` ended", "exit status: 3"];
    assert_refused(&file, &[], "albacore", &words);
    let file = folder.custom_server(&["sh", "-c", "sleep 1000 & exit 1"], &[]);
    assert_refused(&file, &[], "albacore", &["exit status: 1"]);
}

#[test]
fn bad_flags_are_bad_usage() {
    let folder = Folder::new("usage");
    let file = folder.fraud("");
    for (args, word) in [
        (&["--htp", "127.0.0.1:0"][..], "--http"),
        (&["--http", "localhost"], "localhost"),
        (&["--output", "svg"], "svg"),
        (&["--cpus", "0-"], "such as 0-3,8"),
        (
            &["--cpus", ""],
            "--cpus is empty: give at least one of the cpus",
        ),
        (&["--cpus", "0,8191"], "--cpus 0,8191: cpus 8191 are "),
        (&["--cpus", "0,8191"], "; it may use "),
        (&["more"], "more"),
    ] {
        let ran = refused(&[], &file, args);
        assert_eq!(ran.code, 64, "{ran:#?}");
        assert!(ran.err.contains(word) && ran.out.is_empty(), "{ran:#?}");
        assert!(ran.left.is_empty(), "{ran:#?}");
    }
}

/// Switches to the user nobody without capabilities.
const AS_NOBODY: [&str; 7] = [
    "setpriv",
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
    "--inh-caps=-all",
    "--bounding-set=-all",
    "--no-new-privs",
];

#[test]
fn a_plain_user_may_place_a_server_of_their_own() {
    let folder = Folder::new("plain");
    folder.open_to_all();
    let args = [&["--output", "json"], &ANY_PORTS[..]].concat();
    let mut run = Running::start_by(&AS_NOBODY, &folder.fraud(""), &args);
    run.placed("tuna").assert_kernel_agrees();
    run.signal("TERM");
    assert_eq!(run.end().code(), Some(0), "{:#?}", run.events);
    assert!(run.processes().is_empty(), "{:?}", run.processes());
}

#[test]
fn missing_rights_to_pin_are_reported_with_a_remedy() {
    let folder = Folder::new("forbidden");
    folder.open_to_all();
    // A server that becomes root by its own setuid program: nobody may neither pin nor kill it.
    let become_root = folder.path().join("become-root");
    fs::copy("/usr/bin/setpriv", &become_root).unwrap();
    fs::set_permissions(&become_root, fs::Permissions::from_mode(0o4755)).unwrap();
    let prefork = root()
        .join("tests/servers/prefork.py")
        .display()
        .to_string();
    let program = become_root.display().to_string();
    let command = [
        &program,
        "--reuid=0",
        "--regid=0",
        "--clear-groups",
        "python3",
        &prefork,
    ];
    let file = folder.custom_server(&command, &[]);
    let ran = refused(&AS_NOBODY[..5], &file, &["--output", "json"]);
    assert_eq!(ran.code, 1, "{ran:#?}");
    assert_eq!(ran.err.lines().count(), 1, "{ran:#?}");
    for word in [
        "no permission to pin thread",
        "CAP_SYS_NICE",
        "cannot be killed",
    ] {
        assert!(ran.err.contains(word), "{word:?} is not in {ran:#?}");
    }
    assert!(!ran.out.contains("\"pinned\""), "{ran:#?}");
}
