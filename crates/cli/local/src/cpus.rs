//! The cpus of a run: those of `--cpus`, or of the mask that it was started with.

use albacore_command::{Failure, sentence};
use albacore_os::{HostRoot, Pid, current_thread, find_cgroup, read_mask, write_mask};
use albacore_topology::CpuSet;

/// Lets the calling thread, and all threads and processes that it starts from now on, run on the
/// cpus that were asked for. Returns the limit of placement; `None` if its mask is the whole cpuset
/// of its cgroup, which is followed when it grows.
///
/// # Errors
/// A cpu that this process may not use; the kernel does not tell.
pub(crate) fn restrict(asked: Option<&CpuSet>) -> Result<Option<CpuSet>, Failure> {
    let failed = |error: &dyn std::error::Error| Failure::Failed(sentence(error));
    let (host, me) = (HostRoot::live(), current_thread());
    let mask = read_mask(&host, me).map_err(|e| failed(&e))?;
    if let Some(asked) = asked {
        let checked = asked.check_choice(&mask);
        checked.map_err(|e| Failure::Usage(format!("--cpus {e}")))?;
        write_mask(me, asked).map_err(|e| failed(&e))?;
        return Ok(Some(asked.clone()));
    }
    let own = Pid(std::process::id() as i32);
    let cgroup = find_cgroup(&host, own).map_err(|e| failed(&e))?;
    let cpuset = cgroup.read_effective(&host).map_err(|e| failed(&e))?.cpus;
    Ok((!cpuset.is_subset(&mask)).then_some(mask))
}
