//! Latency reports from a server to the agent, with the real programs: server, albacore-params and
//! both pipes.
#![allow(clippy::unwrap_used, clippy::panic)] // tests fail by panicking

mod rig;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use albacore_testbed::product;
use rig::{Rig, SetOnDrop, wait};
use serde_json::{Value, json};

/// Address of the pod and of its server's connection to albacore-params.
const ADDRESS: &str = "127.0.0.1";

const MODEL: &str = "lgb_binary";

/// An albacore-params process that is killed on drop.
struct Params {
    child: Child,
    grpc: String,
}

impl Params {
    fn start(rig: &Rig) -> Self {
        let mut child = Command::new(product("albacore-params").unwrap())
            .args(["--log", "json", "--grpc", "127.0.0.1:0", "--feed"])
            .arg(rig.folder.path().join("feed"))
            .arg("--reports")
            .arg(rig.folder.path().join("reports"))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let grpc = lines.find_map(|line| {
            let line: Value = serde_json::from_str(&line.unwrap()).ok()?;
            line["grpc"].as_str().map(str::to_owned)
        });
        std::thread::spawn(move || lines.for_each(drop));
        let grpc = grpc.unwrap();
        Self { child, grpc }
    }
}

impl Drop for Params {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Requests predictions one after another until `stop` is set.
fn load(to: SocketAddr, features: usize, stop: &AtomicBool) {
    let row = vec!["0.5"; features].join(",");
    let body = format!(
        r#"{{"inputs":[{{"name":"input","shape":[1,{features}],"datatype":"FP32","data":[{row}]}}]}}"#
    );
    let request = format!(
        "POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    while !stop.load(Ordering::Relaxed) {
        let Ok(stream) = TcpStream::connect(to) else {
            std::thread::sleep(std::time::Duration::from_millis(50));
            continue;
        };
        let mut answers = BufReader::new(stream.try_clone().unwrap());
        let mut stream = stream;
        while !stop.load(Ordering::Relaxed) && stream.write_all(request.as_bytes()).is_ok() {
            let (mut line, mut length) = (String::new(), 0);
            while answers.read_line(&mut line).is_ok_and(|count| count > 2) {
                if let Some(text) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = text.trim().parse().unwrap();
                }
                line.clear();
            }
            if length == 0 || answers.read_exact(&mut vec![0; length]).is_err() {
                break;
            }
        }
    }
}

/// Returns a free port.
fn free_port() -> SocketAddr {
    let listener = std::net::TcpListener::bind((ADDRESS, 0)).unwrap();
    listener.local_addr().unwrap()
}

#[test]
fn reports_of_a_server_advance_its_trial() {
    let rig = Rig::start();
    let params = Params::start(&rig);
    let trial = json!({"placement": {"trial": {"window": "1s", "windows": 8}}});
    rig.deploy("fraud", 2, 1, &trial);
    let mut pod = rig.pod("fraud-1", "fraud", &["2", "1", "named"]);
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/data/models");
    let meta = std::fs::read_to_string(data.join(format!("{MODEL}.meta.json"))).unwrap();
    let meta: Value = serde_json::from_str(&meta).unwrap();
    let features = meta["num_feature"].as_u64().or(meta["features"].as_u64());
    let features = usize::try_from(features.unwrap()).unwrap();
    let (http, grpc) = (free_port(), free_port().to_string());
    let model = format!("m={}", data.join(format!("{MODEL}.txt")).display());
    let (listen, place) = (http.to_string(), format!("http://{}", params.grpc));
    let arguments = [
        "--workers",
        "2",
        "--threads",
        "1",
        "--http",
        &listen,
        "--grpc",
        &grpc,
        "--model",
        &model,
        "--params",
        &place,
    ];
    rig.run_program(
        &mut pod,
        &product("albacore-server").unwrap(),
        &arguments,
        ADDRESS,
    );
    let path = |name: &str| rig.folder.path().join(name).display().to_string();
    let (feed, reports) = (path("feed"), path("reports"));
    let agent = rig.agent(&["--feed", &feed, "--reports", &reports]);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| load(http, features, &stop));
        let _stop = SetOnDrop(&stop);
        let mut seen = Vec::new();
        wait("rounds are counted", || {
            let entry = rig.entry(&pod);
            let reason = entry["reason"].as_str().unwrap_or_default().to_owned();
            let is_later = reason.contains("round ") && !reason.contains("round 1 of");
            seen.push(reason);
            is_later
        });
        println!("{seen:?}");
    });
    assert!(agent.stop().success());
}
