//! A real control plane with a real controller, and the roles that a test plays: the kubelet
//! (status of pods), the user (kubectl), and the reader of the audit log.
// Each test uses a part; tests fail by panicking.
#![allow(dead_code, clippy::unwrap_used, clippy::panic)]

pub(crate) mod server;

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use albacore_testbed::{ControlPlane, Options};
use serde_json::{Value, json};

/// User name of the controller in the audit log.
pub(crate) const CONTROLLER: &str = "albacore-controller";

/// Generous because the machine may be busy; only for liveness.
const LONG: Duration = Duration::from_secs(180);

pub(crate) struct Rig {
    pub(crate) plane: ControlPlane,
    kubeconfig: PathBuf,
    folder: tempfile::TempDir,
}

/// A running controller; killed on drop.
pub(crate) struct Controller {
    child: Child,
    log: PathBuf,
    address: SocketAddr,
}

impl Rig {
    /// Starts a control plane with the kinds of Albacore; `with_manager` adds the controller
    /// manager, which creates the pods of Deployments.
    pub(crate) fn start(with_manager: bool) -> Self {
        let rig = Self::with(Options {
            controller_manager: with_manager,
            ..Options::default()
        });
        let crds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../crds");
        rig.serve(&crds)
    }

    /// Installs the custom resource definitions at `path`.
    pub(crate) fn serve(mut self, path: &Path) -> Self {
        self.plane.serve_crds(path).unwrap();
        self
    }

