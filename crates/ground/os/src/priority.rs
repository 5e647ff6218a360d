//! Scheduling priority of the calling thread: the placer and the batch scheduler must get a cpu
//! while the workers keep all cpus busy.

use nix::errno::Errno;
use nix::libc;

/// Nice level of raised priority, above every thread at the default level. A loop that uses at most
/// 2 % of a core takes little cpu time from them.
const RAISED_NICE: i32 = -10;

/// The lowest nice level.
const LOWEST_NICE: i32 = 19;

/// Slice of raised priority, in nanoseconds: the kernel's minimum. Since Linux 6.12 (EEVDF), a
/// waking thread with a shorter slice preempts the running one, and setting the slice needs no
/// privilege; older kernels ignore it.
const SHORT_SLICE_NANOS: u64 = 100_000;

/// Result of raising the priority.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PriorityChange {
    /// The nice level and the slice changed.
    Raised,
    /// Changing the nice level is not permitted (no `CAP_SYS_NICE`), or the thread has a positive
    /// nice level: only the slice was shortened, if the kernel supports it.
    SliceOnly,
    /// The kernel or a sandbox rejects even the unprivileged change.
    Refused,
}

/// Raises the priority of the calling thread as far as permitted. Threads and processes that it
/// creates have the default priority. A thread with a positive nice level keeps it, as do its
/// children.
pub fn raise_thread_priority() -> PriorityChange {
    let nice = own_nice();
    if nice <= 0 && set_attributes(RAISED_NICE).is_ok() {
        PriorityChange::Raised
    } else if set_attributes(nice).is_ok() {
        PriorityChange::SliceOnly
    } else {
        PriorityChange::Refused
    }
}

/// Sets the calling thread to the lowest priority: it mostly runs on cpus that would otherwise be
/// idle. Returns false on failure.
pub fn lower_thread_priority() -> bool {
    set_attributes(LOWEST_NICE).is_ok()
}

/// Requests the shortest slice for the calling thread at its current nice level: its share of cpu
/// time is unchanged, but its scheduling latency is lower. For threads with short bursts of work
/// that other threads wait for. Returns false on failure; older kernels accept the call without any
/// effect.
pub fn shorten_time_slice() -> bool {
    set_attributes(own_nice()).is_ok()
}

/// Nice level of the calling thread.
fn own_nice() -> i32 {
    // SAFETY: takes no pointers; 0 is the calling thread, which exists, so the call cannot fail.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
}

fn set_attributes(nice: i32) -> Result<(), Errno> {
    // SAFETY: the structure is plain old data, for which all zeros is a valid value.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    attributes.size = size_of::<libc::sched_attr>() as u32;
    attributes.sched_policy = libc::SCHED_OTHER as u32;
    attributes.sched_flags = libc::SCHED_FLAG_RESET_ON_FORK as u64;
    attributes.sched_nice = nice;
    attributes.sched_runtime = SHORT_SLICE_NANOS;
    // SAFETY: the kernel reads `size` bytes of `attributes`, which lives through the call; 0 is the
    // calling thread.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if result == 0 {
        Ok(())
    } else {
        Err(Errno::last())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_raised_priority_is_of_one_thread_and_not_of_its_children() {
        let before = own_nice();
        let (change, raised, child) = std::thread::spawn(|| {
            let change = raise_thread_priority();
            let child = std::thread::spawn(own_nice).join().unwrap();
            (change, own_nice(), child)
        })
        .join()
        .unwrap();
        assert_ne!(change, PriorityChange::Refused);
        let is_raised = change == PriorityChange::Raised;
        assert_eq!(raised, if is_raised { RAISED_NICE } else { before });
        assert_eq!(child, if is_raised { 0 } else { before });
        assert_eq!(own_nice(), before);
    }

    #[test]
    fn a_nice_thread_and_its_children_stay_nice() {
        let nices = std::thread::spawn(|| {
            set_attributes(5).unwrap();
            assert_eq!(raise_thread_priority(), PriorityChange::SliceOnly);
            (own_nice(), std::thread::spawn(own_nice).join().unwrap())
        });
        assert_eq!(nices.join().unwrap(), (5, 5));
    }
}
