//! Environment of a node's programs (kubelet, containerd and kube-proxy): separate namespaces or an
//! emulated machine.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use super::emulated::Emulated;
use super::{Machine, NodeNumber, NodeOptions, Task, configuration};
use crate::limits::{LOG_TAIL_BYTES, READY_PERIOD};
use crate::test_network::TestNetwork;
use crate::{ControlPlane, Image, TestbedError};

/// Image of the pause process, which holds a pod's namespaces.
pub(super) const PAUSE: &str = "testbed.albacore.dev/pause:1";

/// The programs of a node and their environment. Processes, mounts, network and cgroups are removed
/// immediately on drop, as if the machine failed; or when the test that created it ends.
#[derive(Debug)]
pub struct Host {
    name: String,
    programs: PathBuf,
    machine: Machine,
    number: NodeNumber,
    emulated: Option<Emulated>,
    // Last, so that it is dropped after the processes in its network.
    network: TestNetwork,
}

impl Host {
    /// Starts a node of `plane` in `network`, and waits until it is ready.
    pub(super) fn start(
        mut network: TestNetwork,
        plane: &ControlPlane,
        number: NodeNumber,
        options: &NodeOptions,
    ) -> Result<Self, TestbedError> {
        let programs = programs()?;
        configuration::write(&network, plane, &programs, number, options)?;
        let emulated = match options.machine {
            Machine::Here => network.start_node().map(|()| None),
            Machine::Emulated => Emulated::start(&network, &programs, plane.programs()).map(Some),
        }?;
        let host = Self {
            name: options.name.clone(),
            programs,
            machine: options.machine,
            number,
            emulated,
            network,
        };
        let pause = host.network.folder().join("pause.tar");
        let image = Image {
            reference: PAUSE.into(),
            program: host.network.program().to_owned(),
            arguments: vec!["pause".into()],
            user: 65_535,
            files: Vec::new(),
        };
        image.write(&pause)?;
        let ctr = host.programs.join("ctr");
        let ctr = ctr.to_string_lossy();
        let socket = host.socket();
        let version = [&*ctr, "--address", &socket, "version"];
        let succeeds = |words| host.exec(words).is_ok_and(|output| output.status.success());
        host.wait_until("containerd", || succeeds(&version))?;
        host.import(&pause)?;
        host.wait_until("kubelet", || host.is_ready(plane))?;
        Ok(host)
    }

    pub(super) fn network(&self) -> &TestNetwork {
        &self.network
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Address of the node; the first node shares that of the control plane, unless it is emulated.
    pub fn address(&self) -> Ipv4Addr {
        self.machine.address(self.number)
    }

    /// Folder of its logs and files; its path is the same inside the node.
    pub fn folder(&self) -> &Path {
        self.network.folder()
    }

    /// Pid of the process that owns its network and removes it.
    pub fn supervisor_pid(&self) -> u32 {
        self.network.supervisor_pid()
    }

    /// Imports the images of an archive into containerd.
    ///
    /// # Errors
    /// containerd rejects it; the error contains its message.
    pub fn import(&self, archive: &Path) -> Result<(), TestbedError> {
        let (ctr, socket) = (self.programs.join("ctr"), self.socket());
        let ctr = ctr.to_string_lossy();
        let into = [&*ctr, "--address", &socket, "--namespace", "k8s.io"];
        let import = ["images", "import", "--no-unpack", "-"];
        let mut task = self.begin(&[&into[..], &import].concat())?;
        let mut file = std::fs::File::open(archive).map_err(TestbedError::file(archive))?;
        // A command that stops reading early reports the reason.
        let _ = task.feed(&mut file);
        let output = task.end().map_err(TestbedError::file(&*ctr))?;
        if output.status.success() {
            return Ok(());
        }
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        Err(TestbedError::Node { message })
    }

    /// Runs a command inside the node, in its namespaces. Standard input is empty.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn exec(&self, words: &[&str]) -> Result<Output, TestbedError> {
        let task = self.begin(words)?;
        let program = words.first().unwrap_or(&"");
        task.end().map_err(TestbedError::file(program))
    }

    /// Starts a command inside the node, with a standard input.
    ///
    /// # Errors
    /// It cannot be started.
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

    /// Runs `work` in the node's network, which contains pods and Services; sockets that it opens
    /// remain there.
    ///
    /// # Errors
    /// The node no longer exists.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, TestbedError> {
        self.network.within(work)
    }

    /// Kills one of the node's own programs (`kubelet`, `containerd`, `kube-proxy`); it is
    /// restarted.
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

    /// Reads a text file inside the node.
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

    /// Command prefix that enters a node on this machine, for interactive use.
    ///
    /// # Errors
    /// The node no longer exists, or is emulated.
    pub fn shell_command(&self) -> Result<String, TestbedError> {
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

    fn is_ready(&self, plane: &ControlPlane) -> bool {
        let path = r#"jsonpath={.status.conditions[?(@.type=="Ready")].status}"#;
        let output = plane.kubectl(&["get", "node", &self.name, "-o", path]);
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
            // Its init process exits only if a mount or a program fails.
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

    /// The end of the log of a program of the node, or of the console of an emulated machine if
    /// there is none.
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

/// Folder with containerd, runc and CNI plugins, which are downloaded at the first use.
fn programs() -> Result<PathBuf, TestbedError> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/node/programs.sh");
    crate::program::program_folder(&script)
}
