//! A running `albacore-params`, the agent's end of its pipe, and clients that act as pods.

#![allow(dead_code)] // not every test needs every part

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use albacore_proto::params::params_client::ParamsClient;
use albacore_proto::params::{Parameters, WatchRequest};
use albacore_settings::agent_stream::{
    LINE_TERMINATOR, ModelParameters, NodeSnapshot, Parameters as Fed, ServingPod,
};
use albacore_settings::{BatchingParams, Policy};
use serde_json::Value;
use tonic::transport::{Channel, Endpoint};
use tonic::{Status, Streaming};

/// Far longer than any test takes; only ends tests that hang.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Params {
    pub(crate) child: Child,
    pub(crate) grpc: Option<SocketAddr>,
    pub(crate) listen: SocketAddr,
}

impl Params {
    /// Starts it with the pipe `feed` and the listeners in `more`.
    pub(crate) fn start(feed: &Path, more: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_albacore-params"))
            .args(["--listen", "127.0.0.1:0", "--log", "json", "--feed"])
            .arg(feed)
            .args(more)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let said = lines.find_map(|line| {
            let line: Value = serde_json::from_str(&line.unwrap()).ok()?;
            (line["message"] == "listening").then_some(line)
        });
        std::thread::spawn(move || lines.for_each(drop));
        let said = said.expect("it says where it listens");
        let address = |name: &str| said[name].as_str().map(|text| text.parse().unwrap());
        Self {
            child,
            grpc: address("grpc"),
            listen: address("listen").unwrap(),
        }
    }

    pub(crate) fn on_tcp(feed: &Path) -> Self {
        Self::start(feed, &["--grpc", "127.0.0.1:0"])
    }

    /// Status and body of the response to a GET request.
    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.listen).unwrap();
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        (head[9..12].parse().unwrap(), body.to_owned())
    }

    /// The value of a metric, identified by a prefix of its line.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let (_, text) = self.get("/metrics");
        let value = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.map_or(0.0, |value| value.parse().unwrap())
    }

    pub(crate) fn wait_for(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !is_so(self) {
            assert!(
                start.elapsed() < PATIENCE,
                "{what}\n{}",
                self.get("/metrics").1
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Sends SIGTERM; returns whether it exited with 0.
    pub(crate) fn terminate(&mut self) -> bool {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &id]).status().unwrap();
        assert!(sent.success());
        self.child.wait().unwrap().success()
    }

    /// A client that connects from `from`.
    pub(crate) async fn client(&self, from: &str) -> ParamsClient<Channel> {
        self.client_of(self.grpc.unwrap(), from).await
    }

    pub(crate) async fn client_of(&self, to: SocketAddr, from: &str) -> ParamsClient<Channel> {
        let endpoint = Endpoint::from_shared(format!("http://{to}")).unwrap();
        let from: IpAddr = from.parse().unwrap();
        let channel = endpoint.local_address(Some(from)).connect().await.unwrap();
        ParamsClient::new(channel)
    }

    /// Opens the stream of the pod at `from`.
    pub(crate) async fn watch(&self, from: &str) -> Result<Streaming<Parameters>, Status> {
        let mut client = self.client(from).await;
        let reply = client.watch(WatchRequest {}).await?;
        Ok(reply.into_inner())
    }
}

impl Drop for Params {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A directory that contains a pipe.
pub(crate) fn pipe() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("feed");
    make_pipe(&path);
    (folder, path)
}

pub(crate) fn make_pipe(path: &Path) {
    let made = Command::new("mkfifo")
        .args(["-m", "0644"])
        .arg(path)
        .status()
        .unwrap();
    assert!(made.success());
}

/// The agent's end of the pipe; opening it blocks until there is a reader.
pub(crate) struct Agent {
    file: File,
    sequence: u64,
}

impl Agent {
    pub(crate) fn start(path: &Path) -> Self {
        let mut file = OpenOptions::new().write(true).open(path).unwrap();
        file.write_all(LINE_TERMINATOR).unwrap();
        Self { file, sequence: 0 }
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.file.write_all(bytes).unwrap();
    }

    pub(crate) fn send_snapshot(&mut self, pods: &[ServingPod]) {
        self.sequence += 1;
        let snapshot = NodeSnapshot {
            node: "n1".to_owned(),
            sequence: self.sequence,
            pods: pods.to_vec(),
            metrics: "# TYPE albacore_agent_pods gauge\nalbacore_agent_pods 3\n".to_owned(),
        };
        self.write(snapshot.encode().unwrap().as_bytes());
    }
}

/// A pod with its address and a batch limit of `rows` rows.
pub(crate) fn pod(name: &str, address: Option<&str>, rows: u32) -> ServingPod {
    ServingPod {
        address: address.map(|address| address.parse().unwrap()),
        namespace: "shop".to_owned(),
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        deployment: "fraud".to_owned(),
        generation: 1,
        parameters: Fed {
            batching: BatchingParams {
                policy: Policy::Timeout {
                    delay: Duration::from_millis(2),
                },
                batch_rows_max: rows as usize,
                window: None,
                queue_rows_max: 65_536,
            },
            slo: Vec::new(),
            models: vec![ModelParameters {
                threads: Some(2),
                weight: 300,
                ..ModelParameters::defaults("m".to_owned())
            }],
            generation: u64::from(rows),
            report: None,
        },
    }
}

/// The same pod with latency reports enabled.
pub(crate) fn reporting(name: &str, address: &str) -> ServingPod {
    let mut pod = pod(name, Some(address), 1);
    pod.parameters.report = Some(Duration::from_millis(500));
    pod
}

/// The next message of a stream.
pub(crate) async fn next(stream: &mut Streaming<Parameters>) -> Result<Parameters, Status> {
    let next = tokio::time::timeout(PATIENCE, stream.message());
    let message = next.await.expect("a message or the end");
    message.map(|message| message.expect("the stream goes on"))
}

pub(crate) fn rows(parameters: &Parameters) -> u32 {
    parameters.batching.as_ref().unwrap().max_rows
}
