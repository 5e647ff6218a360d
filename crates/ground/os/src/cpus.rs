//! Which cpus are online, and whether a BPF scheduler (sched_ext) schedules them.

use albacore_topology::CpuSet;

use crate::read::{parse_cpus, read_text, read_text_if_present};
use crate::{HostRoot, OsError};

/// The online cpus.
///
/// # Errors
/// The file cannot be read or is not a cpu list.
pub fn read_online(host: &HostRoot) -> Result<CpuSet, OsError> {
    let path = host.sys.join("devices/system/cpu/online");
    parse_cpus(&path, &read_text(&path)?)
}

/// Whether a BPF scheduler has taken the place of the kernel's own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SchedExt {
    /// The kernel's own scheduler decides.
    Disabled,
    /// A BPF scheduler decides, and may treat threads with masks worse than others.
    Enabled,
}

/// The state of sched_ext; a kernel without it has it disabled.
///
/// # Errors
/// The file is there but cannot be read.
pub fn read_sched_ext(host: &HostRoot) -> Result<SchedExt, OsError> {
    let text = read_text_if_present(&host.sys.join("kernel/sched_ext/state"))?;
    Ok(match text.as_deref().map(str::trim) {
        None | Some("disabled") => SchedExt::Disabled,
        // `enabling` and `disabling` are transitions.
        Some(_) => SchedExt::Enabled,
    })
}
