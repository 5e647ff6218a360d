//! A real API server, an agent, and an emulated kubelet: objects and status of pods, cgroups,
//! processes.
//!
//! The cgroups are real and belong to the live cpuset hierarchy, below a scratch parent that the
//! agent uses as the root of the tree. The tests read masks from /proc with their own code.
// Each test uses only a part; tests fail by panicking.
#![allow(dead_code, clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use albacore_testbed::{ControlPlane, Options, product_of};
use serde_json::{Value, json};

/// User name of an agent in the audit log.
pub(crate) const AGENT: &str = "albacore-agent";

/// The node of the tests.
pub(crate) const NODE: &str = "node-1";

/// The live hierarchy of cpusets.
const CPUSETS: &str = "/sys/fs/cgroup/cpuset";

/// Generous timeout for liveness only, because the machine may be busy.
const LONG: Duration = Duration::from_secs(120);

static NEXT: AtomicU32 = AtomicU32::new(0);

pub(crate) struct Rig {
    pub(crate) plane: ControlPlane,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) folder: tempfile::TempDir,
    cgroup: PathBuf,
    prefork_server: PathBuf,
}

/// A pod of the node: its object, and its container's cgroup and processes.
pub(crate) struct Pod {
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) uid: String,
    pub(crate) cgroup: PathBuf,
    server: Option<Child>,
    rig: PathBuf,
}

/// A running agent that is killed on drop.
pub(crate) struct Agent {
    pub(crate) child: Child,
    log: PathBuf,
    pub(crate) heartbeat: PathBuf,
}

