//! A real node for tests: kubelet, containerd and kube-proxy beside a control plane, in namespaces
//! of their own or on an emulated machine.

mod emulated;
mod files;
mod task;

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::control_plane::Place;
use crate::limits::{GUEST_TIME_MAX, LOG_TAIL_BYTES, READY_PERIOD, READY_TIME_MAX};
use crate::supervisor::{NodeSpec, Service};
use crate::test_network::{GUEST_ADDRESS, NODE_ADDRESS, TestNetwork};
use crate::{ControlPlane, Image, Options, TestbedError};
use emulated::Emulated;
pub use task::Task;

/// The image of the process that holds a pod's namespaces.
const PAUSE: &str = "testbed.albacore.dev/pause:1";

/// What a node runs on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Machine {
    /// The machine at hand, with its cpus and its kernel.
    #[default]
    Here,
    /// One of 8 cpus, with SMT, 2 NUMA nodes, cgroup v2 and Linux 6.1, emulated by QEMU: some ten
    /// times slower.
    Emulated,
}

impl Machine {
    fn address(self) -> Ipv4Addr {
        match self {
            Self::Here => NODE_ADDRESS,
            Self::Emulated => GUEST_ADDRESS,
        }
    }

    /// How long its programs may take until they are ready.
    fn patience(self) -> Duration {
        match self {
            Self::Here => READY_TIME_MAX,
            Self::Emulated => GUEST_TIME_MAX,
        }
    }
}

/// What a node is started with.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// What it runs on.
    pub machine: Machine,
    pub name: String,
    /// `none` or `static`.
    pub cpu_manager_policy: String,
    /// Cpu time kept from pods, as a quantity of Kubernetes.
    pub reserved_cpu: String,
    /// Seccomp profiles that pods can name as `localhostProfile`, with their JSON.
    pub seccomp_profiles: Vec<(String, String)>,
    /// More flags of kube-controller-manager.
    pub manager: Vec<String>,
}

impl Default for NodeOptions {
    fn default() -> Self {
        Self {
            machine: Machine::Here,
            name: "node0".into(),
            cpu_manager_policy: "static".into(),
            reserved_cpu: "500m".into(),
            seccomp_profiles: Vec::new(),
            manager: Vec::new(),
        }
    }
}

/// A running node with its control plane. Processes, mounts, network and cgroups end with this
/// value, or with the test that made it.
#[derive(Debug)]
pub struct Node {
    plane: ControlPlane,
    name: String,
    programs: PathBuf,
    machine: Machine,
    emulated: Option<Emulated>,
    // Last, so that it outlives what runs in its network.
    network: TestNetwork,
}

impl Node {
    /// Starts a control plane with a scheduler and one node, and waits until that is ready.
    ///
    /// # Errors
    /// Something is missing on this machine, or is not ready in time.
    pub fn start(options: &NodeOptions) -> Result<Self, TestbedError> {
        let programs = programs()?;
        let mut network = TestNetwork::new()?;
        let place = Place {
            address: NODE_ADDRESS,
            entrance: network.command_prefix(),
            parent: network.folder().to_owned(),
        };
        let mut plane = ControlPlane::start_at(
            place,
            &Options {
                controller_manager: true,
                manager: options.manager.clone(),
                ..Options::default()
            },
        )?;
        plane.start_scheduler()?;
        write_files(&network, &plane, &programs, options)?;
        let emulated = match options.machine {
            Machine::Here => network.start_node().map(|()| None),
            Machine::Emulated => Emulated::start(&network, &programs, plane.programs()).map(Some),
        }?;
        let node = Self {
            plane,
            name: options.name.clone(),
            programs,
            machine: options.machine,
            emulated,
            network,
        };
        let pause = node.network.folder().join("pause.tar");
        let image = Image {
            reference: PAUSE.into(),
            program: node.network.program().to_owned(),
            arguments: vec!["pause".into()],
            user: 65_535,
            files: Vec::new(),
        };
        image.write(&pause)?;
        let ctr = node.programs.join("ctr");
        let ctr = ctr.to_string_lossy();
        let socket = node.socket();
        let version = [&*ctr, "--address", &socket, "version"];
        let succeeds = |words| node.exec(words).is_ok_and(|output| output.status.success());
        node.wait_until("containerd", || succeeds(&version))?;
        node.import(&pause)?;
        node.wait_until("kubelet", || node.is_ready())?;
        Ok(node)
    }

    /// Its control plane.
    pub fn plane(&self) -> &ControlPlane {
        &self.plane
    }

