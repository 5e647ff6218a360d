//! Finds the processes of a container by its container ID in the mounted cgroup tree.

use albacore_os::{Cgroup, HostRoot, Kubepods, KubepodsError, Pid, read_cmdline, read_members};
use albacore_placer::PlacerError;
use albacore_plan::ServerKind;
use albacore_values::sentence;

/// File name of the built-in server.
const SERVER_PROGRAM: &str = "albacore-server";

/// Programs of sandboxes, whose threads the node cannot see (P27).
const SANDBOXES: [&str; 7] = [
    "runsc",
    "qemu-",
    "cloud-hypervisor",
    "firecracker",
    "dragonball",
    "crosvm",
    "stratovirt",
];

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct ContainerProcesses {
    /// Common ancestor of all processes.
    pub(crate) root: Pid,
    pub(crate) cgroup: Cgroup,
    /// Kind of server, derived from the first process; ignored if the API server provides more
    /// information.
    pub(crate) server_kind: ServerKind,
    /// Processes that entered the container from outside (`kubectl exec`, probes): counted, never
    /// placed.
    pub(crate) foreign_processes: usize,
}

/// Why a container is not placed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum NotPlaced {
    /// Its processes were not found or have exited; new ones may follow.
    NotFound(String),
    /// Its cpuset has no online CPU.
    EmptyCpuset(String),
    /// Its threads can never be seen by the node.
    Unsupported(String),
    /// No placement satisfies its deployment.
    Unsolvable(String),
    /// Files in procfs or cgroupfs cannot be read.
    Unreadable(String),
}

impl NotPlaced {
    pub(crate) fn of(error: &PlacerError) -> Self {
        let text = sentence(error);
        match error {
            PlacerError::EmptyCpuset { .. } => Self::EmptyCpuset(text),
            PlacerError::RootGone { .. } => Self::NotFound(text),
            PlacerError::Problem(_) | PlacerError::Joint(_) => Self::Unsolvable(text),
            _ => Self::Unreadable(text),
        }
    }

    pub(crate) fn text(&self) -> &str {
        match self {
            Self::NotFound(text)
            | Self::EmptyCpuset(text)
            | Self::Unsupported(text)
            | Self::Unsolvable(text)
            | Self::Unreadable(text) => text,
        }
    }

    /// Whether an early retry would be useless.
    pub(crate) fn is_lasting(&self) -> bool {
        matches!(self, Self::Unsupported(_) | Self::Unsolvable(_))
    }
}

/// Finds the processes of the container `id` of the pod `uid`.
///
/// # Errors
/// The processes were not found or cannot be read.
pub(crate) fn locate(
    host: &HostRoot,
    uid: &str,
    id: &str,
) -> Result<ContainerProcesses, NotPlaced> {
    let container = Kubepods::find(host)
        .and_then(|kubepods| kubepods.container(uid, id))
        .map_err(|error| match error {
            KubepodsError::NotFound { .. } => NotPlaced::NotFound(error.to_string()),
            _ => NotPlaced::Unreadable(error.to_string()),
        })?;
    let members =
        read_members(host, &container).map_err(|error| NotPlaced::Unreadable(error.to_string()))?;
    let Some(root) = members.root else {
        return Err(match members.processes.is_empty() {
            true => NotPlaced::NotFound(format!("container {} has no process", short(id))),
            false => NotPlaced::Unreadable(format!("container {} has no root process", short(id))),
        });
    };
    if let Some(sandbox) = sandbox(host, root) {
        return Err(NotPlaced::Unsupported(format!(
            "Unsupported: the container runs in a sandbox ({sandbox}), whose threads are not \
             visible on the node"
        )));
    }
    Ok(ContainerProcesses {
        root,
        cgroup: container.cgroup,
        server_kind: server_kind(host, root),
        foreign_processes: members.foreign_processes,
    })
}

/// Detects by the first process whether the container runs the built-in server, whose thread names
/// contain the worker.
fn server_kind(host: &HostRoot, root: Pid) -> ServerKind {
    // A process that has just exited is looked up again.
    let cmdline = read_cmdline(host, root).unwrap_or_default();
    let program = cmdline.split([' ', '\0']).next().unwrap_or_default();
    match program.rsplit('/').next() {
        Some(SERVER_PROGRAM) => ServerKind::Named,
        _ => ServerKind::PreFork,
    }
}

