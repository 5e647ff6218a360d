//! A node on an emulated machine: cgroup v2 and an older kernel, 8 cpus, SMT, 2 NUMA nodes. The
//! control plane runs on the host; a device in its network is connected to the guest.

use std::net::{SocketAddr, SocketAddrV4, TcpStream};
use std::path::{Path, PathBuf};

use super::task::Task;
use crate::guest::console;
use crate::supervisor::{MACHINE, Machine};
use crate::test_network::{GUEST_ADDRESS, TestNetwork};
use crate::{Guest, Program, Size, TestbedError};

/// Port of `albacore-testbed serve`.
const SERVE_PORT: u16 = 7;

/// Programs of a node: containerd, runc and the CNI plugins.
const PROGRAMS: [&str; 7] = [
    "bridge",
    "containerd",
    "containerd-shim-runc-v2",
    "ctr",
    "host-local",
    "loopback",
    "runc",
];

/// Tools that tests and the programs of a node look up in `PATH`.
const TOOLS: [&str; 10] = [
    "cat", "hostname", "insmod", "ip", "kill", "mount", "nsenter", "pidof", "tee", "umount",
];

/// kube-proxy's multi-call program.
const TABLES: &str = "xtables-legacy-multi";
const TABLES_NAMES: [&str; 6] = [
    "ip6tables",
    "ip6tables-restore",
    "ip6tables-save",
    "iptables",
    "iptables-restore",
    "iptables-save",
];

/// Kernel modules for containers, their network and kube-proxy's rules.
const MODULES: [&str; 21] = [
    "virtio_pci",
    "virtio_net",
    "overlay",
    "veth",
    "bridge",
    "br_netfilter",
    "crc32c_generic",
    "nf_conntrack_netlink",
    "iptable_filter",
    "iptable_mangle",
    "iptable_nat",
    "ipt_REJECT",
    "xt_addrtype",
    "xt_comment",
    "xt_conntrack",
    "xt_mark",
    "xt_MASQUERADE",
    "xt_nat",
    "xt_recent",
    "xt_statistic",
    "xt_tcpudp",
];

/// Network device connected to the guest.
const TAP: &str = "guest0";

/// A running emulated machine.
#[derive(Debug)]
pub(super) struct Emulated {
    folder: PathBuf,
    // Ends with this value.
    _emulator: Program,
}

impl Emulated {
    /// The service that executes commands in the guest.
    pub(super) fn service() -> Vec<String> {
        let address = format!("{GUEST_ADDRESS}:{SERVE_PORT}");
        vec!["/albacore-testbed".into(), "serve".into(), address]
    }

    /// Boots the machine. All files of the folder of the network are at the same paths as on the
    /// host.
    pub(super) fn start(
        network: &TestNetwork,
        programs: &Path,
        kubernetes: &Path,
    ) -> Result<Self, TestbedError> {
        let machine = Machine {
            address: format!("{GUEST_ADDRESS}/24"),
            router: TestNetwork::ADDRESS.to_string(),
        };
        let text =
            serde_json::to_string(&machine).map_err(|error| node_error(error.to_string()))?;
        let path = network.folder().join(MACHINE);
        std::fs::write(&path, text).map_err(TestbedError::file(path))?;
        let guest = guest(network, programs, kubernetes)?;
        connect_guest(network)?;
        let folder = network.folder().join("guest");
        std::fs::create_dir(&folder).map_err(TestbedError::file(&folder))?;
        let emulator = guest.start(&folder, &network.command_prefix(), TAP)?;
        Ok(Self {
            folder,
            _emulator: emulator,
        })
    }

    /// Returns an error if its kernel has panicked, or its init process has exited.
    pub(super) fn check(&self) -> Result<(), TestbedError> {
        let console = self.console();
        match console.contains("Kernel panic") {
            true => Err(node_error(console)),
            false => Ok(()),
        }
    }

    /// Its console output.
    pub(super) fn console(&self) -> String {
        console(&self.folder)
    }

    /// Starts a command in the guest.
    pub(super) fn begin(
        &self,
        network: &TestNetwork,
        words: &[&str],
    ) -> Result<Task, TestbedError> {
        let address = SocketAddr::V4(SocketAddrV4::new(GUEST_ADDRESS, SERVE_PORT));
        let stream = network.within(|| TcpStream::connect(address))?;
        let task = stream.and_then(|stream| Task::at(stream, words));
        task.map_err(TestbedError::file(words.first().unwrap_or(&"")))
    }
}

fn node_error(message: String) -> TestbedError {
    TestbedError::Node { message }
}

/// Adds a bridge port for the guest, and routes to its pods and to the Services, which its
/// kube-proxy implements.
fn connect_guest(network: &TestNetwork) -> Result<(), TestbedError> {
    let guest = GUEST_ADDRESS.to_string();
    for words in [
        &["tuntap", "add", TAP, "mode", "tap"][..],
        &["link", "set", TAP, "master", "node0", "up"],
        &["route", "add", "10.244.0.0/24", "via", &guest],
        &["route", "add", "10.96.0.0/16", "via", &guest],
    ] {
        network.ip(words)?;
    }
    Ok(())
}

fn guest(network: &TestNetwork, programs: &Path, kubernetes: &Path) -> Result<Guest, TestbedError> {
    let here = |path: &Path| (path.to_string_lossy().into_owned(), path.to_owned());
    let mut wanted = vec![here(&kubernetes.join("kubelet"))];
    wanted.extend(PROGRAMS.iter().map(|name| here(&programs.join(name))));
    for name in TOOLS {
        wanted.push((format!("/bin/{name}"), find(name)?));
    }
    let tables = find(TABLES)?;
    wanted.push((format!("/usr/sbin/{TABLES}"), tables));
    let link = |name| (format!("/usr/sbin/{name}"), TABLES.to_owned());
    let mut links: Vec<(String, String)> = TABLES_NAMES.into_iter().map(link).collect();
    // One program under two names.
    let proxy = kubernetes.join("kube-proxy").to_string_lossy().into_owned();
    links.push((proxy, "kubelet".into()));
    let mut files = Vec::new();
    add(&mut files, network.folder()).map_err(TestbedError::file(network.folder()))?;
    let extensions = Path::new("/usr/lib/x86_64-linux-gnu/xtables");
    add(&mut files, extensions).map_err(TestbedError::file(extensions))?;
    Ok(Guest {
        size: Size::Eight,
        init: network.program().to_owned(),
        arguments: vec![
            "guest".into(),
            network.folder().to_string_lossy().into_owned(),
        ],
        programs: wanted,
        files,
        links,
        modules: MODULES.into(),
    })
}

/// Finds a program of the host.
fn find(name: &str) -> Result<PathBuf, TestbedError> {
    let folders = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];
    let mut found = folders.iter().map(|folder| Path::new(folder).join(name));
    let found = found.find(|path| path.is_file());
    found.ok_or_else(|| node_error(format!("{name} is not installed on this machine")))
}

/// Adds all files of a folder, at the same paths in the guest; without the control plane's logs and
/// data.
fn add(files: &mut Vec<(String, PathBuf)>, folder: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let is_kept = path.extension().is_some_and(|e| e == "log") || path.ends_with("etcd");
        if path.is_dir() && !is_kept {
            add(files, &path)?;
        } else if path.is_file() && !is_kept {
            files.push((path.to_string_lossy().into_owned(), path));
        }
    }
    Ok(())
}
