//! The node and operations of users on it.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use albacore_testbed::{Host, Image, Machine, Node, NodeOptions, product, product_of};

use crate::kernel::{self, Thread};

/// Default registry of the chart's images.
const REGISTRY: &str = "registry.albacore.dev/albacore";

/// Package and user of the programs in images.
const IMAGES: [(&str, u32); 4] = [
    ("albacore-agent", 0),
    ("albacore-controller", 65_532),
    ("albacore-params", 65_532),
    ("albacore-server", 65_532),
];

/// Set by `make e2e` to the absolute path of the directory with the archives of `make images`.
pub(crate) const MADE: &str = "ALBACORE_IMAGES";

/// The namespace of the release.
pub(crate) const SYSTEM: &str = "albacore-system";

/// The namespace of the agent.
pub(crate) const AGENT: &str = "albacore-agent";

/// For liveness only: the machine may be busy with other things.
const LONG: Duration = Duration::from_secs(300);

pub(crate) struct Rig {
    pub(crate) node: Node,
    folder: tempfile::TempDir,
}

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap()
}

impl Rig {
    pub(crate) fn start() -> Self {
        Self::start_on(Machine::Here)
    }

    pub(crate) fn start_on(machine: Machine) -> Self {
        Self::start_with(NodeOptions {
            machine,
            ..NodeOptions::default()
        })
    }

    pub(crate) fn start_with(options: NodeOptions) -> Self {
        let start = Instant::now();
        let node = Node::start(&Self::with_profile(options)).unwrap();
        println!("{:6.2} s: node", start.elapsed().as_secs_f64());
        Self {
            node,
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// These options with the agent's seccomp profile added.
    pub(crate) fn with_profile(options: NodeOptions) -> NodeOptions {
        let profile = root().join("charts/albacore/files/seccomp/agent.json");
        let profile = std::fs::read_to_string(profile).unwrap();
        NodeOptions {
            seccomp_profiles: vec![("albacore/agent.json".into(), profile)],
            ..options
        }
    }

    /// Runs one step and prints its duration; prints the state of the node on failure.
    pub(crate) fn step(&mut self, what: &str, work: impl FnOnce(&mut Self)) {
        let start = Instant::now();
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(self)));
        println!("{:6.2} s: {what}", start.elapsed().as_secs_f64());
        if let Err(panic) = done {
            self.print_state();
            std::panic::resume_unwind(panic);
        }
    }

    /// Prints the state of the cluster.
    pub(crate) fn print_state(&self) {
        for words in [
            &["get", "pods", "-A", "-o", "wide"][..],
            &["get", "events", "-A", "--sort-by=.lastTimestamp"],
            &["get", "infd,nodeplacements", "-A", "-o", "yaml"],
            &[
                "logs",
                "-n",
                SYSTEM,
                "-l",
                "app.kubernetes.io/name=albacore",
                "--tail=30",
            ],
        ] {
            println!("--- kubectl {}", words.join(" "));
            let output = self.node.plane().kubectl(words).unwrap();
            println!("{}", String::from_utf8_lossy(&output.stdout));
            println!("{}", String::from_utf8_lossy(&output.stderr));
        }
    }

    /// Whether this is the test of the release, with the output of `make images`.
    pub(crate) fn is_release(&self) -> bool {
        std::env::var_os(MADE).is_some()
    }

    /// A directory of this test.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Imports images with programs of the current build profile, or the archives of `make images`.
    pub(crate) fn import_images(&mut self) {
        self.import_images_to(&self.node);
    }

    /// The same for another node.
    pub(crate) fn import_images_to(&self, host: &Host) {
        let made = std::env::var_os(MADE).map(PathBuf::from);
        for (package, user) in IMAGES {
            let archive = match &made {
                Some(folder) => folder.join(package).with_extension("tar"),
                None => self.image(package, user),
            };
            host.import(&archive).unwrap();
        }
    }

    /// Imports the image of `albacore experiment --node` on the node.
    pub(crate) fn import_experiment_image(&self) {
        let name = "albacore-experiment";
        let archive = match std::env::var_os(MADE).map(PathBuf::from) {
            Some(folder) => folder.join(name).with_extension("tar"),
            None => {
                let cli = product_of("albacore-cli", "albacore").unwrap();
                let others = ["albacore-server", "albacore-params"];
                let mut files = vec![("/albacore".to_owned(), cli)];
                files.extend(others.map(|other| (format!("/{other}"), product(other).unwrap())));
                let archive = self.folder.path().join(name).with_extension("tar");
                let image = Image {
                    reference: format!("{REGISTRY}/{name}:{}", env!("CARGO_PKG_VERSION")),
                    program: product_of("albacore-lab-commands", "albacore-lab").unwrap(),
                    user: 65_532,
                    files,
                    ..Image::default()
                };
                image.write(&archive).unwrap();
                archive
            }
        };
        self.node.import(&archive).unwrap();
    }