    /// Its control plane, to be changed.
    pub fn plane_mut(&mut self) -> &mut ControlPlane {
        &mut self.plane
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its address, which is the control plane's too unless it is emulated.
    pub fn address(&self) -> Ipv4Addr {
        self.machine.address()
    }

    /// The folder of its logs and files, as it sees it too.
    pub fn folder(&self) -> &Path {
        self.network.folder()
    }

    /// The pid of the process that keeps its network and takes it down.
    pub fn supervisor_pid(&self) -> u32 {
        self.network.supervisor_pid()
    }

    /// Puts the images of an archive onto the node.
    ///
    /// # Errors
    /// containerd refuses it, in its words.
    pub fn import(&self, archive: &Path) -> Result<(), TestbedError> {
        let (ctr, socket) = (self.programs.join("ctr"), self.socket());
        let ctr = ctr.to_string_lossy();
        let into = [&*ctr, "--address", &socket, "--namespace", "k8s.io"];
        let import = ["images", "import", "--no-unpack", "-"];
        let mut task = self.begin(&[&into[..], &import].concat())?;
        let mut file = std::fs::File::open(archive).map_err(TestbedError::file(archive))?;
        // Whoever does not read it all says why.
        let _ = task.feed(&mut file);
        let output = task.end().map_err(TestbedError::file(&*ctr))?;
        if output.status.success() {
            return Ok(());
        }
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        Err(TestbedError::Node { message })
    }

    /// Runs a command inside the node: its processes, its mounts, its network. Its input is empty.
    ///
    /// # Errors
    /// It cannot be run at all.
    pub fn exec(&self, words: &[&str]) -> Result<Output, TestbedError> {
        let task = self.begin(words)?;
        let program = words.first().unwrap_or(&"");
        task.end().map_err(TestbedError::file(program))
    }

    /// Starts a command inside the node, which then has an input.
    ///
    /// # Errors
    /// It cannot be run at all.
    pub fn begin(&self, words: &[&str]) -> Result<Task, TestbedError> {
        if let Some(emulated) = &self.emulated {
            return emulated.begin(&self.network, words);
        }
        let (program, arguments) = words.split_first().unwrap_or((&"true", &[]));
        let mut command = self.command(Path::new(program))?;
        let pipe = Stdio::piped;
        command.args(arguments);
        command.stdin(pipe()).stdout(pipe()).stderr(pipe());
        let child = command.spawn().map_err(TestbedError::file(program))?;
        Ok(Task::of(child))
    }

    /// Runs `work` in the node's network, where pods and Services are: what it opens there stays
    /// there.
    ///
    /// # Errors
    /// The node is gone.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, TestbedError> {
        self.network.within(work)
    }

    /// Kills one of the node's own programs (`kubelet`, `containerd`, `kube-proxy`); it is started
    /// again.
    ///
    /// # Errors
    /// There is no such program.
    pub fn kill(&self, service: &str) -> Result<(), TestbedError> {
        let children = self.read("/proc/1/task/1/children")?;
        let is_it = |pid: &&str| {
            let comm = self.read(&format!("/proc/{pid}/comm"));
            comm.is_ok_and(|comm| comm.trim() == service)
        };
        let pid = children.split_whitespace().find(is_it);
        let killed = pid.map(|pid| self.exec(&["kill", "-KILL", pid]));
        match killed {
            Some(Ok(output)) if output.status.success() => Ok(()),
            _ => Err(TestbedError::Node {
                message: format!("no {service} runs on {}", self.name),
            }),
        }
    }

    /// A text file, as the node sees it.
    ///
    /// # Errors
    /// There is no such file.
    pub fn read(&self, path: &str) -> Result<String, TestbedError> {
        let output = self.exec(&["cat", path])?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match output.status.success() {
            true => Ok(text(&output.stdout)),
            false => Err(TestbedError::Node {
                message: text(&output.stderr),
            }),
        }
    }

    /// What a command line begins with to run in a node on this machine, for people.
    ///
    /// # Errors
    /// The node is gone, or emulated.
    pub fn entrance(&self) -> Result<String, TestbedError> {
        let command = self.command(Path::new("bash"))?;
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
        Ok(words.join(" "))
    }

    fn socket(&self) -> String {
        let socket = self.network.folder().join("containerd.sock");
        socket.to_string_lossy().into_owned()
    }

    /// A command inside the node.
    fn command(&self, program: &Path) -> Result<Command, TestbedError> {
        let first = self.network.first_process()?;
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--target={first}"))
            .args([
                "--mount", "--pid", "--net", "--uts", "--ipc", "--cgroup", "--",
            ])
            .arg(program)
            .stdin(Stdio::null());
        Ok(command)
    }

    fn is_ready(&self) -> bool {
        let path = r#"jsonpath={.status.conditions[?(@.type=="Ready")].status}"#;
        let output = self.plane.kubectl(&["get", "node", &self.name, "-o", path]);
        output.is_ok_and(|output| output.stdout == b"True")
    }

