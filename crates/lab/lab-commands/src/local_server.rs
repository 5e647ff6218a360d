//! A local server started by a benchmark.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use albacore_command::Failure;
use albacore_load::get;
use serde_json::Value;

/// Shutdown timeout: longer than the server's `--drain-timeout`.
const END_PATIENCE: Duration = Duration::from_secs(35);

/// A running server, stopped on drop.
pub(crate) struct LocalServer {
    child: Child,
    pub(crate) http: SocketAddr,
    pub(crate) grpc: SocketAddr,
}

/// Total work of the workers of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkTotals {
    pub(crate) batches: f64,
    /// Time from dispatch to collected results.
    pub(crate) seconds: f64,
}

impl WorkTotals {
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            batches: self.batches - before.batches,
            seconds: self.seconds - before.seconds,
        }
    }
}

impl Drop for LocalServer {
    fn drop(&mut self) {
        // SIGTERM first: if the supervisor is killed, its front runs on for a moment and logs that.
        // It may have exited already.
        let asked = Command::new("kill")
            .arg(self.child.id().to_string())
            .status();
        let deadline = Instant::now() + END_PATIENCE;
        while asked.is_ok() && Instant::now() < deadline {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl LocalServer {
    /// Starts `albacore-server`, by default the one beside this program, and waits until it is
    /// ready.
    ///
    /// # Errors
    /// It cannot be started, or exits.
    pub(crate) fn start(program: Option<&Path>, arguments: &[String]) -> Result<Self, Failure> {
        let program = match program {
            Some(program) => program.to_owned(),
            None => std::env::current_exe()
                .map_err(|e| Failure::Failed(format!("cannot find the path of this program: {e}")))?
                .with_file_name("albacore-server"),
        };
        let failed = |what: &str| Failure::Failed(format!("{}: {what}", program.display()));
        let mut child = Command::new(&program)
            .args(["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| Failure::file(&program, &e))?;
        let output = child.stdout.take().ok_or_else(|| failed("has no output"))?;
        let unknown = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut server = Self {
            child,
            http: unknown,
            grpc: unknown,
        };
        // The server keeps running when its events are no longer read.
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            let event: Value = serde_json::from_str(&line).unwrap_or_default();
            match event["event"].as_str() {
                Some("listening") => {
                    let address = |port: &str| {
                        let address = event[port].as_str().and_then(|text| text.parse().ok());
                        address.ok_or_else(|| failed("reports no address"))
                    };
                    (server.http, server.grpc) = (address("http")?, address("grpc")?);
                }
                Some("ready") => return Ok(server),
                _ => {}
            }
        }
        Err(failed("ended before it was ready"))
    }

    fn fetch(&self, path: &str) -> Result<Vec<u8>, Failure> {
        let (_, body) =
            get(self.http, path).map_err(|e| Failure::Failed(format!("{path}: {e}")))?;
        Ok(body)
    }

    /// Memory of the serving front in MiB, without supervisor, standby and workers.
    ///
    /// # Errors
    /// It does not respond, or has exited.
    pub(crate) fn memory_mib(&self) -> Result<f64, Failure> {
        let front = &self.state()?["front"]["pid"];
        let path = Path::new("/proc").join(front.to_string()).join("status");
        let status = std::fs::read_to_string(&path).map_err(|e| Failure::file(&path, &e))?;
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = resident.and_then(|text| text.split_whitespace().next()?.parse().ok());
        kib.map(|kib: f64| kib / 1024.0)
            .ok_or_else(|| Failure::Failed(format!("{} has no VmRSS", path.display())))
    }

    /// A model's part of the server's state.
    ///
    /// # Errors
    /// It does not respond.
    pub(crate) fn model_state(&self, model: usize) -> Result<Value, Failure> {
        Ok(self.state()?["models"][model].clone())
    }

    fn state(&self) -> Result<Value, Failure> {
        let state = self.fetch("/albacore/v1/state")?;
        serde_json::from_slice(&state)
            .map_err(|e| Failure::Failed(format!("/albacore/v1/state: {e}")))
    }

    /// Completed batches of the workers, and the time for which they had them, since the start of
    /// the server.
    ///
    /// # Errors
    /// It does not respond.
    pub(crate) fn work_totals(&self) -> Result<WorkTotals, Failure> {
        let metrics = String::from_utf8_lossy(&self.fetch("/metrics")?).into_owned();
        let sum = |name: &str| {
            let series = metrics.lines().filter(|line| line.starts_with(name));
            let values = series.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
            values.sum::<f64>()
        };
        Ok(WorkTotals {
            batches: sum("albacore_worker_batches_total{"),
            seconds: sum("albacore_worker_busy_seconds_total{"),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn dropping_a_server_terminates_it_with_sigterm() {
        let folder = std::env::temp_dir().join(format!("local-server-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (program, ended) = (folder.join("server"), folder.join("ended"));
        // Its arguments are two addresses and those of the caller.
        let text = r#"#!/bin/sh
            trap 'echo >"$5"; exit' TERM
            echo '{"event":"listening","http":"127.0.0.1:1","grpc":"127.0.0.1:2"}'
            echo '{"event":"ready"}'
            while :; do sleep 0.01; done"#;
        std::fs::write(&program, text).unwrap();
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&program, mode).unwrap();
        let server = LocalServer::start(Some(&program), &[ended.display().to_string()]);
        drop(server.unwrap());
        assert!(ended.exists());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
