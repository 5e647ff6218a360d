//! The online cpus, and the state of sched_ext (BPF schedulers).

use albacore_topology::CpuSet;

use crate::read::{parse_cpus, read_optional_text, read_text};
use crate::{HostRoot, OsError};

/// Reads the online cpus.
///
/// # Errors
/// The file cannot be read or does not contain a cpu list.
pub fn read_online(host: &HostRoot) -> Result<CpuSet, OsError> {
    let path = host.sys.join("devices/system/cpu/online");
    parse_cpus(&path, &read_text(&path)?)
}

/// Whether a BPF scheduler replaces the kernel's own (sched_ext).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SchedExt {
    /// The kernel's own scheduler is active.
    Disabled,
    /// A BPF scheduler is active; it may penalize threads with affinity masks.
    Enabled,
}

/// Reads the state of sched_ext; a kernel without it counts as disabled.
///
/// # Errors
/// The file exists but cannot be read.
pub fn read_sched_ext(host: &HostRoot) -> Result<SchedExt, OsError> {
    let text = read_optional_text(&host.sys.join("kernel/sched_ext/state"))?;
    Ok(match text.as_deref().map(str::trim) {
        None | Some("disabled") => SchedExt::Disabled,
        // `enabling` and `disabling` are transitions.
        Some(_) => SchedExt::Enabled,
    })
}
