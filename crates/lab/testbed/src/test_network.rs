//! A network namespace for a control plane and a node, and the supervisor process that owns it.
//!
//! The namespace is isolated in both directions, so that it occupies no address of the machine and
//! changes no firewall rule; programs that need to reach it join the namespace.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use nix::sched::{CloneFlags, setns};
use tempfile::TempDir;

use crate::supervisor::{DEVICE, NODE, READY};
use crate::{TestbedError, product};

/// The address of an emulated node.
pub(crate) const GUEST_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 123, 0, 3);

/// The network, its supervisor, and the folder of its files and logs.
#[derive(Debug)]
pub struct TestNetwork {
    supervisor: Child,
    commands: Option<ChildStdin>,
    replies: BufReader<ChildStdout>,
    program: PathBuf,
    folder: TempDir,
}

impl TestNetwork {
    /// The address of the node and of the control plane.
    pub const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 123, 0, 2);

    /// A network with a bridge, which has [`TestNetwork::ADDRESS`].
    ///
    /// # Errors
    /// The caller may not create a network, or there is no `ip`.
    pub fn new() -> Result<Self, TestbedError> {
        Self::supervised(&["bridge"])
    }

    /// A network with one device, which has `address` and is connected to the bridge of `other`;
    /// `other` routes `pods` through it.
    ///
    /// # Errors
    /// As [`TestNetwork::new`].
    pub(crate) fn connected(
        other: &Self,
        number: u8,
        address: Ipv4Addr,
        pods: &str,
    ) -> Result<Self, TestbedError> {
        let network = Self::supervised(&["device"])?;
        let (end, pid) = (veth_name(number), network.supervisor_pid().to_string());
        let (with_mask, gateway) = (format!("{address}/24"), Self::ADDRESS.to_string());
        let by = address.to_string();
        other.ip(&[
            "link", "add", &end, "type", "veth", "peer", "name", DEVICE, "netns", &pid,
        ])?;
        other.ip(&["link", "set", &end, "master", DEVICE, "up"])?;
        network.ip(&["address", "add", &with_mask, "dev", DEVICE])?;
        network.ip(&["link", "set", DEVICE, "up"])?;
        network.ip(&["route", "add", "default", "via", &gateway])?;
        other.ip(&["route", "add", pods, "via", &by])?;
        Ok(network)
    }

    /// Disconnects the veth pair that [`TestNetwork::connected`] created.
    ///
    /// # Errors
    /// There is no such veth pair.
    pub(crate) fn disconnect(&self, number: u8) -> Result<(), TestbedError> {
        self.ip(&["link", "set", &veth_name(number), "down"])
    }

    /// Runs `ip` in this network.
    ///
    /// # Errors
    /// The message of `ip`.
    pub(crate) fn ip(&self, words: &[&str]) -> Result<(), TestbedError> {
        let command_prefix = self.command_prefix();
        let mut command = Command::new(&command_prefix[0]);
        command.args(&command_prefix[1..]).arg("ip").args(words);
        let output = command.output().map_err(TestbedError::file("ip"))?;
        if output.status.success() {
            return Ok(());
        }
        let error = String::from_utf8_lossy(&output.stderr);
        Err(TestbedError::Node {
            message: format!("ip {words:?}: {error}"),
        })
    }

    fn supervised(words: &[&str]) -> Result<Self, TestbedError> {
        let program = product("albacore-testbed")?;
        let folder = TempDir::with_prefix("albacore-network-")
            .map_err(TestbedError::file("a temporary folder"))?;
        let log = folder.path().join("supervisor.log");
        let log = File::create(&log).map_err(TestbedError::file(log))?;
        let mut supervisor = Command::new(&program)
            .arg("supervise")
            .args(words)
            .arg(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            // Ctrl-C in the terminal must only reach the test: the supervisor cleans up after it.
            .process_group(0)
            .spawn()
            .map_err(TestbedError::file(&program))?;
        let (Some(commands), Some(replies)) = (supervisor.stdin.take(), supervisor.stdout.take())
        else {
            return Err(TestbedError::Node {
                message: "it has no pipes".into(),
            });
        };
        let mut network = Self {
            supervisor,
            commands: Some(commands),
            replies: BufReader::new(replies),
            program,
            folder,
        };
        network.expect(READY)?;
        Ok(network)
    }

    /// Starts the node that the files of the folder describe.
    ///
    /// # Errors
    /// The error that the supervisor logged.
    pub(crate) fn start_node(&mut self) -> Result<(), TestbedError> {
        let commands = self.commands.as_mut();
        let sent =
            commands.map(|commands| writeln!(commands, "{NODE}").and_then(|()| commands.flush()));
        drop(sent); // A failure shows in the reply.
        self.expect(NODE)
    }

    fn expect(&mut self, word: &str) -> Result<(), TestbedError> {
        let mut line = String::new();
        let read = self.replies.read_line(&mut line);
        if read.is_ok() && line.trim() == word {
            return Ok(());
        }
        let log = self.folder.path().join("supervisor.log");
        Err(TestbedError::Node {
            message: std::fs::read_to_string(log).unwrap_or_default(),
        })
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn supervisor_pid(&self) -> u32 {
        self.supervisor.id()
    }

    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    fn namespace_file(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/ns/net", self.supervisor.id()))
    }

    /// Command prefix that enters this network.
    pub(crate) fn command_prefix(&self) -> Vec<OsString> {
        let network = format!("--net={}", self.namespace_file().display());
        vec!["nsenter".into(), network.into(), "--".into()]
    }

    /// Pid of the node's init process.
    pub(crate) fn first_process(&self) -> Result<u32, TestbedError> {
        // supervisor -> unshare -> first process
        let child = |of: u32| -> Option<u32> {
            let children = format!("/proc/{of}/task/{of}/children");
            let text = std::fs::read_to_string(children).ok()?;
            text.split_whitespace().next()?.parse().ok()
        };
        child(self.supervisor.id())
            .and_then(child)
            .ok_or_else(|| TestbedError::Node {
                message: std::fs::read_to_string(self.folder().join("init.log"))
                    .unwrap_or_default(),
            })
    }

    /// Runs `work` on a thread in this network: sockets that it opens belong to the namespace.
    ///
    /// # Errors
    /// The network no longer exists.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, TestbedError> {
        let path = self.namespace_file();
        let network = File::open(&path).map_err(TestbedError::file(&path))?;
        let enter = move || {
            setns(network, CloneFlags::CLONE_NEWNET).map_err(std::io::Error::from)?;
            Ok(work())
        };
        std::thread::scope(|scope| {
            let joined = scope.spawn(enter).join();
            match joined {
                Ok(done) => done.map_err(TestbedError::file(path)),
                // The caller's own panic.
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }
}

/// The veth end on the bridge that is connected to another network.
fn veth_name(number: u8) -> String {
    format!("to-node{number}")
}

impl Drop for TestNetwork {
    fn drop(&mut self) {
        // The supervisor cleans up and exits at the end of its input.
        drop(self.commands.take());
        let _ = self.supervisor.wait();
    }
}
