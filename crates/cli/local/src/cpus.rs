//! The CPUs of a run: those of `--cpus`, or those of the inherited mask.

use albacore_command::{Failure, sentence};
use albacore_os::{HostRoot, Pid, current_thread, find_cgroup, read_mask, write_mask};
use albacore_topology::CpuSet;

/// Restricts the calling thread, and all threads and processes that it starts later, to the
/// requested CPUs. Returns the limit of placement; `None` if the mask is the whole cpuset of its
/// cgroup, in which case placement follows the cpuset when it grows.
///
/// # Errors
/// This process may not use a requested CPU, or the mask cannot be read.
pub(crate) fn restrict(requested: Option<&CpuSet>) -> Result<Option<CpuSet>, Failure> {
    let failed = |error: &dyn std::error::Error| Failure::Failed(sentence(error));
    let (host, me) = (HostRoot::live(), current_thread());
    let mask = read_mask(&host, me).map_err(|e| failed(&e))?;
    if let Some(requested) = requested {
        let checked = requested.check_selection(&mask);
        checked.map_err(|e| Failure::Usage(format!("--cpus {e}")))?;
        write_mask(me, requested).map_err(|e| failed(&e))?;
        return Ok(Some(requested.clone()));
    }
    let own = Pid(std::process::id() as i32);
    let cgroup = find_cgroup(&host, own).map_err(|e| failed(&e))?;
    let cpuset = cgroup
        .read_effective_cpuset(&host)
        .map_err(|e| failed(&e))?
        .cpus;
    Ok((!cpuset.is_subset(&mask)).then_some(mask))
}
