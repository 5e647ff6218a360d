//! The processes of a server: names, maps, signals, failed starts.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::running::Running;
use super::*;

fn server() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_albacore-server"));
    command.args(["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Exit code, and content of standard error.
fn failure(arguments: &[&str]) -> (Option<i32>, String) {
    let output = server().args(arguments).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(
        !stdout.contains("worker_started"),
        "{arguments:?}: {stdout}"
    );
    (output.status.code(), text)
}

fn children(server: &Running) -> Vec<i32> {
    let pids = server.live_workers().into_iter();
    pids.map(|pid| i32::try_from(pid).unwrap()).collect()
}

fn names(pid: i32) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let name = |path: PathBuf| std::fs::read_to_string(path.join("comm")).unwrap();
    let mut names: Vec<_> = tasks
        .map(|task| name(task.unwrap().path()).trim_end().to_owned())
        .collect();
    names.sort_unstable();
    names
}

/// `(inode, permissions)` of the mappings of memory files with this name.
fn mappings(pid: i32, name: &str) -> Vec<(String, String)> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let lines = maps.lines().filter(|line| line.contains(name));
    lines
        .map(|line| {
            let fields: Vec<_> = line.split_whitespace().collect();
            (fields[4].to_owned(), fields[1].to_owned())
        })
        .collect()
}

#[test]
fn thread_names_contain_worker_and_rank_and_the_model_is_one_read_only_copy() {
    let server = Running::start(
        &[("m", "main_small_d6.ubj")],
        &["--workers", "3", "--threads", "2"],
    );
    let pids = children(&server);
    let all: Vec<_> = pids.iter().map(|&pid| names(pid)).collect();
    assert_eq!(
        all,
        [
            ["albw0.0", "albw0.1"],
            ["albw1.0", "albw1.1"],
            ["albw2.0", "albw2.1"]
        ]
    );
    let main = format!("/proc/{}/comm", server.pid());
    assert_eq!(std::fs::read_to_string(main).unwrap(), "albacore-server\n");
    let front = names(i32::try_from(server.front()).unwrap());
    assert!(front.iter().all(|name| name.starts_with("albf.")));
    let models: Vec<_> = pids
        .iter()
        .map(|&pid| mappings(pid, "albacore-model"))
        .collect();
    assert!(
        models
            .iter()
            .all(|maps| *maps == models[0] && maps.len() == 1),
        "{models:?}"
    );
    assert_eq!(models[0][0].1, "r--s");
    for pid in pids {
        assert!(
            mappings(pid, "albacore-rows")
                .iter()
                .all(|(_, how)| how == "r--s")
        );
        assert_eq!(
            mappings(pid, "albacore-results").len(),
            2,
            "one for each thread"
        );
    }
    assert_eq!(server.stop("-TERM"), Some(0));
}

#[test]
fn workers_ignore_signals_of_the_group_and_die_with_the_supervisor() {
    let server = Running::start(&[("m", "main_small_d6.ubj")], &["--workers", "2"]);
    let pids = children(&server);
    for &pid in &pids {
        signal("-TERM", pid);
        signal("-INT", pid);
    }
    assert_eq!(server.get("/v2/health/ready").status, 200);
    assert_eq!(children(&server), pids);
    let fronts = server.processes("front").into_iter();
    let fronts = fronts.map(|(pid, _)| i32::try_from(pid).unwrap());
    let pids: Vec<i32> = pids.into_iter().chain(fronts).collect();
    assert_eq!(server.stop("-KILL"), None);
    let start = Instant::now();
    while pids.iter().any(|&pid| is_alive(pid)) {
        assert!(start.elapsed() < PATIENCE, "they outlive the supervisor");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn signals_drain_and_a_dead_worker_is_reported_and_replaced() {
    for how in ["-TERM", "-INT"] {
        let mut server = Running::start(&[("m", "main_small_d6.ubj")], &["--workers", "2"]);
        let pids = children(&server);
        signal("-KILL", pids[0]);
        let died = server.event("worker_died");
        assert_eq!(
            (died["pid"].as_i64(), died["cause"].as_str()),
            (Some(i64::from(pids[0])), Some("signal 9"))
        );
        assert_eq!(server.event("worker_started")["worker"], died["worker"]);
        let pids = children(&server);
        assert_eq!(server.stop(how), Some(0));
        assert!(pids.iter().all(|&pid| !is_alive(pid)));
    }
}

#[test]
fn startup_errors_are_one_sentence_with_file_and_cause() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &[u8]| {
        let path = directory.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.display().to_string()
    };
    let whole = std::fs::read(zoo("main_small_d6.ubj")).unwrap();
    let cases = [
        ("/no/such/file".to_owned(), "cannot be read"),
        (file("half.ubj", &whole[..whole.len() / 2]), "damaged model"),
        (file("text.ubj", b"hello"), "not a model"),
        (file("empty.ubj", b""), "not a model"),
        (
            directory.path().display().to_string(),
            "has several model files, empty.ubj and half.ubj among them",
        ),
    ];
    for (path, words) in cases {
        let (code, text) = failure(&["--model", &format!("m={path}")]);
        assert_eq!(code, Some(1), "{path}: {text}");
        assert!(
            text.contains(words) && text.contains(&path),
            "{path}: {text}"
        );
        assert_eq!(text.lines().count(), 1, "{text}");
    }
}

#[test]
fn a_port_in_use_is_named_and_bad_usage_has_its_code() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let model = format!("m={}", zoo("main_small_d6.ubj").display());
    for argument in ["--http", "--grpc"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_albacore-server"));
        command.args([
            "--http",
            "127.0.0.1:0",
            "--model",
            &model,
            "--grpc",
            "127.0.0.1:0",
        ]);
        let mut arguments: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
        let at = arguments.iter().position(|text| text == argument).unwrap();
        arguments[at + 1] = address.clone().into();
        let output = Command::new(command.get_program())
            .args(arguments)
            .output()
            .unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains(&format!("{argument} {address}")), "{text}");
    }
    for arguments in [
        &["--workers", "0"][..],
        &["--model", &model, "--policy", "timeout"],
        &[],
    ] {
        let (code, text) = failure(arguments);
        assert_eq!(code, Some(64), "{arguments:?}: {text}");
    }
}

#[test]
fn a_signal_before_the_workers_are_ready_ends_the_server_cleanly() {
    let model = format!("m={}", zoo("main_small_d6.ubj").display());
    let mut child = server()
        .args(["--model", &model, "--workers", "8"])
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains("listening"));
    let pid = i32::try_from(child.id()).unwrap();
    signal("-TERM", pid);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    assert!(rest.last().unwrap().contains("stopped"), "{rest:?}");
}
