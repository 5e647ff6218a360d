//! Init process of a node: creates its mounts, starts its programs, restarts them when they exit,
//! and reaps orphans. It exits at the end of its standard input, whereupon the kernel kills all
//! other processes of the node.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Error, Read as _, Result};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use nix::errno::Errno;
use nix::sys::wait::waitpid;

use super::cgroups::Mount;
use super::run;
use crate::limits::{READY_PERIOD, READY_TIME_MAX, RESTART_PAUSE};

/// System-wide settings that a kubelet writes; copies are mounted in their place.
const SYSCTLS: [&str; 5] = [
    "vm/overcommit_memory",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
];

/// The programs of a node.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct NodeSpec {
    pub(crate) host_name: String,
    /// Its programs, in start order.
    pub(crate) services: Vec<Service>,
}

/// A program of the node.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Service {
    /// Name of the program and of its log.
    pub(crate) name: String,
    pub(crate) command: Vec<String>,
    /// The first start waits for this file.
    pub(crate) after: Option<PathBuf>,
    /// Value of `PATH`.
    pub(crate) path: String,
}

/// Runs the node that `folder` describes.
///
/// # Errors
/// A mount fails or a program cannot be started.
pub fn init(folder: &Path) -> Result<()> {
    // The end of the input means that the supervisor has exited, even if it was killed.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    let mounts: Vec<Mount> = parse(&folder.join("mounts.json"))?;
    let spec: NodeSpec = parse(&folder.join("node.json"))?;
    mount_all(folder, &mounts)?;
    run_all(folder, &spec)
}

/// Runs the programs of a node and restarts those that exit; returns only on errors.
pub(super) fn run_all(folder: &Path, spec: &NodeSpec) -> Result<()> {
    run("hostname", &[&spec.host_name])?;
    let mut running = BTreeMap::new();
    for service in &spec.services {
        if let Some(file) = &service.after {
            wait_for(file)?;
        }
        running.insert(start(folder, service)?, service);
    }
    // bound: the life of the node
    loop {
        let pid = match waitpid(None, None) {
            Ok(status) => status.pid(),
            Err(Errno::EINTR) => None,
            Err(error) => return Err(error.into()),
        };
        let ended = pid.and_then(|pid| running.remove(&pid.as_raw()));
        if let Some(service) = ended {
            eprintln!("{} ended and is restarted", service.name);
            std::thread::sleep(RESTART_PAUSE);
            running.insert(start(folder, service)?, service);
        }
    }
}

pub(super) fn parse<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Error::other(format!("{}: {error}", path.display())))?;
    serde_json::from_str(&text).map_err(Error::other)
}

fn wait_for(file: &Path) -> Result<()> {
    let start = Instant::now();
    // bound: READY_TIME_MAX
    while !file.exists() {
        if start.elapsed() > READY_TIME_MAX {
            return Err(Error::other(format!(
                "timed out waiting for {}",
                file.display()
            )));
        }
        std::thread::sleep(READY_PERIOD);
    }
    Ok(())
}

fn mount_all(folder: &Path, cgroups: &[Mount]) -> Result<()> {
    // Copies of the current values, writable by the kubelet.
    let settings = folder.join("sysctls");
    std::fs::create_dir_all(&settings)?;
    for name in SYSCTLS {
        let file = settings.join(name.replace('/', "."));
        let live = Path::new("/proc/sys").join(name);
        std::fs::write(&file, std::fs::read(&live)?)?;
        run("mount", &["--bind", text(&file)?, text(&live)?])?;
    }
    // Files written outside of the node's folder are confined to this mount namespace and removed
    // with it.
    for directory in ["/run", "/var/lib", "/var/log"] {
        run("mount", &["-t", "tmpfs", "tmpfs", directory])?;
    }
    run("mount", &["-t", "sysfs", "sysfs", "/sys"])?;
    run("mount", &["-t", "tmpfs", "tmpfs", "/sys/fs/cgroup"])?;
    for mount in cgroups {
        std::fs::create_dir_all(&mount.target)?;
        let named = mount.options.starts_with("name=");
        let options = match mount.options.as_str() {
            "" => "rw".to_owned(),
            // A hierarchy without controllers.
            name if named => format!("none,{name}"),
            controllers => controllers.to_owned(),
        };
        let kind = mount.kind.as_str();
        run(
            "mount",
            &["-t", kind, "-o", &options, kind, text(&mount.target)?],
        )?;
    }
    // Shared propagation, so that mounts of the kubelet are visible in pods that request it.
    run("mount", &["--make-rshared", "/"])
}

pub(super) fn text(path: &Path) -> Result<&str> {
    path.to_str()
        .ok_or_else(|| Error::other(format!("{} is not UTF-8", path.display())))
}

/// Starts a program; returns its pid.
fn start(folder: &Path, service: &Service) -> Result<i32> {
    let log = File::options()
        .create(true)
        .append(true)
        .open(folder.join(format!("{}.log", service.name)))?;
    let words = &service.command;
    let (program, arguments) = words
        .split_first()
        .ok_or_else(|| Error::other(format!("{} has no command", service.name)))?;
    let child = Command::new(program)
        .args(arguments)
        .env("PATH", &service.path)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .map_err(|error| Error::other(format!("{program}: {error}")))?;
    // infallible: a pid is a positive i32.
    #[allow(clippy::cast_possible_wrap)]
    Ok(child.id() as i32)
}