impl Rig {
    /// Starts a control plane with the custom resources and one node, and creates an empty cgroup
    /// tree.
    pub(crate) fn start() -> Self {
        let mut plane = ControlPlane::start(&Options::default()).unwrap();
        let crds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../crds");
        plane.serve_crds(&crds).unwrap();
        let kubeconfig = plane.kubeconfig_of(AGENT, Some("system:masters")).unwrap();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("albacore-agent-{}-{number}", std::process::id());
        let cgroup = Path::new(CPUSETS).join(name);
        let rig = Self {
            plane,
            kubeconfig,
            folder: tempfile::tempdir().unwrap(),
            cgroup,
            prefork_server: product_of("albacore-placer", "prefork_server").unwrap(),
        };
        make_cgroup(&rig.cgroup.join("kubepods/burstable"), Path::new(CPUSETS));
        let root = rig.folder.path().join("cgroup");
        fs::create_dir(&root).unwrap();
        std::os::unix::fs::symlink(&rig.cgroup, root.join("cpuset")).unwrap();
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}});
        rig.apply(&[node]);
        rig.account("default");
        rig
    }

    /// Creates the service account that pods need and that a controller would normally create.
    fn account(&self, namespace: &str) {
        self.apply(&[json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "default", "namespace": namespace}})]);
    }

    /// Runs kubectl and returns its output.
    #[track_caller]
    pub(crate) fn kubectl(&self, arguments: &[&str]) -> String {
        let output = self.plane.kubectl(arguments).unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "kubectl {arguments:?}: {said}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Applies objects with kubectl, like a user.
    #[track_caller]
    pub(crate) fn apply(&self, objects: &[Value]) {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(list.to_string().as_bytes()).unwrap();
        let path = file.path().to_str().unwrap();
        self.kubectl(&["apply", "--server-side", "--force-conflicts", "-f", path]);
    }

    /// Creates a deployment of W workers with T threads each.
    pub(crate) fn deploy(&self, name: &str, workers: u16, threads: u16, more: &Value) {
        self.deploy_in("default", name, workers, threads, more);
    }

    pub(crate) fn deploy_in(
        &self,
        namespace: &str,
        name: &str,
        workers: u16,
        threads: u16,
        more: &Value,
    ) {
        let mut spec = json!({"workers": workers, "threads": threads,
            "models": [{"name": "m", "uri": "pvc://models/m.ubj", "slo": {"latency": "25ms"}}]});
        for (field, value) in more.as_object().into_iter().flatten() {
            spec[field] = value.clone();
        }
        self.apply(&[
            json!({"apiVersion": "albacore.dev/v1beta1", "kind": "InferenceDeployment",
            "metadata": {"name": name, "namespace": namespace}, "spec": spec}),
        ]);
    }

    /// Merges a patch into an object.
    #[track_caller]
    pub(crate) fn patch(&self, kind: &str, name: &str, patch: &Value) {
        let patch = patch.to_string();
        self.kubectl(&["patch", kind, name, "--type=merge", "-p", &patch]);
    }

    /// Creates a pod of a deployment that runs the toy server.
    pub(crate) fn pod(&self, name: &str, deployment: &str, server: &[&str]) -> Pod {
        let labels = json!({"albacore.dev/deployment": deployment});
        self.pod_with("default", name, &labels, server)
    }

    /// Creates a pod with these labels that runs the toy server with these arguments.
    pub(crate) fn pod_with(
        &self,
        namespace: &str,
        name: &str,
        labels: &Value,
        server: &[&str],
    ) -> Pod {
        let pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, "labels": labels},
            "spec": {"nodeName": NODE, "automountServiceAccountToken": false,
                "containers": [{"name": "server", "image": "x"}]}});
        self.apply(&[pod]);
        let uid = [
            "get",
            "pod",
            name,
            "-n",
            namespace,
            "-o",
            "jsonpath={.metadata.uid}",
        ];
        let uid = self.kubectl(&uid);
        let mut pod = Pod {
            name: name.to_owned(),
            namespace: namespace.to_owned(),
            cgroup: self.cgroup.join(format!("kubepods/burstable/pod{uid}")),
            uid,
            server: None,
            rig: self.cgroup.clone(),
        };
        self.run_container(&mut pod, server);
        pod
    }

    /// Restarts the pod's container with another container ID, cgroup and processes.
    pub(crate) fn run_container(&self, pod: &mut Pod, server: &[&str]) {
        self.run_program(pod, &self.prefork_server, server, "10.1.0.7");
    }

    /// The same with any program, reachable at an address.
    pub(crate) fn run_program(
        &self,
        pod: &mut Pod,
        program: &Path,
        server: &[&str],
        address: &str,
    ) {
        pod.end();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let id = format!("{:0>64}", format!("{}f{number}", std::process::id()));
        pod.cgroup = self
            .cgroup
            .join(format!("kubepods/burstable/pod{}/{id}", pod.uid));
        make_cgroup(&pod.cgroup, Path::new(CPUSETS));
        pod.server = Some(spawn_in(&pod.cgroup, program, server));
        let status = json!({"status": {"phase": "Running", "podIP": address,
            "podIPs": [{"ip": address}],
            "containerStatuses": [{"name": "server", "image": "x", "imageID": "x", "ready": true,
                "restartCount": 0, "containerID": format!("containerd://{id}"),
                "state": {"running": {"startedAt": "2026-11-21T00:00:00Z"}}}]}});
        let status = status.to_string();
        let namespace = ["-n", pod.namespace.as_str()];
        let arguments = [
            "patch",
            "pod",
            &pod.name,
            "--subresource=status",
            "--type=merge",
        ];
        self.kubectl(&[&arguments[..], &namespace, &["-p", &status]].concat());
    }

    /// Starts the toy server in a cgroup.
    pub(crate) fn spawn_in(&self, cgroup: &Path, server: &[&str]) -> Child {
        spawn_in(cgroup, &self.prefork_server, server)
    }

    /// Root of the cgroup tree that the agent reads.
    pub(crate) fn cgroup_root(&self) -> PathBuf {
        self.folder.path().join("cgroup")
    }

    pub(crate) fn cgroup(&self) -> &Path {
        &self.cgroup
    }

    pub(crate) fn agent(&self, more: &[&str]) -> Agent {
        self.agent_as(None, more)
    }

    /// Starts an agent in its own mount namespace, after a shell command in which `$0` and `$@` are
    /// the agent.
    pub(crate) fn agent_after(&self, script: &str, more: &[&str]) -> Agent {
        let agent = env!("CARGO_BIN_EXE_albacore-agent");
        let mut command = Command::new("unshare");
        let script = format!("set -e; {script}");
        command.args(["--mount", "--propagation", "private", "sh", "-c"]);
        command.arg(script).arg(agent);
        self.spawn(command, None, more)
    }

    /// Starts an agent; if `uid` is given, as that user without capabilities.
    pub(crate) fn agent_as(&self, uid: Option<u32>, more: &[&str]) -> Agent {
        let command = Command::new(env!("CARGO_BIN_EXE_albacore-agent"));
        self.spawn(command, uid, more)
    }

    /// Starts an agent as another user without capabilities, in its own pid namespace with its own
    /// /proc; the machine's /proc is mounted at `proc`.
    pub(crate) fn agent_in_a_pid_namespace(&self, uid: u32, proc: &Path, more: &[&str]) -> Agent {
        let script = format!(
            "set -e; mount --bind /proc {}; mount -t proc proc /proc; exec setpriv --reuid {uid} --regid \
             {uid} --clear-groups --inh-caps=-all --bounding-set=-all \"$0\" \"$@\"",
            proc.display()
        );
        self.open_folders();
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "--pid", "--fork"]);
        command.args(["--kill-child", "sh", "-c"]).arg(script);
        command.arg(env!("CARGO_BIN_EXE_albacore-agent"));
        self.spawn(command, None, more)
    }

    fn spawn(&self, mut command: Command, uid: Option<u32>, more: &[&str]) -> Agent {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let home = self.folder.path().join(format!("agent-{number}"));
        fs::create_dir(&home).unwrap();
        let log = home.join("log");
        let heartbeat = home.join("heartbeat");
        command
            .args([
                "--node-name",
                NODE,
                "--log-filter",
                "info,albacore_agent=debug",
            ])
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .arg("--cgroup")
            .arg(self.cgroup_root())
            .arg("--heartbeat")
            .arg(&heartbeat)
            .args(more)
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(&log).unwrap());
        open(&home, "0777");
        if let Some(uid) = uid {
            self.open_folders();
            command.uid(uid).gid(uid);
        }
        Agent {
            child: command.spawn().unwrap(),
            log,
            heartbeat,
        }
    }

    /// Makes the files readable for agents that run as other users and groups.
    pub(crate) fn open_folders(&self) {
        open(self.folder.path(), "0755");
        open(&self.kubeconfig, "0644");
        open(self.kubeconfig.parent().unwrap(), "0755");
    }

    /// Runs a subcommand of the agent; returns its output or its error.
    pub(crate) fn run_command(&self, arguments: &[&str]) -> Result<String, String> {
        let output = Command::new(env!("CARGO_BIN_EXE_albacore-agent"))
            .args(["--node-name", NODE])
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .arg("--cgroup")
            .arg(self.cgroup_root())
            .args(arguments)
            .env_clear()
            .output()
            .unwrap();
        match output.status.success() {
            true => Ok(String::from_utf8(output.stdout).unwrap()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    /// The node's NodePlacement; null before it is created.
    pub(crate) fn node_placement(&self) -> Value {
        let path = format!("/apis/albacore.dev/v1alpha1/nodeplacements/{NODE}");
        self.plane.read(&path).unwrap_or_default()
    }

    /// Status of the NodePlacement.
    pub(crate) fn status(&self) -> Value {
        self.node_placement()["status"].clone()
    }

    /// Entry of a pod in the status.
    pub(crate) fn entry(&self, pod: &Pod) -> Value {
        let name = format!("{}/{}", pod.namespace, pod.name);
        let status = self.status();
        let pods = status["pods"].as_array().cloned().unwrap_or_default();
        pods.into_iter()
            .find(|entry| entry["pod"] == name.as_str())
            .unwrap_or_default()
    }

    /// `status/reason` of a condition of the NodePlacement; empty if it is absent.
    pub(crate) fn condition(&self, condition: &str) -> String {
        let status = self.status();
        let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions.into_iter().find(|c| c["type"] == condition);
        found
            .map(|c| {
                format!(
                    "{}/{}",
                    c["status"].as_str().unwrap(),
                    c["reason"].as_str().unwrap()
                )
            })
            .unwrap_or_default()
    }

    /// Waits until the report shows this many verified threads of a pod and none is missing.
    #[track_caller]
    pub(crate) fn wait_for_verified(&self, pod: &Pod, threads: i64) {
        wait_or(
            || {
                let entry = self.entry(pod);
                entry["verified"] == threads && entry["reason"].is_null()
            },
            || format!("{threads} threads are not verified: {:#}", self.status()),
        );
    }

    /// Waits until the report's reason for a pod contains `part`.
    #[track_caller]
    pub(crate) fn wait_for_reason(&self, pod: &Pod, part: &str) {
        wait_or(
            || {
                self.entry(pod)["reason"]
                    .as_str()
                    .is_some_and(|r| r.contains(part))
            },
            || format!("no reason with {part:?}: {:#}", self.status()),
        );
    }

    /// Reasons of all events of an object.
    pub(crate) fn events(&self, name: &str) -> Vec<String> {
        let events = self.events_of(name).into_iter();
        events
            .map(|e| e["reason"].as_str().unwrap().to_owned())
            .collect()
    }

    /// The events of an object.
    pub(crate) fn events_of(&self, name: &str) -> Vec<Value> {
        let list = self.plane.read("/apis/events.k8s.io/v1/events").unwrap();
        let items = list["items"].as_array().unwrap().iter();
        let ours = items.filter(|e| e["regarding"]["name"] == name);
        ours.cloned().collect()
    }

    /// Waits for an event of an object with this reason.
    #[track_caller]
    pub(crate) fn wait_for_event(&self, name: &str, reason: &str) {
        wait_or(
            || self.events(name).iter().any(|r| r == reason),
            || format!("no event {reason} of {name}: {:?}", self.events(name)),
        );
    }

    /// Requests of the agent so far, from the audit log.
    fn audited_requests(&self) -> Vec<Value> {
        let log = self.plane.audit_log().unwrap();
        let lines = log
            .lines()
            .filter_map(|l| serde_json::from_str::<Value>(l).ok());
        lines.filter(|r| r["user"]["username"] == AGENT).collect()
    }

    /// Writes so far that only renewed the time of the last verification: the index of the write
    /// among all writes, and the time in seconds at which the API server received it.
    pub(crate) fn renewals(&self) -> Vec<(usize, f64)> {
        let is_read = |r: &Value| {
            ["get", "list", "watch"]
                .iter()
                .any(|verb| r["verb"] == *verb)
        };
        let writes = self.audited_requests().into_iter().filter(|r| !is_read(r));
        // A whole report is applied with force.
        let is_renewal = |r: &Value| {
            let uri = r["requestURI"].as_str().unwrap();
            uri.contains("/nodeplacements/node-1/status") && !uri.contains("force=true")
        };
        let renewals = writes.enumerate().filter(|(_, r)| is_renewal(r));
        let at = |r: &Value| {
            let time = r["requestReceivedTimestamp"].as_str().unwrap();
            let time: k8s_openapi::jiff::Timestamp = time.parse().unwrap();
            time.as_microsecond() as f64 / 1e6
        };
        renewals.map(|(number, r)| (number, at(&r))).collect()
    }

    /// Requests of the agent so far, as `verb resource/part code`.
    pub(crate) fn requests(&self) -> Vec<String> {
        let ours = self.audited_requests().into_iter();
        ours.map(|r| {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let object = &r["objectRef"];
            format!(
                "{} {}/{} {}",
                text(&r["verb"]),
                text(&object["resource"]),
                text(&object["subresource"]),
                r["responseStatus"]["code"]
            )
        })
        .collect()
    }

    /// The writes among the requests.
    pub(crate) fn writes(&self) -> Vec<String> {
        let is_read = |r: &String| ["get ", "list ", "watch "].iter().any(|v| r.starts_with(v));
        self.requests()
            .into_iter()
            .filter(|r| !is_read(r))
            .collect()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        remove_cgroups(&self.cgroup);
    }
}

/// Sets the mode of a file.
fn open(path: &Path, mode: &str) {
    let status = Command::new("chmod").arg(mode).arg(path).status();
    assert!(status.unwrap().success());
}

/// Starts a program in a cgroup. A shell first moves itself there and then executes the program: as
/// with a container runtime, every process of the server starts in the cgroup.
fn spawn_in(cgroup: &Path, program: &Path, arguments: &[&str]) -> Child {
    let procs = cgroup.join("cgroup.procs");
    let script = format!("echo $$ > {} && exec \"$0\" \"$@\"", procs.display());
    Command::new("sh")
        .args(["-c", &script])
        .arg(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Creates a cgroup and its ancestors, each with all CPUs and memory nodes of `top`.
pub(crate) fn make_cgroup(path: &Path, top: &Path) {
    let missing: Vec<&Path> = path.ancestors().take_while(|p| *p != top).collect();
    for directory in missing.into_iter().rev() {
        if directory.is_dir() {
            continue;
        }
        fs::create_dir(directory).unwrap();
        for file in ["cpuset.cpus", "cpuset.mems"] {
            let above = fs::read(directory.parent().unwrap().join(file)).unwrap();
            fs::write(directory.join(file), above).unwrap();
        }
    }
}

/// Kills all processes in the cgroups and removes the cgroups; the processes exit within
/// milliseconds.
fn remove_cgroups(top: &Path) {
    for _ in 0..200 {
        let mut all = vec![top.to_owned()];
        let mut next = 0;
        while next < all.len() {
            let below = fs::read_dir(&all[next]).into_iter().flatten().flatten();
            let below = below.map(|entry| entry.path()).filter(|path| path.is_dir());
            all.extend(below.collect::<Vec<_>>());
            next += 1;
        }
        for directory in all.iter().rev() {
            let procs = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
            for pid in procs.lines() {
                let _ = Command::new("kill")
                    .args(["-KILL", pid])
                    .stderr(Stdio::null())
                    .status();
            }
            let _ = fs::remove_dir(directory);
        }
        if !top.exists() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    eprintln!("{} is left behind", top.display());
}

impl Pod {
    /// All processes of the container.
    pub(crate) fn processes(&self) -> Vec<i32> {
        processes_in(&self.cgroup)
    }

    /// Name and mask of every thread of every worker, by tid. Workers of the toy server set their
    /// thread names.
    pub(crate) fn threads(&self) -> BTreeMap<i32, (String, String)> {
        let all = self.processes().into_iter().flat_map(threads_of);
        all.filter(|(_, (name, _))| name.starts_with("albw"))
            .collect()
    }

    /// Masks of all threads of the container.
    pub(crate) fn masks(&self) -> Vec<String> {
        let all = self.processes().into_iter().flat_map(threads_of);
        all.map(|(_, (_, mask))| mask).collect()
    }

    /// Whether there are this many worker threads and each is pinned to one CPU.
    pub(crate) fn is_pinned(&self, threads: usize) -> bool {
        let all = self.threads();
        all.len() == threads && all.values().all(|(_, mask)| mask.parse::<u32>().is_ok())
    }

    /// Whether a killed worker is gone and, including its replacement, this many threads are
    /// pinned. The order of the two reads ensures that the second does not see the killed worker.
    pub(crate) fn has_replaced(&self, killed: i32, threads: usize) -> bool {
        !self.threads().contains_key(&killed) && self.is_pinned(threads)
    }

    #[track_caller]
    pub(crate) fn wait_until_pinned(&self, threads: usize) {
        wait_or(
            || self.is_pinned(threads),
            || format!("{threads} threads are not pinned: {:?}", self.threads()),
        );
    }

    /// Waits until every thread of the container has this mask.
    #[track_caller]
    pub(crate) fn wait_until_free(&self, mask: &str) {
        wait_or(
            || self.masks().iter().all(|m| m == mask),
            || format!("not all threads have {mask}: {:?}", self.threads()),
        );
    }

    /// The pid of a worker.
    pub(crate) fn worker(&self, index: u16) -> i32 {
        let name = format!("albw{index}.0");
        let threads = self.threads();
        let found = threads.iter().find(|(_, (n, _))| *n == name);
        *found.unwrap_or_else(|| panic!("no {name}: {threads:?}")).0
    }

    /// Sends the toy server a command line.
    pub(crate) fn send_command(&mut self, line: &str) {
        let server = self.server.as_mut().unwrap();
        writeln!(server.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    pub(crate) fn kill(&self, pid: i32) {
        signal(pid, "KILL");
    }

    /// Writes the cpuset of its container, like the kubelet.
    pub(crate) fn set_cpus(&self, cpus: &str) {
        fs::write(self.cgroup.join("cpuset.cpus"), cpus).unwrap();
    }

    fn end(&mut self) {
        if let Some(mut server) = self.server.take() {
            drop(server.stdin.take());
            let _ = server.kill();
            let _ = server.wait();
        }
        for pid in self.processes() {
            signal(pid, "KILL");
        }
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        self.end();
    }
}

pub(crate) fn processes_in(cgroup: &Path) -> Vec<i32> {
    let procs = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
    procs.lines().map(|pid| pid.parse().unwrap()).collect()
}

/// Name and mask of every thread of a process, from /proc.
pub(crate) fn threads_of(pid: i32) -> BTreeMap<i32, (String, String)> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let mut found = BTreeMap::new();
    for task in tasks {
        let Ok(status) = fs::read_to_string(task.path().join("status")) else {
            continue;
        };
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.map(|text| text.trim().to_owned()).unwrap_or_default()
        };
        let tid = task.file_name().to_str().unwrap().parse().unwrap();
        found.insert(tid, (field("Name:"), field("Cpus_allowed_list:")));
    }
    found
}

/// Sets a mask with `taskset`, like a foreign process.
pub(crate) fn taskset(tid: i32, mask: &str) {
    let status = Command::new("taskset")
        .args(["-cp", mask, &tid.to_string()])
        .stdout(Stdio::null())
        .status();
    assert!(status.unwrap().success());
}

pub(crate) fn signal(pid: i32, name: &str) {
    let signal = format!("-{name}");
    let _ = Command::new("kill")
        .args([&signal, &pid.to_string()])
        .stderr(Stdio::null())
        .status();
}

/// Sets a flag on drop, so that a failing test also ends its threads.
pub(crate) struct SetOnDrop<'a>(pub(crate) &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Agent {
    /// Its log output so far.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub(crate) fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// The pid of a child process with this name.
    #[track_caller]
    pub(crate) fn child_named(&self, name: &str) -> i32 {
        let path = format!("/proc/{0}/task/{0}/children", self.pid());
        let children = fs::read_to_string(path).unwrap();
        let mut pids = children.split_whitespace().map(|pid| pid.parse().unwrap());
        let is_named = |pid: &i32| {
            let comm = fs::read_to_string(format!("/proc/{pid}/comm"));
            comm.is_ok_and(|comm| comm.trim() == name)
        };
        pids.find(is_named)
            .unwrap_or_else(|| panic!("no child {name}: {children}"))
    }

    /// Sends SIGTERM and waits until the agent exits.
    pub(crate) fn stop(mut self) -> ExitStatus {
        signal(self.pid(), "TERM");
        let mut status = None;
        wait("the agent ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    /// Kills the agent with SIGKILL, like the kernel's OOM killer.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// CPU time used so far, in seconds.
    pub(crate) fn cpu_seconds(&self) -> f64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
        let after_name = stat.rsplit(')').next().unwrap();
        let ticks = after_name.split_whitespace().skip(11).take(2);
        ticks.map(|t| t.parse::<f64>().unwrap()).sum::<f64>() / 100.0
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- log of the agent\n{}", self.log());
        }
    }
}

/// Waits until a condition holds.
#[track_caller]
pub(crate) fn wait(what: &str, is_so: impl FnMut() -> bool) {
    wait_or(is_so, || format!("in vain waited until {what}"));
}

#[track_caller]
pub(crate) fn wait_or(mut is_so: impl FnMut() -> bool, otherwise: impl Fn() -> String) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < LONG, "{}", otherwise());
        std::thread::sleep(Duration::from_millis(50));
    }
}
