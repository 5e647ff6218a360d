//! From a container that the API server names to its processes: a walk over the cgroups as they are
//! mounted.

use albacore_os::{Cgroup, HostRoot, Kubepods, KubepodsError, Pid, read_cmdline, read_members};
use albacore_placer::PlacerError;

/// Programs that stand for a sandbox: the container's threads are inside, out of the host's sight
/// (P27).
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
pub(crate) struct Located {
    /// The one they all come from.
    pub(crate) root: Pid,
    /// The cgroup that they are in.
    pub(crate) cgroup: Cgroup,
    /// Processes that entered it from outside (`kubectl exec`, probes): counted, never placed.
    pub(crate) entered: usize,
}

/// Why a container is not placed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Absence {
    /// Its processes were not found, or ended meanwhile; they may come.
    NotFound(String),
    /// Its cpuset has no cpu that is online.
    EmptyCpuset(String),
    /// Its threads cannot be seen from here and never will.
    Unsupported(String),
    /// What it asks for cannot be placed.
    Unsolvable(String),
    /// The kernel's files cannot be read.
    Unreadable(String),
}

impl Absence {
    /// What an error of the placer means.
    pub(crate) fn of(error: &PlacerError) -> Self {
        let text = error.to_string();
        match error {
            PlacerError::EmptyCpuset { .. } => Self::EmptyCpuset(text),
            PlacerError::RootGone { .. } => Self::NotFound(text),
            PlacerError::Problem(_) | PlacerError::Joint(_) => Self::Unsolvable(text),
            _ => Self::Unreadable(text),
        }
    }

    /// The sentence for people.
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::NotFound(text)
            | Self::EmptyCpuset(text)
            | Self::Unsupported(text)
            | Self::Unsolvable(text)
            | Self::Unreadable(text) => text,
        }
    }

    /// Whether nothing is gained by looking again soon.
    pub(crate) fn is_lasting(&self) -> bool {
        matches!(self, Self::Unsupported(_) | Self::Unsolvable(_))
    }
}

/// Finds the processes of the container `id` of the pod `uid`.
///
/// # Errors
/// They are not there, or cannot be seen.
pub(crate) fn locate(host: &HostRoot, uid: &str, id: &str) -> Result<Located, Absence> {
    let container = Kubepods::find(host)
        .and_then(|kubepods| kubepods.container(uid, id))
        .map_err(|error| match error {
            KubepodsError::NotFound { .. } => Absence::NotFound(error.to_string()),
            _ => Absence::Unreadable(error.to_string()),
        })?;
    let members =
        read_members(host, &container).map_err(|error| Absence::Unreadable(error.to_string()))?;
    let Some(root) = members.root else {
        return Err(match members.processes.is_empty() {
            true => Absence::NotFound(format!("container {} has no process", short(id))),
            false => Absence::Unreadable(format!("container {} has no first process", short(id))),
        });
    };
    if let Some(sandbox) = sandbox(host, root) {
        return Err(Absence::Unsupported(format!(
            "Unsupported: the container runs in a sandbox ({sandbox}), whose threads the node does not see"
        )));
    }
    Ok(Located {
        root,
        cgroup: container.cgroup,
        entered: members.entered,
    })
}

/// The beginning of a container's id, as people know it.
fn short(id: &str) -> &str {
    id.get(..12).unwrap_or(id)
}

/// The sandbox that a container's first process is, if it is one.
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

    /// A node with one container, whose first process is this program.
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
    fn a_sandbox_is_told_as_one_and_is_no_error() {
        let (_folder, host) = node("/usr/bin/python3 serve.py");
        assert_eq!(locate(&host, "u-1", ID).unwrap().root, Pid(7));
        for program in [
            "runsc-sandbox --root=/run",
            "/opt/kata/bin/qemu-system-x86_64 -m 1",
        ] {
            let (_folder, host) = node(program);
            let absence = locate(&host, "u-1", ID).unwrap_err();
            assert!(matches!(absence, Absence::Unsupported(_)), "{absence:?}");
            assert!(absence.is_lasting());
        }
    }

    #[test]
    fn what_is_not_there_may_come_and_what_cannot_be_read_is_told_otherwise() {
        let (_folder, host) = node("x");
        let other = "f".repeat(32);
        assert!(matches!(
            locate(&host, "u-1", &other),
            Err(Absence::NotFound(_))
        ));
        assert!(matches!(
            locate(&host, "u-1", "../../x"),
            Err(Absence::Unreadable(_))
        ));
        fs::write(
            host.cgroup
                .join(format!("kubepods/podu-1/{ID}/cgroup.procs")),
            "",
        )
        .unwrap();
        assert!(matches!(
            locate(&host, "u-1", ID),
            Err(Absence::NotFound(_))
        ));
        fs::remove_dir_all(host.cgroup.join("kubepods")).unwrap();
        assert!(matches!(
            locate(&host, "u-1", ID),
            Err(Absence::Unreadable(_))
        ));
    }
}
