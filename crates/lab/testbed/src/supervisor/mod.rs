//! The supervisor: a process that owns everything that the node of a test creates on the machine,
//! and outlives the test.
//!
//! It creates a network namespace, then reads standard input. A line `node` starts a node. The end
//! of the input means that the test has ended, normally or not: processes, mounts and network
//! disappear with their namespaces; cgroups and folder are removed explicitly.

mod cgroups;
mod guest;
mod init;
mod pause;
mod serve;
mod watch;

use std::io::{BufRead as _, Error, Result, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::limits::{REMOVAL_PERIOD, REMOVAL_TIME_MAX};
use crate::test_network::TestNetwork;

pub use guest::guest;
pub use init::init;
pub use pause::pause;
pub use serve::serve;
pub use watch::{PodMasks, watch};

pub(crate) use guest::{MACHINE, Machine};
pub(crate) use init::{NodeSpec, Service};
pub(crate) use serve::CommandResult;

/// The line that the supervisor prints when its network is ready.
pub(crate) const READY: &str = "ready";

/// The command that starts a node, and its reply.
pub(crate) const NODE: &str = "node";

/// Device of a node's network: a bridge, or one end of a veth pair to the bridge of another
/// network.
pub(crate) const DEVICE: &str = "node0";

/// Owns a network, and a node if one is requested, until the end of standard input; then removes
/// `folder`. Without `has_bridge` its only device is provided by the caller.
///
/// # Errors
/// The kernel refuses a namespace, a cgroup or a device.
pub fn supervise(folder: &Path, has_bridge: bool) -> Result<()> {
    let result = run_until_input_ends(folder, has_bridge);
    remove(folder);
    result
}

fn run_until_input_ends(folder: &Path, has_bridge: bool) -> Result<()> {
    unshare(CloneFlags::CLONE_NEWNET)?;
    run("ip", &["link", "set", "lo", "up"])?;
    if has_bridge {
        make_bridge()?;
    }
    std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
    reply(READY)?;
    let mut node = None;
    for line in std::io::stdin().lock().lines() {
        if line? != NODE {
            break;
        }
        node = Some(Node::start(folder)?);
        reply(NODE)?;
    }
    drop(node);
    kill_remaining_processes()
}

fn make_bridge() -> Result<()> {
    // A bridge without ports: kubelets reject loopback addresses, and this kernel may have no dummy
    // device.
    let address = format!("{}/24", TestNetwork::ADDRESS);
    for words in [
        &["link", "add", DEVICE, "type", "bridge"][..],
        &["address", "add", &address, "dev", DEVICE],
        &["link", "set", DEVICE, "up"],
        // The route does not lead out of this namespace.
        &["route", "add", "default", "dev", DEVICE],
    ] {
        run("ip", words)?;
    }
    Ok(())
}

/// Kills the remaining processes in this network: the control plane of a test that was killed.
fn kill_remaining_processes() -> Result<()> {
    let own = std::fs::read_link("/proc/self/ns/net")?;
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let pid = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        let Some(pid) = pid.filter(|&pid: &i32| pid.cast_unsigned() != std::process::id()) else {
            continue;
        };
        let is_here = std::fs::read_link(entry.path().join("ns/net")).is_ok_and(|net| net == own);
        if is_here {
            // It may have exited meanwhile.
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
    Ok(())
}

fn reply(word: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{word}")?;
    out.flush()
}

/// Runs a command that should succeed.
fn run(program: &str, words: &[&str]) -> Result<()> {
    let output = Command::new(program)
        .args(words)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Error::other(format!("{program}: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    Err(Error::other(format!("{program} {words:?}: {message}")))
}

/// A node's init process and its cgroups.
struct Node {
    unshare: Child,
    cgroups: cgroups::Cgroups,
}

impl Node {
    fn start(folder: &Path) -> Result<Self> {
        let cgroups = cgroups::Cgroups::make(&format!("albacore-testbed-{}", std::process::id()))?;
        let mounts = cgroups.mounts();
        std::fs::write(
            folder.join("mounts.json"),
            serde_json::to_string(&mounts).map_err(Error::other)?,
        )?;
        // The root of a cgroup namespace is the cgroup of the process that creates it.
        cgroups.enter()?;
        let log = std::fs::File::create(folder.join("init.log"))?;
        let started = Command::new("unshare")
            .args(["--mount", "--cgroup", "--pid", "--uts", "--ipc"])
            .args([
                "--fork",
                "--kill-child",
                "--mount-proc",
                "--propagation=private",
            ])
            .arg(std::env::current_exe()?)
            .arg("init")
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn();
        cgroups.leave()?;
        Ok(Self {
            unshare: started?,
            cgroups,
        })
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // The init process exits at the end of its input, and its namespace with it.
        drop(self.unshare.stdin.take());
        let _ = self.unshare.wait();
        let start = Instant::now();
        // bound: REMOVAL_TIME_MAX
        while !self.cgroups.remove() && start.elapsed() < REMOVAL_TIME_MAX {
            std::thread::sleep(REMOVAL_PERIOD);
        }
    }
}

/// Removes a folder into which exiting programs may still be writing.
fn remove(folder: &Path) {
    let start = Instant::now();
    // bound: REMOVAL_TIME_MAX
    while folder.exists() && start.elapsed() < REMOVAL_TIME_MAX {
        if std::fs::remove_dir_all(folder).is_err() {
            std::thread::sleep(REMOVAL_PERIOD);
        }
    }
}
