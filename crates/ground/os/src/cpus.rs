//! Which cpus are online, and whether a scheduler from elsewhere (sched_ext) decides about them.

use albacore_topology::CpuSet;

use crate::read::{read_text, read_text_if_present};
use crate::{HostRoot, OsError};

/// The online cpus.
///
/// # Errors
/// The file cannot be read or is not a cpu list.
pub fn read_online(host: &HostRoot) -> Result<CpuSet, OsError> {
    let path = host.sys.join("devices/system/cpu/online");
    let text = read_text(&path)?;
    text.parse()
        .map_err(|_| OsError::content(&path, &text, "a cpu list such as 0-3,8"))
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
        // `enabling` and `disabling` are moments of the same thing.
        Some(_) => SchedExt::Enabled,
    })
}
