//! `albacore-params` between a fake agent and a real server.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use albacore_settings::agent_stream::{LINE_TERMINATOR, NodeSnapshot, Parameters, ServingPod};
use albacore_settings::{BatchingParams, Policy};

use crate::running::zoo;
use crate::{start, state, until};

struct Params(Child);

impl Params {
    fn start(folder: &Path) -> Self {
        let server = Path::new(env!("CARGO_BIN_EXE_albacore-server"));
        let program = server.with_file_name("albacore-params");
        let shown = program.display();
        assert!(
            program.exists(),
            "{shown} is missing: cargo build -p albacore-params"
        );
        let uid = Command::new("id").arg("-u").output().unwrap().stdout;
        let child = Command::new(program)
            .args(["--log-filter", "warn", "--feed"])
            .arg(folder.join("feed"))
            .arg("--unix")
            .arg(socket(folder))
            .args(["--uid", String::from_utf8(uid).unwrap().trim()])
            .spawn()
            .unwrap();
        Self(child)
    }
}

impl Drop for Params {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn socket(folder: &Path) -> PathBuf {
    folder.join("params.sock")
}

struct Agent(File);

impl Agent {
    fn start(folder: &Path) -> Self {
        let path = folder.join("feed");
        let mut pipe = OpenOptions::new().write(true).open(path).unwrap();
        pipe.write_all(LINE_TERMINATOR).unwrap();
        Self(pipe)
    }

    fn send(&mut self, rows: u32) {
        let pod = ServingPod {
            address: None,
            namespace: "local".to_owned(),
            name: "fraud".to_owned(),
            uid: "1".to_owned(),
            deployment: "fraud".to_owned(),
            generation: u64::from(rows),
            parameters: Parameters {
                batching: BatchingParams {
                    policy: Policy::Eager,
                    batch_rows_max: rows as usize,
                    window: None,
                    queue_rows_max: 65_536,
                },
                slo: Vec::new(),
                models: Vec::new(),
                generation: u64::from(rows),
                report: None,
            },
        };
        let snapshot = NodeSnapshot {
            node: "n".to_owned(),
            sequence: u64::from(rows),
            pods: vec![pod],
            metrics: String::new(),
        };
        let line = snapshot.encode().unwrap();
        self.0.write_all(line.as_bytes()).unwrap();
    }
}

#[test]
fn a_change_reaches_a_running_server_without_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let feed = folder.path().join("feed");
    assert!(
        Command::new("mkfifo")
            .arg(&feed)
            .status()
            .unwrap()
            .success()
    );
    let model = format!("m={}", zoo("xgb_exact.ubj").display());
    let endpoint = format!("unix:{}", socket(folder.path()).display());
    let server = start(&["--model", &model], &endpoint);
    assert_eq!(state(&server)["params"]["connected"], false);
    let workers = server.workers.clone();
    let params = Params::start(folder.path());
    let mut agent = Agent::start(folder.path());
    agent.send(1);
    let in_force = |rows: u32| {
        until(&server, "in force", |state| {
            state["batching"]["max_rows"] == rows
        });
    };
    in_force(1);
    let mut times: Vec<Duration> = Vec::new();
    for rows in 2..=60 {
        let sent = Instant::now();
        agent.send(rows);
        in_force(rows);
        times.push(sent.elapsed());
        // Longer than the minimum interval between two messages, so that it is not measured.
        std::thread::sleep(Duration::from_millis(60));
    }
    times.sort();
    let (median, worst) = (times[times.len() / 2], times[times.len() - 1]);
    eprintln!("line of the feed to rules in force: median {median:?}, worst {worst:?}");
    for rows in 100..1100 {
        agent.send(rows);
    }
    in_force(1099);
    // After a kill the last parameters stay in force; the next process sends the current ones.
    drop(params);
    until(&server, "lost", |state| {
        state["params"]["connected"] == false
    });
    assert_eq!(state(&server)["batching"]["max_rows"], 1099);
    let again = Instant::now();
    let _params = Params::start(folder.path());
    drop(agent);
    let mut agent = Agent::start(folder.path());
    agent.send(2000);
    in_force(2000);
    eprintln!("start of params to rules in force: {:?}", again.elapsed());
    for pid in workers {
        assert!(
            Path::new(&format!("/proc/{pid}")).exists(),
            "no worker was restarted"
        );
    }
}
