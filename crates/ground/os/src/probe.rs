//! Probes what this kernel does to masks when a cpuset changes, with a temporary process.
//!
//! Since 6.2 the kernel remembers the mask that was asked for and puts it back when its cpus
//! return; before, any effective change of the cpuset overwrites the mask of every thread in it.
//! Distributions move such changes into older versions, so the version number says nothing: the
//! behavior is tried.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use albacore_topology::CpuSet;

use crate::{
    Cgroup, CgroupVersion, HostRoot, OsError, Pid, Tid, find_cgroup, read_mask, write_mask,
};

/// What the kernel does to a thread's mask when its cpuset shrinks and grows again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum UserMasks {
    /// The mask that was asked for comes back (6.2 and later, and some older kernels of
    /// distributions).
    Remembered,
    /// The mask is lost: the thread runs on the whole cpuset.
    Forgotten,
    /// It could not be tried here.
    Unknown {
        /// Why not, as a sentence.
        reason: String,
    },
}

/// Tries it in a cgroup made for this and removed again, with `sleeper`, a program that sleeps.
/// Takes some milliseconds, needs the right to make a cgroup and two cpus; where these are missing
/// the answer is [`UserMasks::Unknown`].
pub fn probe_user_masks(host: &HostRoot, sleeper: Command) -> UserMasks {
    match try_probe(host, sleeper) {
        Ok(true) => UserMasks::Remembered,
        Ok(false) => UserMasks::Forgotten,
        Err(reason) => UserMasks::Unknown { reason },
    }
}

fn try_probe(host: &HostRoot, sleeper: Command) -> Result<bool, String> {
    if !host.is_live() {
        return Err("this is a recording, not a live kernel".into());
    }
    let me = Pid(nix::unistd::getpid().as_raw());
    let own = find_cgroup(host, me).map_err(|e| e.to_string())?;
    let cpus = own.read_effective(host).map_err(|e| e.to_string())?.cpus;
    let mut ids = cpus.iter();
    let (Some(low), Some(high)) = (ids.next(), ids.next()) else {
        return Err(format!("the cpuset {cpus} has only one cpu"));
    };
    let (low, high): (CpuSet, CpuSet) = ([low].into_iter().collect(), [high].into_iter().collect());
    let both = low.union(&high);
    let scratch = Scratch::make(&own).map_err(|e| format!("no cgroup can be made here: {e}"))?;
    scratch
        .set_cpus(&both)
        .map_err(|e| format!("a new cgroup takes no cpuset: {e}"))?;
    let sleeper = Sleeper::start(sleeper).map_err(|e| format!("no process can be started: {e}"))?;
    let tid = Tid(sleeper.child.id() as i32);
    let message = |e: io::Error| e.to_string();
    fs::write(scratch.directory.join("cgroup.procs"), tid.0.to_string()).map_err(message)?;
    write_mask(tid, &high).map_err(|e| e.to_string())?;
    scratch.set_cpus(&low).map_err(message)?;
    scratch.set_cpus(&both).map_err(message)?;
    Ok(read_mask(host, tid).map_err(|e| e.to_string())? == high)
}

/// A process that sleeps and is killed when this value goes.
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
        // Both fail only if it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A cgroup that is removed when this value goes; its process must be dead by then.
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
            // A v1 cpuset takes no process before it has memory nodes.
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
        // Best effort: an empty cgroup does no harm, and there is no caller to report to.
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
        let answer = probe_user_masks(&host, sleep);
        let own = find_cgroup(&host, Pid(nix::unistd::getpid().as_raw())).unwrap();
        let left = own
            .directory
            .join(format!("albacore-probe-{}", nix::unistd::getpid()));
        assert!(
            !left.exists(),
            "{} is left after {answer:?}",
            left.display()
        );
        if let UserMasks::Unknown { reason } = answer {
            assert!(!reason.is_empty());
        }
    }
}
