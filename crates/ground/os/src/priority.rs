//! Priority of the calling thread: the thread that repairs placement must get a cpu while the
//! placed threads hold all of them, and so must the scheduler of batches while workers compute.

use nix::errno::Errno;
use nix::libc;

/// Nice level of a favored thread. A loop that uses 2 % of a core at most takes nothing away that
/// counts, and goes before any thread at the usual level.
const FAVORED_NICE: i32 = -10;

/// Slice of a favored thread, in nanoseconds: the kernel's minimum. Since Linux 6.12 a waking
/// thread with a shorter slice goes before the one that runs, and asking for it needs no privilege;
/// older kernels ignore it.
const FAVORED_SLICE_NANOS: u64 = 100_000;

/// How much a thread is favored.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Favor {
    /// It has a raised priority.
    Priority,
    /// The kernel did not allow that (no `CAP_SYS_NICE`): only a short slice, where the kernel
    /// knows it.
    SliceOnly,
    /// The kernel (or a sandbox) refuses to change even what needs no privilege.
    Not,
}

/// Raises the priority of the calling thread as far as the kernel allows. Threads and processes
/// that it makes have the usual one.
pub fn favor_this_thread() -> Favor {
    if set_attributes(FAVORED_NICE).is_ok() {
        Favor::Priority
    } else if set_attributes(own_nice()).is_ok() {
        Favor::SliceOnly
    } else {
        Favor::Not
    }
}

/// Asks for the shortest slice for the calling thread, at its own priority: it has no larger share
/// of a cpu than before, but gets it as soon as it has something to do. For threads that do little
/// at a time and that others wait for. False where the kernel refuses; older ones take it and do
/// nothing.
pub fn shorten_slice() -> bool {
    set_attributes(own_nice()).is_ok()
}

/// Nice level of the calling thread.
fn own_nice() -> i32 {
    // SAFETY: takes no pointers; 0 means the calling thread, which exists, so that the call cannot
    // fail.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
}

fn set_attributes(nice: i32) -> Result<(), Errno> {
    // SAFETY: the structure is plain old data, all zeros is a value of it.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    attributes.size = size_of::<libc::sched_attr>() as u32;
    attributes.sched_policy = libc::SCHED_OTHER as u32;
    attributes.sched_flags = libc::SCHED_FLAG_RESET_ON_FORK as u64;
    attributes.sched_nice = nice;
    attributes.sched_runtime = FAVORED_SLICE_NANOS;
    // SAFETY: the kernel reads `size` bytes of `attributes`, which lives through the call; 0 means
    // the calling thread.
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
    fn a_favored_thread_is_favored_alone_and_its_children_are_not() {
        let before = own_nice();
        let (favor, favored, child) = std::thread::spawn(|| {
            let favor = favor_this_thread();
            let child = std::thread::spawn(own_nice).join().unwrap();
            (favor, own_nice(), child)
        })
        .join()
        .unwrap();
        assert_ne!(favor, Favor::Not);
        let is_raised = favor == Favor::Priority;
        assert_eq!(favored, if is_raised { FAVORED_NICE } else { before });
        assert_eq!(child, if is_raised { 0 } else { before });
        assert_eq!(own_nice(), before);
    }
}
