//! Envoy with the configuration of the manifest, in front of pods on this machine.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::arms::Policy;
use crate::error::RoutingError;
use crate::manifest::{self, EnvoyPorts};
use crate::pod::{fetch, free_address};

/// Startup timeout.
const START_PATIENCE: Duration = Duration::from_secs(20);

/// An Envoy process, terminated on drop.
#[derive(Debug)]
pub struct Envoy {
    child: Child,
    pub http: SocketAddr,
    admin: SocketAddr,
}

/// Envoy's view of a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct EnvoyHost {
    pub address: SocketAddr,
    pub weight: u64,
    /// Requests sent to it, including retries.
    pub requests: u64,
    /// Connections that could not be opened, each for one request.
    pub connect_failures: u64,
}

impl Envoy {
    /// Validates the configuration with Envoy, and starts it with one event loop in front of
    /// `servers`. `policy` replaces that of the manifest. Its files are written to `folder`.
    ///
    /// # Errors
    /// Envoy rejects the configuration, or does not start.
    pub fn start(
        program: &Path,
        folder: &Path,
        servers: &[SocketAddr],
        policy: Option<Policy>,
    ) -> Result<Self, RoutingError> {
        let ports = EnvoyPorts {
            http: free_address()?,
            admin: free_address()?,
        };
        let configuration = manifest::envoy(ports, servers, policy)?;
        let file = folder.join("envoy.json");
        std::fs::write(&file, configuration.to_string()).map_err(RoutingError::file(&file))?;
        let checked = Command::new(program)
            .args(["--mode", "validate", "--config-path"])
            .arg(&file)
            .output()
            .map_err(RoutingError::file(program))?;
        if !checked.status.success() {
            let said = String::from_utf8_lossy(&checked.stderr);
            let what = format!("envoy rejects the configuration of the manifest: {said}");
            return Err(RoutingError::Failed(what));
        }
        let log = folder.join("envoy.log");
        let child = Command::new(program)
            .args(["--concurrency", "1", "--use-dynamic-base-id"])
            .args(["--log-level", "warning", "--log-path"])
            .arg(&log)
            .arg("--config-path")
            .arg(&file)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(RoutingError::file(program))?;
        let mut envoy = Self {
            child,
            http: ports.http,
            admin: ports.admin,
        };
        envoy.wait(&log)?;
        Ok(envoy)
    }

    /// Waits until it listens, which it does once it has discovered the pods and checked their
    /// health.
    fn wait(&mut self, log: &Path) -> Result<(), RoutingError> {
        let start = Instant::now();
        // bound: START_PATIENCE
        while TcpStream::connect(self.http).is_err() {
            let has_ended = !matches!(self.child.try_wait(), Ok(None));
            if has_ended || start.elapsed() > START_PATIENCE {
                let log = std::fs::read_to_string(log).unwrap_or_default();
                let what = format!("envoy does not listen: {log}");
                return Err(RoutingError::Failed(what));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The pods behind it.
    ///
    /// # Errors
    /// It does not answer.
    pub fn hosts(&self) -> Result<Vec<EnvoyHost>, RoutingError> {
        let text = fetch(self.admin, "/clusters?format=json")?;
        let answer: Value = serde_json::from_str(&text).unwrap_or_default();
        let hosts = answer["cluster_statuses"][0]["host_statuses"].as_array();
        hosts.into_iter().flatten().map(host).collect()
    }

    /// Number of retries.
    ///
    /// # Errors
    /// It does not answer.
    pub fn retried(&self) -> Result<u64, RoutingError> {
        let path = "/stats?filter=cluster%5C..*%5C.upstream_rq_retry$";
        let text = fetch(self.admin, path)?;
        let values = text.lines().filter_map(|line| line.rsplit(' ').next());
        Ok(values.filter_map(|value| value.parse::<u64>().ok()).sum())
    }
}

fn host(status: &Value) -> Result<EnvoyHost, RoutingError> {
    let socket = &status["address"]["socket_address"];
    let (ip, port) = (socket["address"].as_str(), socket["port_value"].as_u64());
    let address = format!("{}:{}", ip.unwrap_or_default(), port.unwrap_or_default());
    // Envoy encodes 64-bit numbers as strings, and omits zeros.
    let number = |value: &Value| match value {
        Value::String(text) => text.parse().unwrap_or_default(),
        other => other.as_u64().unwrap_or_default(),
    };
    let stats = status["stats"].as_array();
    let stat = |name: &str| {
        let mut stats = stats.into_iter().flatten();
        let found = stats.find(|stat| stat["name"] == name);
        found.map_or(0, |stat| number(&stat["value"]))
    };
    Ok(EnvoyHost {
        address: address.parse().map_err(|_| {
            RoutingError::Failed(format!("envoy reports the invalid pod address {address}"))
        })?,
        weight: number(&status["weight"]),
        requests: stat("rq_total"),
        connect_failures: stat("cx_connect_fail"),
    })
}

impl Drop for Envoy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
