//! The first process of an emulated node: makes a root that containers can leave, loads modules,
//! sets the network up and runs the node's programs as that of a node on this machine does.

use std::fs;
use std::io::Result;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

use nix::unistd::chroot;

use super::init::{NodeSpec, run_all, text};
use super::run;

/// What there is besides a node's spec.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Machine {
    /// Its address, with the length of its network's.
    pub(crate) address: String,
    /// Whom it asks for the way.
    pub(crate) router: String,
}

/// The file in the folder of the node that says so.
pub(crate) const MACHINE: &str = "machine.json";

/// Where modules lie, named in the order in which they are loaded.
const MODULES: &str = "/modules";

/// What a kubelet reads of the system that it runs on.
const FILES: [(&str, &str); 6] = [
    ("/etc/passwd", "root:x:0:0:root:/:/bin/false\n"),
    ("/etc/group", "root:x:0:\n"),
    ("/etc/hosts", "127.0.0.1 localhost\n"),
    ("/etc/machine-id", "0123456789abcdef0123456789abcdef\n"),
    ("/etc/os-release", "NAME=testbed\n"),
    ("/etc/resolv.conf", ""),
];

/// Files up to this size stay where the kernel unpacked them.
const KEPT_BYTES_MAX: u64 = 4 << 20;

/// Runs the node that `folder` describes: the machine is its own.
///
/// # Errors
/// A mount is refused or a program cannot be started.
pub fn guest(folder: &Path) -> Result<()> {
    let machine: Machine = super::init::parse(&folder.join(MACHINE))?;
    let spec: NodeSpec = super::init::parse(&folder.join("node.json"))?;
    // Before it there is no /dev/null, which other commands get as their input.
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
    // Mounts of the kubelet are seen in pods that ask for it.
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
    println!("{}: mounts, modules and network are there", spec.host_name);
    run_all(folder, &spec)
}

fn load_modules() -> Result<()> {
    let mut files: Vec<_> = fs::read_dir(MODULES)?.flatten().map(|f| f.path()).collect();
    files.sort();
    files
        .iter()
        .try_for_each(|file| run("insmod", &[text(file)?]))
}

/// Containers leave their root, and the archive that the kernel unpacked is the one that cannot be
/// left: everything moves into another.
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

/// Moves a file or copies a small one, with all that is below; what is mounted stays.
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
        // What is called until the move is small; the memory of the rest is wanted.
        match about.len() > KEPT_BYTES_MAX {
            true => fs::remove_file(from),
            false => Ok(()),
        }
    }
}
