//! Servers of pods: real ones on loopback addresses, with a ConfigMap volume that the test updates
//! like a kubelet.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::Rig;

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// A pod: its ConfigMap volume and its server.
pub(crate) struct Pod {
    pub(crate) address: &'static str,
    folder: tempfile::TempDir,
    versions: u32,
    child: Child,
}

impl Pod {
    pub(crate) fn start(binary: &Path, address: &'static str, settings: &str) -> Self {
        Self::start_with(binary, address, settings, &[])
    }

    pub(crate) fn start_with(
        binary: &Path,
        address: &'static str,
        settings: &str,
        more: &[&str],
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let child = Command::new("true").spawn().unwrap();
        let mut pod = Self {
            address,
            folder,
            versions: 0,
            child,
        };
        pod.child.wait().unwrap();
        pod.deliver(settings);
        pod.child = Command::new(binary)
            .arg("--settings")
            .arg(pod.folder.path().join("settings.yaml"))
            .args([
                "--http",
                &format!("{address}:8080"),
                "--grpc",
                &format!("{address}:8081"),
            ])
            .args(more)
            .env("ALBACORE_WORKERS", "2")
            .env("ALBACORE_THREADS", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        pod
    }

    /// Swaps the volume's files atomically like a kubelet.
    pub(crate) fn deliver(&mut self, settings: &str) {
        let root = self.folder.path();
        self.versions += 1;
        let version = format!("..version-{}", self.versions);
        std::fs::create_dir(root.join(&version)).unwrap();
        std::fs::write(root.join(&version).join("settings.yaml"), settings).unwrap();
        let fresh = root.join("..data_tmp");
        std::os::unix::fs::symlink(&version, &fresh).unwrap();
        std::fs::rename(&fresh, root.join("..data")).unwrap();
        if self.versions == 1 {
            std::os::unix::fs::symlink("..data/settings.yaml", root.join("settings.yaml")).unwrap();
        }
    }

    /// Kills one of its workers like the OOM killer; returns false if there was none.
    pub(crate) fn kill_worker(&self) -> bool {
        let pid = self.child.id();
        let mut children = String::new();
        for task in std::fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
            let path = task.unwrap().path().join("children");
            children.push_str(&std::fs::read_to_string(path).unwrap_or_default());
        }
        let is_worker = |pid: &&str| {
            let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline"));
            line.is_ok_and(|line| line.split('\0').nth(1) == Some("worker"))
        };
        let Some(worker) = children.split_whitespace().find(is_worker) else {
            return false;
        };
        let killed = Command::new("kill").args(["-KILL", worker]).status();
        killed.unwrap().success()
    }

    /// Sends the example's request to the model `m`; returns the status line of the response.
    pub(crate) fn predict(&self) -> String {
        self.predict_with("m")
    }

    pub(crate) fn predict_with(&self, model: &str) -> String {
        let body = std::fs::read_to_string(root().join("examples/fraud_request.json")).unwrap();
        self.send(model, &body)
    }

    /// The same for the most expensive output.
    pub(crate) fn predict_interactions(&self) -> String {
        let body = std::fs::read_to_string(root().join("examples/fraud_request.json")).unwrap();
        let mut body: Value = serde_json::from_str(&body).unwrap();
        body["outputs"] = json!([{"name": "interactions"}]);
        self.send("m", &body.to_string())
    }

    fn send(&self, model: &str, body: &str) -> String {
        let Ok(mut stream) = TcpStream::connect((self.address, 8080)) else {
            return String::new();
        };
        let _ = write!(
            stream,
            "POST /v2/models/{model}/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n{body}",
            body.len()
        );
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer.lines().next().unwrap_or_default().to_owned()
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn settings(rig: &Rig, name: &str) -> String {
    let map = rig.get("configmap", name).unwrap();
    map["data"]["settings.yaml"].as_str().unwrap().to_owned()
}

pub(crate) fn model(path: &Path, latency: &str) -> Value {
    json!([{"name": "m", "uri": format!("file://{}", path.display()), "slo": {"latency": latency}}])
}
