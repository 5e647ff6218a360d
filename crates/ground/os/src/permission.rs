//! Permissions of this process, probed individually and without side effects, so that a missing one
//! can be reported and granted.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use albacore_topology::CpuSet;
use nix::sys::statvfs::{FsFlags, statvfs};

use crate::process::numbers_in;
use crate::read::read_text;
use crate::{HostRoot, MaskError, OsError, Pid, Tid, read_stat, write_mask};

/// Whether this process may set the affinity masks of other users' threads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Pinning {
    Permitted,
    /// Not permitted: `CAP_SYS_NICE` is missing, or a security module forbids it.
    Refused,
    /// Not determined.
    Unknown {
        /// The reason, as a sentence.
        reason: String,
    },
}

/// Tests whether the affinity masks of other users' processes can be set, with an *empty* mask for
/// one of them: the kernel checks the permission first (EPERM) and then the mask (EINVAL), so no
/// mask is ever changed. If no other user has a process, the effective capabilities decide.
pub fn probe_pinning(host: &HostRoot) -> Pinning {
    if !host.is_live() {
        let reason = "procfs does not show the pid namespace of this process".into();
        return Pinning::Unknown { reason };
    }
    let unknown = |e: OsError| Pinning::Unknown {
        reason: e.to_string(),
    };
    let own = nix::unistd::geteuid().as_raw();
    let pids = match numbers_in(host.proc.clone()) {
        Ok(pids) => pids,
        Err(e) => return unknown(e),
    };
    for pid in pids.into_iter().filter(|&pid| pid > 1) {
        let is_other = std::fs::metadata(host.proc.join(pid.to_string()))
            .is_ok_and(|directory| directory.uid() != own);
        let is_thread_of_kernel = |pid| read_stat(host, Pid(pid)).is_ok_and(|s| s.is_kernel);
        if !is_other || is_thread_of_kernel(pid) {
            continue;
        }
        match write_mask(Tid(pid), &CpuSet::new()) {
            Err(MaskError::OutsideCpuset { .. }) => return Pinning::Permitted,
            Err(MaskError::NotPermitted { .. }) => return Pinning::Refused,
            // The process has exited: try the next one.
            Ok(()) | Err(_) => {}
        }
    }
    match has_sys_nice(host) {
        Ok(true) => Pinning::Permitted,
        Ok(false) => Pinning::Refused,
        Err(e) => unknown(e),
    }
}

/// True if CAP_SYS_NICE is an effective capability of this process.
fn has_sys_nice(host: &HostRoot) -> Result<bool, OsError> {
    const CAP_SYS_NICE: u32 = 23;
    let path = host.proc.join("self/status");
    let text = read_text(&path)?;
    let line = text.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
    let bits = bits.ok_or_else(|| OsError::content(&path, &text, "a status with CapEff"))?;
    Ok(bits >> CAP_SYS_NICE & 1 == 1)
}

/// The mount option of this procfs that hides other users' processes (`hidepid=2`), if any.
///
/// # Errors
/// The mount table cannot be read.
pub fn read_hidepid(host: &HostRoot) -> Result<Option<String>, OsError> {
    let path = host.proc.join("self/mountinfo");
    let text = match read_text(&path) {
        Ok(text) => text,
        // A procfs of another PID namespace has no `self`, so its mount options cannot be read; its
        // processes are visible or not.
        Err(e) if e.is_gone() => return Ok(None),
        Err(e) => return Err(e),
    };
    let target = host.proc.to_string_lossy();
    let mut hidden = None;
    for line in text.lines() {
        let Some((before, after)) = line.split_once(" - ") else {
            continue;
        };
        if before.split(' ').nth(4) != Some(target.as_ref()) {
            continue;
        }
        // The last mount on a mount point hides earlier ones.
        let options = after.split(' ').nth(2).unwrap_or_default().split(',');
        hidden = options
            .filter(|option| option.starts_with("hidepid="))
            .find(|option| !matches!(*option, "hidepid=0" | "hidepid=off"))
            .map(str::to_owned);
    }
    Ok(hidden)
}

/// True if the file system of a path is mounted read-only.
///
/// # Errors
/// The path cannot be accessed.
pub fn is_read_only(path: &Path) -> Result<bool, OsError> {
    let stat = statvfs(path).map_err(|e| OsError::read(path, e.into()))?;
    Ok(stat.flags().contains(FsFlags::ST_RDONLY))
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command};

    use super::*;
    use crate::read_mask;

    struct Other(Child);

    impl Drop for Other {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn the_permission_to_pin_is_probed_without_changing_a_mask() {
        let host = HostRoot::live();
        let other = Other(Command::new("sleep").arg("60").uid(65534).spawn().unwrap());
        let tid = Tid(other.0.id() as i32);
        let before = read_mask(&host, tid).unwrap();
        assert_eq!(probe_pinning(&host), Pinning::Permitted);
        assert_eq!(read_mask(&host, tid).unwrap(), before);
        let recorded = HostRoot::recorded(Path::new("/nowhere"));
        assert!(matches!(probe_pinning(&recorded), Pinning::Unknown { .. }));
    }

    #[test]
    fn an_option_that_hides_processes_is_named() {
        let keep = tempfile::tempdir().unwrap();
        let host = HostRoot::recorded(keep.path());
        let own = host.proc.display().to_string();
        std::fs::create_dir_all(host.proc.join("self")).unwrap();
        let hidden = |options: &str, mount: &str| {
            let line = format!("22 1 0:5 / {mount} rw,nosuid shared:2 - proc proc {options}\n");
            std::fs::write(host.proc.join("self/mountinfo"), line).unwrap();
            read_hidepid(&host).unwrap()
        };
        assert_eq!(hidden("rw,gid=4,hidepid=2", &own), Some("hidepid=2".into()));
        assert_eq!(
            hidden("rw,hidepid=invisible", &own),
            Some("hidepid=invisible".into())
        );
        assert_eq!(hidden("rw,hidepid=0", &own), None);
        assert_eq!(hidden("rw", &own), None);
        assert_eq!(hidden("rw,hidepid=2", "/elsewhere"), None);
        assert!(!is_read_only(keep.path()).unwrap());
    }
}