    fn image(&self, package: &str, user: u32) -> PathBuf {
        let archive = self.folder.path().join(package).with_extension("tar");
        let image = Image {
            reference: format!("{REGISTRY}/{package}:{}", env!("CARGO_PKG_VERSION")),
            program: product(package).unwrap(),
            user,
            ..Image::default()
        };
        image.write(&archive).unwrap();
        archive
    }

    /// Runs one of the cluster's programs and asserts success.
    #[track_caller]
    pub(crate) fn run(&self, program: &str, words: &[&str]) -> String {
        let output = self.node.plane().run(program, words).unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program} {words:?}: {said}");
        String::from_utf8(output.stdout).unwrap()
    }

    #[track_caller]
    pub(crate) fn kubectl(&self, words: &[&str]) -> String {
        self.run("kubectl", words)
    }

    /// The command `albacore` as an administrator.
    pub(crate) fn command(&self, words: &[&str]) -> std::process::Command {
        Self::command_as(self.node.plane().kubeconfig(), words)
    }

    /// The command `albacore` with this kubeconfig.
    pub(crate) fn command_as(kubeconfig: &Path, words: &[&str]) -> std::process::Command {
        let program = product_of("albacore-cli", "albacore").unwrap();
        let mut command = std::process::Command::new(program);
        command
            .args(words)
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .env_clear();
        command
    }

    /// Runs `albacore` as an administrator.
    pub(crate) fn try_albacore(&self, words: &[&str]) -> std::process::Output {
        let mut command = self.command(words);
        // The API server is reachable only in the node's network.
        self.node.within(move || command.output()).unwrap().unwrap()
    }

    /// Runs `albacore` as an administrator and asserts success.
    #[track_caller]
    pub(crate) fn albacore(&self, words: &[&str]) -> String {
        let output = self.try_albacore(words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "albacore {words:?}: {said}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Installs or upgrades the chart like a user, and waits until its pods are ready. The node has
    /// no DNS, so servers reach albacore-params by address.
    pub(crate) fn helm(&self, verb: &str, values: &[&str]) {
        let chart = root().join("charts/albacore");
        let mut words = vec![
            verb,
            "albacore",
            chart.to_str().unwrap(),
            "--namespace",
            SYSTEM,
        ];
        words.extend(["--create-namespace", "--wait", "--timeout=300s"]);
        words.extend(["--set", "params.service.clusterIP=10.96.100.100"]);
        words.extend(values.iter().flat_map(|value| ["--set", value]));
        if verb == "upgrade" {
            words.retain(|word| *word != "--create-namespace");
        }
        self.run("helm", &words);
        // With one node, Helm considers the DaemonSet ready even while its pod is unavailable.
        self.wait_for_agent();
    }

    pub(crate) fn wait_for_agent(&self) {
        self.kubectl(&[
            "rollout",
            "status",
            "daemonset/albacore-agent",
            "-n",
            AGENT,
            "--timeout=300s",
        ]);
    }

    /// Runs a subcommand of the agent in its container; returns its output, or `None` if it failed.
    pub(crate) fn ask_agent(&self, command: &str) -> Option<String> {
        let words = [
            "exec",
            "-n",
            AGENT,
            "daemonset/albacore-agent",
            "-c",
            "agent",
            "--",
        ];
        let words = [&words[..], &["/albacore-agent", command]].concat();
        let output = self.node.plane().kubectl(&words).ok()?;
        let text = String::from_utf8(output.stdout).unwrap();
        output.status.success().then_some(text)
    }

    pub(crate) fn uid(&self, namespace: &str, selector: &str) -> Option<String> {
        let path = format!("/api/v1/namespaces/{namespace}/pods");
        let pods = self.node.plane().list(&path, selector).ok()?;
        let uid = pods.first()?["metadata"]["uid"].as_str()?;
        Some(uid.to_owned())
    }

    /// The main process of the server, by its pid on this machine.
    #[track_caller]
    pub(crate) fn front(&self) -> i32 {
        self.find_front().unwrap()
    }

    /// The same for the first pod; `None` if there is no pod, or it has not started.
    pub(crate) fn find_front(&self) -> Option<i32> {
        let uid = self.uid("default", "albacore.dev/deployment=fraud")?;
        kernel::find("albacore-server", &uid)
    }

    /// The masks of all worker threads.
    pub(crate) fn masks(&self) -> BTreeMap<Thread, String> {
        kernel::masks(&kernel::workers(self.front()))
    }

    pub(crate) fn find_agent(&self) -> Option<i32> {
        let uid = self.uid(AGENT, "app.kubernetes.io/component=agent")?;
        kernel::find("albacore-agent", &uid)
    }

    #[track_caller]
    pub(crate) fn agent(&self) -> i32 {
        self.find_agent().unwrap()
    }

    /// Kills a process with SIGKILL.
    pub(crate) fn kill(&self, pid: i32) {
        kernel::signal(pid, "KILL");
    }

    pub(crate) fn apply(&self, name: &str, text: &str) {
        let file = self.file(&format!("{name}.yaml"), text);
        self.kubectl(&["apply", "-f", file.to_str().unwrap()]);
    }

    pub(crate) fn uninstall(&self) {
        self.run(
            "helm",
            &[
                "uninstall",
                "albacore",
                "--namespace",
                SYSTEM,
                "--wait",
                "--timeout=300s",
            ],
        );
    }

    /// Applies the example with its model in a ConfigMap instead of in a file.
    pub(crate) fn apply_fraud(&self) {
        let model = root().join("examples/fraud.ubj");
        let from = format!("--from-file=fraud.ubj={}", model.display());
        self.kubectl(&["create", "configmap", "fraud-model", &from]);
        let example = std::fs::read_to_string(root().join("examples/fraud.yaml")).unwrap();
        let uri = "file://./fraud.ubj";
        assert!(example.contains(uri), "{example}");
        // a quota that lets all threads run, for later resizing
        let resources = "spec:\n  resources: {requests: {cpu: 100m}, limits: {cpu: \"4\"}}\n";
        let example = example.replacen("spec:\n", resources, 1);
        let file = self.file(
            "fraud.yaml",
            &example.replace(uri, "configmap://fraud-model/fraud.ubj"),
        );
        self.kubectl(&["apply", "-f", file.to_str().unwrap()]);
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// The reply to the example's request through the Service.
    pub(crate) fn predict(&self) -> String {
        let service = self.kubectl(&[
            "get",
            "service",
            "fraud",
            "-o",
            "jsonpath={.spec.clusterIP}",
        ]);
        let body = std::fs::read_to_string(root().join("examples/fraud_request.json")).unwrap();
        let address = format!("{service}:8080");
        self.wait_until("an answer through the Service", || {
            let answer = self.http(&address, "POST /v2/models/fraud/infer", &body);
            answer.filter(|answer| answer.starts_with("HTTP/1.1 200"))
        })
    }

    /// The value at this JSON pointer in the server's state.
    pub(crate) fn state(&self, pointer: &str) -> Option<serde_json::Value> {
        let path = "/api/v1/namespaces/default/pods";
        let pods = self
            .node
            .plane()
            .list(path, "albacore.dev/deployment=fraud");
        let pods = pods.ok()?;
        let address = format!("{}:8080", pods.first()?["status"]["podIP"].as_str()?);
        let answer = self.http(&address, "GET /albacore/v1/state", "")?;
        let (_, body) = answer.split_once("\r\n\r\n")?;
        let state: serde_json::Value = serde_json::from_str(body).ok()?;
        state.pointer(pointer).cloned()
    }

    /// Sends one request from the node's network.
    pub(crate) fn http(&self, address: &str, request: &str, body: &str) -> Option<String> {
        let ask = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect(address)?;
            stream.set_read_timeout(Some(Duration::from_secs(10)))?;
            let length = body.len();
            write!(
                stream,
                "{request} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
            )?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        self.node.within(ask).unwrap().ok()
    }

    /// Polls until `ask` returns a value.
    #[track_caller]
    pub(crate) fn wait_until<T>(&self, what: &str, ask: impl Fn() -> Option<T>) -> T {
        let start = Instant::now();
        while start.elapsed() < LONG {
            if let Some(answer) = ask() {
                println!(
                    "         {:6.3} s until {what}",
                    start.elapsed().as_secs_f64()
                );
                return answer;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("{what}: not within {} s", LONG.as_secs());
    }
}