/// The first 12 digits of a container ID, as common tools show it.
fn short(id: &str) -> &str {
    id.get(..12).unwrap_or(id)
}

/// The name of the sandbox program, if a container's first process is one.
fn sandbox(host: &HostRoot, root: Pid) -> Option<String> {
    let cmdline = read_cmdline(host, root).ok()?;
    let program = cmdline.split([' ', '\0']).next()?.rsplit('/').next()?;
    let is_sandbox = SANDBOXES.iter().any(|name| program.starts_with(name));
    is_sandbox.then(|| program.to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A node with one container whose first process runs this program.
    fn node(program: &str) -> (tempfile::TempDir, HostRoot) {
        let folder = tempfile::tempdir().unwrap();
        let host = HostRoot::recorded(folder.path());
        let cgroup = host.cgroup.join(format!("kubepods/podu-1/{ID}"));
        fs::create_dir_all(&cgroup).unwrap();
        fs::write(host.cgroup.join("cgroup.procs"), "").unwrap();
        fs::write(cgroup.join("cgroup.procs"), "7\n").unwrap();
        fs::create_dir_all(host.proc.join("7")).unwrap();
        let stat = fs::read_to_string("/proc/self/stat").unwrap();
        let rest = stat.rsplit_once(") ").unwrap().1;
        fs::write(host.proc.join("7/stat"), format!("7 (x) {rest}")).unwrap();
        fs::write(host.proc.join("7/cmdline"), program.replace(' ', "\0")).unwrap();
        (folder, host)
    }

    const ID: &str = "0123456789abcdef0123456789abcdef";

    #[test]
    fn the_reason_of_a_container_that_is_not_placed_holds_the_cause() {
        let error = albacore_solver::JointError::EmptyCpuset { deployment: 1 };
        let reason = NotPlaced::of(&PlacerError::Joint(error));
        let due = "cannot place the servers of this machine jointly: deployment 1: the cpuset is \
                   empty: give it at least one cpu";
        assert_eq!(reason, NotPlaced::Unsolvable(due.to_owned()));
    }

    #[test]
    fn a_sandbox_is_reported_as_unsupported() {
        let (_folder, host) = node("/usr/bin/python3 serve.py");
        let found = locate(&host, "u-1", ID).unwrap();
        assert_eq!(
            (found.root, found.server_kind),
            (Pid(7), ServerKind::PreFork)
        );
        let (_folder, host) = node("/albacore-server --model_name=m");
        let found = locate(&host, "u-1", ID).unwrap();
        assert_eq!(found.server_kind, ServerKind::Named);
        for program in [
            "runsc-sandbox --root=/run",
            "/opt/kata/bin/qemu-system-x86_64 -m 1",
        ] {
            let (_folder, host) = node(program);
            let reason = locate(&host, "u-1", ID).unwrap_err();
            assert!(matches!(reason, NotPlaced::Unsupported(_)), "{reason:?}");
            assert!(reason.is_lasting());
        }
    }

    #[test]
    fn a_missing_container_and_an_unreadable_one_are_distinguished() {
        let (_folder, host) = node("x");
        let other = "f".repeat(32);
        assert!(matches!(
            locate(&host, "u-1", &other),
            Err(NotPlaced::NotFound(_))
        ));
        assert!(matches!(
            locate(&host, "u-1", "../../x"),
            Err(NotPlaced::Unreadable(_))
        ));
        fs::write(
            host.cgroup
                .join(format!("kubepods/podu-1/{ID}/cgroup.procs")),
            "",
        )
        .unwrap();
        assert!(matches!(
            locate(&host, "u-1", ID),
            Err(NotPlaced::NotFound(_))
        ));
        fs::remove_dir_all(host.cgroup.join("kubepods")).unwrap();
        assert!(matches!(
            locate(&host, "u-1", ID),
            Err(NotPlaced::Unreadable(_))
        ));
    }
}
