//! A real `albacore-server` on free loopback ports, and a plain HTTP client.

// Each test binary uses a part of this module, and panics if the server misbehaves.
#![allow(dead_code, clippy::expect_used, clippy::panic, clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Timeout of all waits in tests. The machine may be busy, but not for this long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A running server; killed on drop.
pub(crate) struct Running {
    child: Child,
    events: BufReader<ChildStdout>,
    /// Address of the HTTP port.
    pub(crate) http: SocketAddr,
    /// Address of the gRPC port.
    pub(crate) grpc: SocketAddr,
    /// Process IDs of the first workers.
    pub(crate) workers: Vec<u32>,
}

/// A file of the model zoo.
pub(crate) fn zoo(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../tests/data/models")
        .join(file)
}

impl Running {
    /// Starts a server with these models (name, file of the zoo) and additional arguments; waits
    /// until it is ready.
    pub(crate) fn start(models: &[(&str, &str)], further: &[&str]) -> Self {
        let models = models.iter();
        let models = models
            .flat_map(|(name, file)| ["--model".into(), format!("{name}={}", zoo(file).display())]);
        let arguments: Vec<String> = models
            .chain(further.iter().map(|argument| (*argument).to_owned()))
            .collect();
        let mut server = Self::spawn(&arguments);
        server.wait_until_ready();
        server
    }

    /// Starts a server with these arguments; waits until it listens.
    pub(crate) fn spawn(arguments: &[String]) -> Self {
        Self::spawn_program(Path::new(env!("CARGO_BIN_EXE_albacore-server")), arguments)
    }

