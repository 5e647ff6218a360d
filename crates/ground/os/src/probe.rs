//! Tests with a temporary process how this kernel changes affinity masks when a cpuset changes.
//!
//! Since 6.2, the kernel remembers the mask requested by the user and restores it when its cpus
//! return; before, every effective change of a cpuset overwrites the mask of every thread in it.
//! Distributions backport such changes, so the kernel version is not sufficient and the behavior is
//! tested.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use albacore_topology::CpuSet;

use crate::{
    Cgroup, CgroupVersion, HostRoot, OsError, Pid, Tid, find_cgroup, read_mask, write_mask,
};

/// Effect on a thread's affinity mask when its cpuset shrinks and grows again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MaskRestoration {
    /// The requested mask is restored (6.2 and later, and some older distribution kernels).
    Restored,
    /// The mask is lost: the thread may run on the whole cpuset.
    Lost,
    /// Not determined.
    Unknown {
        /// The reason, as a sentence.
        reason: String,
    },
}

/// Runs the test in a temporary cgroup with `sleeper`, a program that sleeps. Takes a few
/// milliseconds and needs two cpus and the permission to create a cgroup; otherwise returns
/// [`MaskRestoration::Unknown`].
pub fn probe_mask_restoration(host: &HostRoot, sleeper: Command) -> MaskRestoration {
    match try_probe(host, sleeper) {
        Ok(true) => MaskRestoration::Restored,
        Ok(false) => MaskRestoration::Lost,
        Err(reason) => MaskRestoration::Unknown { reason },
    }
}

fn try_probe(host: &HostRoot, sleeper: Command) -> Result<bool, String> {
    if !host.is_live() {
        return Err("this is a recording, not a live kernel".into());
    }
    let me = Pid(nix::unistd::getpid().as_raw());
    let own = find_cgroup(host, me).map_err(|e| e.to_string())?;
    let cpus = own
        .read_effective_cpuset(host)
        .map_err(|e| e.to_string())?
        .cpus;
    let mut ids = cpus.iter();
    let (Some(low), Some(high)) = (ids.next(), ids.next()) else {
        return Err(format!("the cpuset has fewer than two cpus: {cpus}"));
    };
    let (low, high): (CpuSet, CpuSet) = ([low].into_iter().collect(), [high].into_iter().collect());
    let both = low.union(&high);
    let scratch = Scratch::make(&own).map_err(|e| format!("cannot create a cgroup: {e}"))?;
    scratch
        .set_cpus(&both)
        .map_err(|e| format!("cannot set the cpuset of a new cgroup: {e}"))?;
    let sleeper = Sleeper::start(sleeper).map_err(|e| format!("cannot start a process: {e}"))?;
    let tid = Tid(sleeper.child.id() as i32);
    let message = |e: io::Error| e.to_string();
    fs::write(scratch.directory.join("cgroup.procs"), tid.0.to_string()).map_err(message)?;
    write_mask(tid, &high).map_err(|e| e.to_string())?;
    scratch.set_cpus(&low).map_err(message)?;
    scratch.set_cpus(&both).map_err(message)?;
    Ok(read_mask(host, tid).map_err(|e| e.to_string())? == high)
}

/// A sleeping process, killed on drop.
struct Sleeper {
    child: Child,
}

impl Sleeper {
    fn start(mut command: Command) -> io::Result<Self> {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Ok(Self {
            child: command.spawn()?,
        })
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        // Both calls fail only if the process has already exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A cgroup that is removed on drop; its process must be dead by then.
struct Scratch {
    directory: PathBuf,
}

impl Scratch {
    fn make(own: &Cgroup) -> Result<Self, OsError> {
        let name = format!("albacore-probe-{}", nix::unistd::getpid());
        let directory = own.directory.join(name);
        let read = |path: &Path, source| OsError::Read {
            path: path.to_owned(),
            source,
        };
        fs::create_dir(&directory).map_err(|e| read(&directory, e))?;
        let scratch = Self { directory };
        if own.version == CgroupVersion::V1 {
            // A v1 cpuset accepts no process before `cpuset.mems` is set.
            let mems = own.directory.join("cpuset.effective_mems");
            let text = fs::read(&mems).map_err(|e| read(&mems, e))?;
            let file = scratch.directory.join("cpuset.mems");
            fs::write(&file, text).map_err(|e| read(&file, e))?;
        }
        Ok(scratch)
    }

    fn set_cpus(&self, cpus: &CpuSet) -> io::Result<()> {
        fs::write(self.directory.join("cpuset.cpus"), cpus.to_string())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Best effort: an empty cgroup is harmless, and there is no caller to report to.
        let _ = fs::remove_dir(&self.directory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_probe_answers_and_leaves_no_cgroup_behind() {
        let host = HostRoot::live();
        let mut sleep = Command::new("sleep");
        sleep.arg("60");
        let answer = probe_mask_restoration(&host, sleep);
        let own = find_cgroup(&host, Pid(nix::unistd::getpid().as_raw())).unwrap();
        let left = own
            .directory
            .join(format!("albacore-probe-{}", nix::unistd::getpid()));
        assert!(
            !left.exists(),
            "{} is left after {answer:?}",
            left.display()
        );
        if let MaskRestoration::Unknown { reason } = answer {
            assert!(!reason.is_empty());
        }
    }
}
