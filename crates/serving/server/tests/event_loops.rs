//! A server with two event loops: both serve, are named and measured; a third needs another CPU.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod running;

use std::process::Command;
use std::time::{Duration, Instant};

use running::{PATIENCE, Running};

const BODY: &str = r#"{"inputs":[{"name":"input","shape":[1,29],"datatype":"FP32","data":
    [0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28]}]}"#;

/// CPU times of the threads of a process whose names have this prefix, in clock ticks.
fn cpu_ticks(pid: u32, prefix: &str) -> Vec<(String, u64)> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let of_task = |task: std::io::Result<std::fs::DirEntry>| {
        let stat = std::fs::read_to_string(task.unwrap().path().join("stat")).ok()?;
        let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let ticks = fields[11].parse::<u64>().ok()? + fields[12].parse::<u64>().ok()?;
        name.starts_with(prefix).then(|| (name.to_owned(), ticks))
    };
    let mut threads: Vec<_> = tasks.filter_map(of_task).collect();
    threads.sort();
    threads
}

#[test]
fn connections_are_divided_between_the_event_loops_and_both_are_measured() {
    let server = Running::start(
        &[("small", "main_small_d6.ubj")],
        &["--front-threads", "2", "--workers", "2"],
    );
    let names = |threads: &[(String, u64)]| -> Vec<String> {
        threads.iter().map(|(name, _)| name.clone()).collect()
    };
    let before = cpu_ticks(server.front(), "albf.io");
    assert_eq!(names(&before), ["albf.io0", "albf.io1"]);
    let mut connections: Vec<_> = (0..4).map(|_| server.connect()).collect();
    let start = Instant::now();
    let is_busy = |metrics: &str, thread: usize| {
        let name = format!("albacore_front_busy_ratio{{thread=\"{thread}\"}} ");
        let value = metrics.lines().find_map(|line| line.strip_prefix(&name));
        value.is_some_and(|value| value.parse::<f64>().unwrap() > 0.0)
    };
    // Work until both threads have used a tick of CPU time that is visible in the metrics.
    loop {
        for connection in &mut connections {
            let reply = connection.call("POST", "/v2/models/small/infer", &[], BODY.as_bytes());
            assert_eq!(reply.status, 200, "{reply:?}");
        }
        let after = cpu_ticks(server.front(), "albf.io");
        let both = before
            .iter()
            .zip(&after)
            .all(|(before, after)| before.1 < after.1);
        let metrics = server.get("/metrics");
        let metrics = String::from_utf8(metrics.body).unwrap();
        if both && is_busy(&metrics, 0) && is_busy(&metrics, 1) {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "{before:?} {after:?} {metrics}");
        std::thread::sleep(Duration::from_millis(1));
    }
    let state: serde_json::Value = {
        let reply = server.get("/albacore/v1/state");
        serde_json::from_slice(&reply.body).unwrap()
    };
    assert_eq!(state["front"]["threads"], 2, "{state}");
    assert!(state["front"]["busy"].as_f64().unwrap() > 0.0, "{state}");
    // The counters of both loops are summed.
    let answered = state["requests"]["good"].as_u64().unwrap();
    let metrics = String::from_utf8(server.get("/metrics").body).unwrap();
    let counted = metrics.lines().find_map(|line| {
        line.strip_prefix(
            "albacore_requests_total{model=\"small\",kind=\"value\",protocol=\"http\",code=\"200\"} ",
        )
    });
    assert_eq!(counted.unwrap().parse::<u64>().unwrap(), answered);
}

#[test]
fn more_front_threads_than_cpus_are_refused_with_exit_code_64() {
    for threads in ["0", "100000"] {
        let run = Command::new(env!("CARGO_BIN_EXE_albacore-server"))
            .args(["--model", "m=nowhere.ubj", "--front-threads", threads])
            .output()
            .unwrap();
        assert_eq!(run.status.code(), Some(64));
        let error = String::from_utf8(run.stderr).unwrap();
        let begin = format!("albacore-server: --front-threads {threads} is not between 1 and ");
        assert!(
            error.starts_with(&begin) && error.lines().count() == 1,
            "{error}"
        );
    }
}
