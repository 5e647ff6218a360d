//! Init process of an emulated node: creates a root that supports pivot_root, loads modules,
//! configures the network and runs the node's programs like a node on this machine.

use std::fs;
use std::io::Result;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

use nix::unistd::chroot;

use super::init::{NodeSpec, run_all, text};
use super::run;

/// Parameters of the machine, in addition to a node's spec.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Machine {
    /// Its address with the prefix length of its network.
    pub(crate) address: String,
    /// Its default gateway.
    pub(crate) router: String,
}

/// Name of the file in the node's folder that contains a [`Machine`].
pub(crate) const MACHINE: &str = "machine.json";

/// Folder of the modules, whose alphabetical order is the load order.
const MODULES: &str = "/modules";

/// System files that a kubelet reads.
const FILES: [(&str, &str); 6] = [
    ("/etc/passwd", "root:x:0:0:root:/:/bin/false\n"),
    ("/etc/group", "root:x:0:\n"),
    ("/etc/hosts", "127.0.0.1 localhost\n"),
    ("/etc/machine-id", "0123456789abcdef0123456789abcdef\n"),
    ("/etc/os-release", "NAME=testbed\n"),
    ("/etc/resolv.conf", ""),
];

/// Files up to this size are kept where the kernel unpacked them.
const KEPT_BYTES_MAX: u64 = 4 << 20;

/// Runs the node that `folder` describes, as the only node of the machine.
///
/// # Errors
/// A mount fails or a program cannot be started.
pub fn guest(folder: &Path) -> Result<()> {
    let machine: Machine = super::init::parse(&folder.join(MACHINE))?;
    let spec: NodeSpec = super::init::parse(&folder.join("node.json"))?;
    // Required first: without it there is no /dev/null, the standard input of other commands.
    let words = ["-t", "devtmpfs", "devtmpfs", "/dev"];
    Command::new("mount").args(words).status()?;
    load_modules()?;
    leave_first_root()?;
    for (kind, target) in [
        ("proc", "/proc"),
        ("sysfs", "/sys"),
        ("tmpfs", "/run"),
        ("cgroup2", "/sys/fs/cgroup"),
    ] {
        run("mount", &["-t", kind, kind, target])?;
    }
    for (kind, target) in [("devpts", "/dev/pts"), ("tmpfs", "/dev/shm")] {
        fs::create_dir_all(target)?;
        run("mount", &["-t", kind, kind, target])?;
    }
    fs::create_dir_all("/etc")?;
    for (file, contents) in FILES {
        fs::write(file, contents)?;
    }
    // Shared propagation, so that mounts of the kubelet are visible in pods that request it.
    run("mount", &["--make-rshared", "/"])?;
    for words in [
        &["link", "set", "lo", "up"][..],
        &["address", "add", &machine.address, "dev", "eth0"],
        &["link", "set", "eth0", "up"],
        &["route", "add", "default", "via", &machine.router],
    ] {
        run("ip", words)?;
    }
    fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
    fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1")?;
    println!("{}: mounts, modules and network are ready", spec.host_name);
    run_all(folder, &spec)
}

fn load_modules() -> Result<()> {
    let mut files: Vec<_> = fs::read_dir(MODULES)?.flatten().map(|f| f.path()).collect();
    files.sort();
    files
        .iter()
        .try_for_each(|file| run("insmod", &[text(file)?]))
}

/// Moves everything into a new root: containers need pivot_root, which the kernel does not allow on
/// the initial RAM file system.
fn leave_first_root() -> Result<()> {
    let root = Path::new("/root.new");
    fs::create_dir(root)?;
    run(
        "mount",
        &["-t", "tmpfs", "-o", "size=90%", "tmpfs", "/root.new"],
    )?;
    for entry in fs::read_dir("/")?.flatten() {
        let name = entry.file_name();
        if entry.path() != root && name != "modules" {
            transfer(&entry.path(), &root.join(&name))?;
        }
    }
    run("mount", &["-t", "devtmpfs", "devtmpfs", "/root.new/dev"])?;
    std::env::set_current_dir(root)?;
    run("mount", &["--move", "/root.new", "/"])?;
    chroot(".")?;
    std::env::set_current_dir("/")
}

/// Moves a file or copies a small one, recursively; mount points are skipped.
fn transfer(from: &Path, to: &Path) -> Result<()> {
    let about = fs::symlink_metadata(from)?;
    if about.is_symlink() {
        symlink(fs::read_link(from)?, to)
    } else if about.is_dir() {
        fs::create_dir(to)?;
        fs::set_permissions(to, fs::Permissions::from_mode(about.permissions().mode()))?;
        if from == Path::new("/dev") {
            return Ok(());
        }
        for entry in fs::read_dir(from)?.flatten() {
            transfer(&entry.path(), &to.join(entry.file_name()))?;
        }
        Ok(())
    } else {
        fs::copy(from, to)?;
        // Programs that are needed until the move completes are small; the memory of the others is
        // freed.
        match about.len() > KEPT_BYTES_MAX {
            true => fs::remove_file(from),
            false => Ok(()),
        }
    }
}