    fn wait_until(
        &self,
        program: &'static str,
        is_done: impl Fn() -> bool,
    ) -> Result<(), TestbedError> {
        let (start, patience) = (Instant::now(), self.machine.patience());
        // bound: READY_TIME_MAX, GUEST_TIME_MAX
        while !is_done() {
            // Its first process ends by itself only where a mount or a program is refused.
            match &self.emulated {
                None => self.network.first_process().map(drop),
                Some(emulated) => emulated.check(),
            }?;
            if start.elapsed() > patience {
                return Err(TestbedError::NotReady {
                    program,
                    seconds: patience.as_secs(),
                    tail: self.tail(program),
                });
            }
            std::thread::sleep(READY_PERIOD);
        }
        Ok(())
    }

    /// The end of what a program of the node wrote, or of what the machine says where there is
    /// none.
    fn tail(&self, program: &str) -> String {
        let log = self.network.folder().join(format!("{program}.log"));
        let text = match &self.emulated {
            None => std::fs::read_to_string(&log).unwrap_or_default(),
            Some(emulated) => self
                .read(&log.to_string_lossy())
                .unwrap_or_else(|_| emulated.console()),
        };
        // infallible: 4,000
        #[allow(clippy::cast_possible_truncation)]
        let from = text.len().saturating_sub(LOG_TAIL_BYTES as usize);
        text.get(from..).unwrap_or_default().to_owned()
    }
}

/// The folder with containerd, runc and CNI plugins; fetches them the first time.
fn programs() -> Result<PathBuf, TestbedError> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/node/programs.sh");
    crate::program::folder_of(&script)
}

fn write_files(
    network: &TestNetwork,
    plane: &ControlPlane,
    programs: &Path,
    options: &NodeOptions,
) -> Result<(), TestbedError> {
    let folder = network.folder();
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).map_err(TestbedError::file(path))
    };
    let make = |name: &str| {
        let path = folder.join(name);
        std::fs::create_dir_all(&path).map_err(TestbedError::file(path))
    };
    let name = &options.name;
    let address = options.machine.address().to_string();
    let kubelet = plane.authority().server(name, &[name, &address])?;
    let user = format!("system:node:{name}");
    let config = plane.kubeconfig_of(&user, Some("system:nodes"))?;
    let proxy = plane.kubeconfig_of("system:kube-proxy", None)?;
    std::os::unix::fs::symlink(&proxy, folder.join("proxy.kubeconfig"))
        .map_err(TestbedError::file(&proxy))?;
    make("cni")?;
    make("kubelet/seccomp")?;
    for (profile, text) in &options.seccomp_profiles {
        let above = Path::new(profile).parent().unwrap_or(Path::new(""));
        make(&format!("kubelet/seccomp/{}", above.display()))?;
        write(&format!("kubelet/seccomp/{profile}"), text)?;
    }
    write("kubelet.crt", &kubelet.certificate)?;
    write("kubelet.key", &kubelet.key)?;
    write("resolv.conf", "")?;
    write("cni/pods.conflist", files::cni())?;
    write(
        "containerd.toml",
        &files::containerd(folder, programs, PAUSE),
    )?;
    let authority = plane.folder().join("ca.crt");
    write("kubelet.yaml", &files::kubelet(folder, &authority, options))?;
    write("proxy.yaml", &files::proxy(folder, name))?;
    let spec = node_spec(folder, plane.programs(), programs, &config, options);
    let spec = serde_json::to_string(&spec).map_err(|error| TestbedError::Node {
        message: error.to_string(),
    })?;
    write("node.json", &spec)
}

fn node_spec(
    folder: &Path,
    kubernetes: &Path,
    programs: &Path,
    config: &Path,
    options: &NodeOptions,
) -> NodeSpec {
    let NodeOptions { name, machine, .. } = options;
    let socket = folder.join("containerd.sock");
    let path = format!(
        "{}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        programs.display()
    );
    let service = |folder: &Path, name: &str, arguments: &[String], after: Option<&Path>| {
        let mut command = vec![folder.join(name).display().to_string()];
        command.extend_from_slice(arguments);
        Service {
            name: name.to_owned(),
            command,
            after: after.map(Path::to_owned),
            path: path.clone(),
        }
    };
    let here = folder.display();
    let kubelet = [
        format!("--config={here}/kubelet.yaml"),
        format!("--kubeconfig={}", config.display()),
        format!("--root-dir={here}/kubelet"),
        format!("--cert-dir={here}/kubelet/pki"),
        format!("--hostname-override={name}"),
        format!("--node-ip={}", machine.address()),
    ];
    let entrance = (*machine == Machine::Emulated).then(|| Service {
        name: "serve".to_owned(),
        command: Emulated::service(),
        after: None,
        path: path.clone(),
    });
    NodeSpec {
        host_name: name.to_owned(),
        services: entrance
            .into_iter()
            .chain([
                service(
                    programs,
                    "containerd",
                    &[format!("--config={here}/containerd.toml")],
                    None,
                ),
                service(
                    kubernetes,
                    "kube-proxy",
                    &[format!("--config={here}/proxy.yaml")],
                    None,
                ),
                service(kubernetes, "kubelet", &kubelet, Some(&socket)),
            ])
            .collect(),
    }
}
