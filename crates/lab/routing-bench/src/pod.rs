//! A server that behaves like a pod: alone in its cgroup, with constant addresses, killed as a
//! whole.

use std::io::{BufRead as _, BufReader};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use albacore_load::get;
use serde_json::Value;

use crate::cgroup::CpuCgroup;
use crate::error::RoutingError;

/// Configuration of a pod.
#[derive(Clone, Debug)]
pub struct PodOptions {
    /// Path of `albacore-server`.
    pub server: PathBuf,
    /// Name and file of the model.
    pub model: (String, PathBuf),
    /// `None`: requests are refused only if the queue is full.
    pub objective: Option<Duration>,
    /// Address on which it listens.
    pub address: IpAddr,
    /// Limit of waiting rows; `None`: the server's default.
    pub queue_rows: Option<u32>,
    /// CPU quota as a share of one cpu; `None`: unlimited.
    pub share: Option<f64>,
}

/// A running pod; its processes are killed on drop.
#[derive(Debug)]
pub struct Pod {
    options: PodOptions,
    pub http: SocketAddr,
    pub grpc: SocketAddr,
    /// Process id of its worker.
    pub worker: Option<u32>,
    cgroup: CpuCgroup,
    child: Option<Child>,
}

impl Pod {
    /// Starts the pod in a cgroup `name`, and waits until it is ready.
    ///
    /// # Errors
    /// The cgroup cannot be created, or the server does not start.
    pub fn start(name: &str, options: PodOptions) -> Result<Self, RoutingError> {
        let mut pod = Self {
            cgroup: CpuCgroup::make(name, options.share)?,
            http: free_address_of(options.address)?,
            grpc: free_address_of(options.address)?,
            options,
            worker: None,
            child: None,
        };
        pod.run()?;
        Ok(pod)
    }

    /// Kills all its processes, restarts it at once and waits until it is ready; returns the time
    /// of the kill and the downtime.
    ///
    /// # Errors
    /// It does not start again.
    pub fn restart(&mut self) -> Result<(Instant, Duration), RoutingError> {
        let at = Instant::now();
        self.kill()?;
        self.run()?;
        Ok((at, at.elapsed()))
    }

    /// Restarts it with this objective, unless it has it.
    ///
    /// # Errors
    /// It does not start again.
    pub(crate) fn set_objective(
        &mut self,
        objective: Option<Duration>,
    ) -> Result<(), RoutingError> {
        if self.options.objective == objective {
            return Ok(());
        }
        self.options.objective = objective;
        self.restart().map(drop)
    }

    /// Kills all its processes; it is down until [`Pod::restart`].
    ///
    /// # Errors
    /// They do not exit.
    pub fn kill(&mut self) -> Result<(), RoutingError> {
        self.cgroup.kill_all()?;
        self.reap();
        Ok(())
    }

    fn run(&mut self) -> Result<(), RoutingError> {
        let (name, file) = &self.options.model;
        let queue_rows = self.options.queue_rows.map(|rows| rows.to_string());
        let objective = self.options.objective;
        let objective = objective.map(|time| format!("{name}={}us", time.as_micros()));
        let mut child = self
            .cgroup
            .command(&self.options.server)
            .args(["--http", &self.http.to_string()])
            .args(["--grpc", &self.grpc.to_string()])
            .args(["--workers", "1", "--threads", "1", "--model"])
            .arg(format!("{name}={}", file.display()))
            .args(
                objective
                    .iter()
                    .flat_map(|objective| ["--slo", objective.as_str()]),
            )
            .args(
                queue_rows
                    .iter()
                    .flat_map(|rows| ["--queue-rows", rows.as_str()]),
            )
            .stdout(Stdio::piped())
            .spawn()
            .map_err(RoutingError::file(&self.options.server))?;
        let output = child.stdout.take();
        self.child = Some(child);
        // The server keeps running when its events are no longer read.
        let lines = output.into_iter().flat_map(|it| BufReader::new(it).lines());
        for line in lines.map_while(Result::ok) {
            let event: Value = serde_json::from_str(&line).unwrap_or_default();
            if event["event"] == "worker_started" {
                self.worker = event["pid"].as_u64().and_then(|pid| pid.try_into().ok());
            }
            if event["event"] == "ready" {
                return Ok(());
            }
        }
        let program = self.options.server.display();
        let what = format!("{program}: ended before it was ready");
        Err(RoutingError::Failed(what))
    }

    fn reap(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.wait();
        }
    }

    /// Body of the response to a GET.
    ///
    /// # Errors
    /// It does not answer, or the response is not text.
    pub fn fetch(&self, path: &str) -> Result<String, RoutingError> {
        fetch(self.http, path)
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        let _ = self.cgroup.kill_all();
        self.reap();
    }
}

pub(crate) fn fetch(address: SocketAddr, path: &str) -> Result<String, RoutingError> {
    let url = format!("http://{address}{path}");
    match get(address, path) {
        Ok((200, body)) => String::from_utf8(body)
            .map_err(|e| RoutingError::Failed(format!("{url}: the response is not text: {e}"))),
        Ok((status, _)) => Err(RoutingError::Failed(format!(
            "{url}: expected status 200, got {status}"
        ))),
        Err(source) => Err(RoutingError::Ask { url, source }),
    }
}

/// A free port on the loopback address.
///
/// # Errors
/// There is none.
pub fn free_address() -> Result<SocketAddr, RoutingError> {
    free_address_of(Ipv4Addr::LOCALHOST.into())
}

fn free_address_of(ip: IpAddr) -> Result<SocketAddr, RoutingError> {
    let address = TcpListener::bind((ip, 0)).and_then(|socket| socket.local_addr());
    address.map_err(|e| RoutingError::Failed(format!("no free port: {e}")))
}