    /// Starts a control plane without the kinds of Albacore.
    pub(crate) fn with(options: Options) -> Self {
        let plane = ControlPlane::start(&options).unwrap();
        // Pods that are not restricted are rejected, so every pod that a test observes is
        // restricted.
        let label = "pod-security.kubernetes.io/enforce=restricted";
        let labeled = plane
            .kubectl(&["label", "namespace", "default", label])
            .unwrap();
        assert!(labeled.status.success(), "{labeled:?}");
        // A user with all permissions and its own name, so that its requests can be counted.
        let kubeconfig = plane
            .kubeconfig_of(CONTROLLER, Some("system:masters"))
            .unwrap();
        Self {
            plane,
            kubeconfig,
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// Starts a controller and waits until it is ready.
    pub(crate) fn controller(&self, more: &[&str]) -> Controller {
        self.launch(more).wait_until_ready()
    }

    pub(crate) fn launch(&self, more: &[&str]) -> Controller {
        self.launch_as(&self.kubeconfig, more)
    }

    /// Starts a controller as another user.
    pub(crate) fn launch_as(&self, kubeconfig: &Path, more: &[&str]) -> Controller {
        let mut command = Command::new(env!("CARGO_BIN_EXE_albacore-controller"));
        command.env_clear().args(["--lease-namespace", "default"]);
        command.arg("--kubeconfig").arg(kubeconfig).args(more);
        self.launch_command(command, IpAddr::V4(Ipv4Addr::LOCALHOST))
    }

    /// Starts a controller by a command that already contains its connection options; it listens on
    /// a port of `ip`.
    pub(crate) fn launch_command(&self, mut command: Command, ip: IpAddr) -> Controller {
        let listener = std::net::TcpListener::bind((ip, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let port = address.port();
        let log = self.folder.path().join(format!("controller-{port}.log"));
        let file = std::fs::File::create(&log).unwrap();
        if !command
            .get_args()
            .any(|argument| argument == "--server-image")
        {
            command.args(["--server-image", "albacore-server:test"]);
        }
        let child = command
            .args(["--log-filter", "info,albacore_controller=debug"])
            .args(["--listen", &address.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file)
            .spawn()
            .unwrap();
        Controller {
            child,
            log,
            address,
        }
    }

    /// Runs kubectl and returns its output.
    #[track_caller]
    pub(crate) fn kubectl(&self, arguments: &[&str]) -> String {
        self.try_kubectl(arguments)
            .unwrap_or_else(|error| panic!("kubectl {arguments:?}: {error}"))
    }

    /// Runs kubectl and returns its output or its error.
    pub(crate) fn try_kubectl(&self, arguments: &[&str]) -> Result<String, String> {
        let output = self.plane.kubectl(arguments).unwrap();
        match output.status.success() {
            true => Ok(String::from_utf8(output.stdout).unwrap()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    /// Starts kubectl as another user.
    pub(crate) fn kubectl_as(&self, kubeconfig: &Path, arguments: &[&str]) -> Child {
        Command::new(albacore_testbed::programs().unwrap().join("kubectl"))
            .args(arguments)
            .env_clear()
            .env("KUBECONFIG", kubeconfig)
            .env("HOME", self.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }

    fn file(&self, text: &str) -> String {
        let mut file = tempfile::Builder::new()
            .suffix(".json")
            .tempfile_in(&self.folder)
            .unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let (_, path) = file.keep().unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Applies objects like a user.
    #[track_caller]
    pub(crate) fn apply(&self, objects: &[Value]) {
        self.try_apply(objects, "strict")
            .unwrap_or_else(|error| panic!("apply: {error}"));
    }

    /// Applies objects with this validation mode of kubectl and the API server; returns the error.
    pub(crate) fn try_apply(&self, objects: &[Value], validate: &str) -> Result<String, String> {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        let path = self.file(&list.to_string());
        let arguments = [
            "apply",
            "--server-side",
            "--force-conflicts",
            &format!("--validate={validate}"),
            "-f",
        ];
        self.try_kubectl(&[&arguments[..], &[&path]].concat())
    }

    /// Applies a merge patch to an object.
    #[track_caller]
    pub(crate) fn patch(&self, kind: &str, name: &str, patch: &Value) {
        self.kubectl(&[
            "patch",
            kind,
            name,
            "--type=merge",
            "-p",
            &patch.to_string(),
        ]);
    }

    /// The object, if it exists.
    pub(crate) fn get(&self, kind: &str, name: &str) -> Option<Value> {
        let (group, plural) = match kind {
            "infd" => ("apis/albacore.dev/v1beta1", "inferencedeployments"),
            "deployment" => ("apis/apps/v1", "deployments"),
            "configmap" => ("api/v1", "configmaps"),
            "service" => ("api/v1", "services"),
            "servicemonitor" => ("apis/monitoring.coreos.com/v1", "servicemonitors"),
            _ => panic!("{kind}: add its path here"),
        };
        let path = format!("/{group}/namespaces/default/{plural}/{name}");
        self.plane.read(&path).ok()
    }

    /// All objects of `kinds`, a comma-separated list, that match a label selector.
    pub(crate) fn list(&self, kinds: &str, labels: &str) -> Vec<Value> {
        let paths = kinds.split(',').map(|kind| match kind {
            "deployments" => "/apis/apps/v1/deployments".to_owned(),
            "networkpolicies" => "/apis/networking.k8s.io/v1/networkpolicies".to_owned(),
            "poddisruptionbudgets" => "/apis/policy/v1/poddisruptionbudgets".to_owned(),
            core => format!("/api/v1/{core}"),
        });
        let lists = paths.map(|path| self.plane.list(&path, labels).unwrap());
        lists.flatten().collect()
    }

    /// `status/reason` of a condition of a deployment; empty if it is absent.
    pub(crate) fn condition_text(&self, name: &str, condition: &str) -> String {
        let deployment = self.get("infd", name).unwrap_or_default();
        let conditions = deployment["status"]["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let found = conditions.into_iter().find(|c| c["type"] == condition);
        let text = |c: &Value, field: &str| c[field].as_str().unwrap_or_default().to_owned();
        found
            .map(|c| format!("{}/{}", text(&c, "status"), text(&c, "reason")))
            .unwrap_or_default()
    }

    /// Waits for a condition of a deployment.
    #[track_caller]
    pub(crate) fn wait_for(&self, name: &str, condition: &str, expected: &str) {
        let mut last = String::new();
        wait_or(
            || {
                last = self.condition_text(name, condition);
                last == expected
            },
            || {
                format!(
                    "{name}: {condition} is not {expected}\n{:#}",
                    self.get("infd", name).unwrap_or_default()["status"]
                )
            },
        );
    }

    /// Writes the status of every pod of a deployment like a kubelet: running at an address and
    /// ready.
    pub(crate) fn simulate_kubelet(&self, name: &str, addresses: &[&str]) -> usize {
        let pods = self.list("pods", &format!("albacore.dev/deployment={name}"));
        let pods = pods
            .iter()
            .filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        let mut count = 0;
        for (index, pod) in pods.enumerate() {
            count += 1;
            if pod["status"]["phase"] == "Running" {
                continue;
            }
            let address = addresses.get(index).copied().unwrap_or("127.0.0.1");
            let name = pod["metadata"]["name"].as_str().unwrap();
            let now = "2026-11-21T00:00:00Z";
            let status = json!({"status": {"phase": "Running", "podIP": address,
                "podIPs": [{"ip": address}],
                "conditions": [
                    {"type": "Ready", "status": "True", "lastTransitionTime": now},
                    {"type": "ContainersReady", "status": "True", "lastTransitionTime": now}]}});
            let arguments = [
                "patch",
                "pod",
                name,
                "--subresource=status",
                "--type=merge",
                "-p",
            ];
            let patched = self.try_kubectl(&[&arguments[..], &[&status.to_string()]].concat());
            // Deleted meanwhile; a pod without a node is deleted immediately.
            let is_gone = |error: &String| error.contains("NotFound");
            assert!(patched.as_ref().err().is_none_or(is_gone), "{patched:?}");
        }
        count
    }

    /// Requests of the controller so far, as `verb resource`, without leases and the lists of
    /// watches.
    pub(crate) fn requests(&self) -> Vec<String> {
        let log = self.plane.audit_log().unwrap();
        let lines = log
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let of_controller = lines.filter(|r| r["user"]["username"] == CONTROLLER);
        let requests = of_controller.map(|r| {
            let object = &r["objectRef"];
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let part = match text(&object["subresource"]).as_str() {
                "" => String::new(),
                part => format!("/{part}"),
            };
            let code = &r["responseStatus"]["code"];
            format!(
                "{} {}{part} {} {code}",
                text(&r["verb"]),
                text(&object["resource"]),
                text(&object["name"])
            )
        });
        let is_counted = |r: &String| !r.contains(" leases ") && !r.starts_with("watch ");
        requests.filter(is_counted).collect()
    }

    /// The writes of the controller so far, without events.
    pub(crate) fn writes(&self) -> Vec<String> {
        let is_read = |r: &String| r.starts_with("get ") || r.starts_with("list ");
        self.requests()
            .into_iter()
            .filter(|r| !is_read(r) && !r.contains(" events "))
            .collect()
    }
}

impl Controller {
    /// Waits until it is ready.
    pub(crate) fn wait_until_ready(mut self) -> Self {
        wait("the controller is ready", || {
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "{}", self.log());
            self.http("/readyz").starts_with("HTTP/1.1 200")
        });
        self
    }

    /// The log output so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The response to a GET request.
    pub(crate) fn http(&self, path: &str) -> String {
        use std::io::Read as _;
        let Ok(mut stream) = std::net::TcpStream::connect(self.address) else {
            return String::new();
        };
        let _ = write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        );
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    /// Sends SIGTERM and waits until the process has exited.
    pub(crate) fn stop(mut self) -> ExitStatus {
        let pid = self.child.id().to_string();
        assert!(
            Command::new("kill")
                .args(["-TERM", &pid])
                .status()
                .unwrap()
                .success()
        );
        self.wait_for_exit()
    }

    /// Waits until the process has exited.
    pub(crate) fn wait_for_exit(&mut self) -> ExitStatus {
        let mut status = None;
        wait("the controller ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    pub(crate) fn has_exited(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// CPU time used so far, in seconds.
    pub(crate) fn cpu_seconds(&self) -> f64 {
        cpu_seconds(self.child.id())
    }

    /// Resident memory, in MiB.
    pub(crate) fn resident_mib(&self) -> u64 {
        self.memory_mib("VmRSS:")
    }

    /// A line of its /proc status file, in MiB.
    pub(crate) fn memory_mib(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|l| l.starts_with(name)).unwrap();
        line.split_whitespace()
            .nth(1)
            .unwrap()
            .parse::<u64>()
            .unwrap()
            / 1024
    }
}

/// CPU time that a process has used so far, in seconds.
pub(crate) fn cpu_seconds(process: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let after_name = stat.rsplit(')').next().unwrap();
    let ticks = after_name.split_whitespace().skip(11).take(2);
    ticks.map(|t| t.parse::<f64>().unwrap()).sum::<f64>() / 100.0
}

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- log of the controller\n{}", self.log());
        }
    }
}

/// Waits until a condition holds.
#[track_caller]
pub(crate) fn wait(what: &str, is_met: impl FnMut() -> bool) {
    wait_or(is_met, || format!("timed out waiting until {what}"));
}

#[track_caller]
pub(crate) fn wait_or(mut is_met: impl FnMut() -> bool, otherwise: impl Fn() -> String) {
    let start = Instant::now();
    while !is_met() {
        assert!(start.elapsed() < LONG, "{}", otherwise());
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A deployment with one model.
pub(crate) fn deployment(name: &str, more: &Value) -> Value {
    let mut spec = json!({"replicas": 2, "workers": 2, "threads": 2,
        "models": [{"name": "m", "uri": "pvc://models/m.ubj", "slo": {"latency": "25ms"}}]});
    for (field, value) in more.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    json!({"apiVersion": "albacore.dev/v1beta1", "kind": "InferenceDeployment",
        "metadata": {"name": name, "namespace": "default"}, "spec": spec})
}

/// The kinds of children without ServiceMonitors, in the format of kubectl.
pub(crate) const CHILDREN: &str =
    "serviceaccounts,configmaps,services,networkpolicies,poddisruptionbudgets,deployments";