    /// Like [`Running::spawn`], with another path of the server binary.
    pub(crate) fn spawn_program(program: &Path, arguments: &[String]) -> Self {
        let mut child = Command::new(program)
            .args(["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let mut events = BufReader::new(child.stdout.take().unwrap());
        let listening = event(&mut events, "listening");
        let address = |name: &str| listening[name].as_str().unwrap().parse().unwrap();
        let (http, grpc) = (address("http"), address("grpc"));
        Self {
            child,
            events,
            http,
            grpc,
            workers: Vec::new(),
        }
    }

    /// Waits until the server is ready.
    pub(crate) fn wait_until_ready(&mut self) {
        loop {
            let event = next_event(&mut self.events).expect("the server gets ready");
            match event["event"].as_str() {
                Some("worker_started") => self.workers.push(event["pid"].as_u64().unwrap() as u32),
                Some("ready") => return,
                _ => {}
            }
        }
    }

    /// Sends a signal to every worker.
    pub(crate) fn signal_workers(&self, signal: &str) {
        for pid in &self.workers {
            assert!(kill(signal, *pid), "worker {pid} is there");
        }
    }

    /// Process ID of the supervisor.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Process ID of the serving front, which is the oldest one.
    pub(crate) fn front(&self) -> u32 {
        let fronts = self.processes("front");
        let number = |line: &Vec<String>| line[3].parse::<u64>().unwrap();
        let oldest = fronts.iter().min_by_key(|(_, line)| number(line));
        oldest.expect("there is a front").0
    }

    /// Process IDs of the current workers.
    pub(crate) fn live_workers(&self) -> Vec<u32> {
        let workers = self.processes("worker").into_iter();
        workers.map(|(pid, _)| pid).collect()
    }

    /// Process IDs and command lines of the processes with this subcommand.
    pub(crate) fn processes(&self, subcommand: &str) -> Vec<(u32, Vec<String>)> {
        let path = format!("/proc/{0}/task/{0}/children", self.pid());
        let children = std::fs::read_to_string(path).unwrap();
        let children = children.split_whitespace();
        let mut found: Vec<_> = children
            .filter_map(|pid| {
                let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?;
                let line: Vec<String> = line.split('\0').map(str::to_owned).collect();
                let is_one = line.get(1).is_some_and(|first| first == subcommand);
                is_one.then(|| (pid.parse().unwrap(), line))
            })
            .collect();
        found.sort_unstable();
        found
    }

    /// Reads standard output up to the next event with this name.
    pub(crate) fn event(&mut self, name: &str) -> serde_json::Value {
        event(&mut self.events, name)
    }

    /// The exit code if the server has exited; the inner value is `None` for a signal.
    pub(crate) fn try_exit(&mut self) -> Option<Option<i32>> {
        let ended = self.child.try_wait().unwrap();
        ended.map(|status| status.code())
    }

    /// Sends `signal` and waits for the exit; returns the exit code.
    pub(crate) fn stop(mut self, signal: &str) -> Option<i32> {
        let pid = self.child.id().to_string();
        assert!(
            Command::new("kill")
                .args([signal, &pid])
                .status()
                .unwrap()
                .success()
        );
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(start.elapsed() < PATIENCE, "the server does not stop");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn connect(&self) -> Connection {
        Connection::to(self.http)
    }

    /// Sends one GET request on a new connection.
    pub(crate) fn get(&self, path: &str) -> Answer {
        self.connect().call("GET", path, &[], b"")
    }

    /// Sends one POST request on a new connection.
    pub(crate) fn post(&self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        self.connect().call("POST", path, headers, body)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn kill(signal: &str, pid: u32) -> bool {
    Command::new("kill")
        .args([signal, &pid.to_string()])
        .status()
        .is_ok_and(|end| end.success())
}

fn next_event(events: &mut impl BufRead) -> Option<serde_json::Value> {
    let mut line = String::new();
    events
        .read_line(&mut line)
        .ok()
        .filter(|&bytes| bytes > 0)?;
    Some(serde_json::from_str(&line).expect("an event is JSON"))
}

fn event(events: &mut impl BufRead, name: &str) -> serde_json::Value {
    loop {
        let event = next_event(events).unwrap_or_else(|| panic!("ended before {name:?}"));
        if event["event"] == name {
            return event;
        }
    }
}

/// A keep-alive HTTP/1.1 connection.
pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Header names in lower case, and values.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// The body as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|_| panic!("not JSON: {:?}", String::from_utf8_lossy(&self.body)))
    }

    /// The field `error` of the body.
    pub(crate) fn error(&self) -> String {
        let json = self.json();
        json["error"]
            .as_str()
            .unwrap_or_else(|| panic!("no error in {json}"))
            .to_owned()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

impl Connection {
    pub(crate) fn to(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the port is open");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            stream: BufReader::new(stream),
        }
    }

    /// Sends raw bytes.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream
            .get_mut()
            .write_all(bytes)
            .expect("the server reads");
    }

    /// Sends one request with a `Content-Length`.
    pub(crate) fn call(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        let mut request = format!("{method} {path} HTTP/1.1\r\nHost: test\r\n");
        for (name, value) in headers {
            request += &format!("{name}: {value}\r\n");
        }
        if method == "POST" {
            request += &format!("Content-Length: {}\r\n", body.len());
        }
        let mut bytes = (request + "\r\n").into_bytes();
        bytes.extend_from_slice(body);
        self.send(&bytes);
        self.answer()
    }

    pub(crate) fn answer(&mut self) -> Answer {
        let mut line = String::new();
        self.stream.read_line(&mut line).expect("a status line");
        let status = line
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        let status = status.unwrap_or_else(|| panic!("no status in {line:?}"));
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line).expect("a header");
            let Some((name, value)) = line.trim_end().split_once(": ") else {
                break;
            };
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        let mut answer = Answer {
            status,
            headers,
            body: Vec::new(),
        };
        let length = answer
            .header("content-length")
            .and_then(|length| length.parse().ok());
        answer.body = vec![0; length.unwrap_or_default()];
        self.stream
            .read_exact(&mut answer.body)
            .expect("the whole body");
        answer
    }

    /// Whether the server closed the connection.
    pub(crate) fn is_closed(&mut self) -> bool {
        self.stream.read(&mut [0]).is_ok_and(|bytes| bytes == 0)
    }
}
