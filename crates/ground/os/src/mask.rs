//! Affinity masks of threads: the cpus on which the kernel lets a thread run.

use std::io;

use albacore_topology::{CpuId, CpuSet};
use nix::errno::Errno;
use nix::libc;

use crate::limits::MASK_BYTES;
use crate::read::read_text;
use crate::{HostRoot, OsError, Tid};

/// Failure to read or write an affinity mask.
#[derive(Debug, thiserror::Error)]
pub enum MaskError {
    /// The thread has exited, which is normal.
    #[error("thread {} has ended", tid.0)]
    Gone { tid: Tid },
    /// No cpu of the mask is online and in the thread's cpuset (EINVAL): the plan is older than the
    /// cpuset.
    #[error("none of the cpus {mask} is in the cpuset of thread {} now", tid.0)]
    OutsideCpuset { tid: Tid, mask: CpuSet },
    /// Permission to write denied.
    #[error(
        "no permission to pin thread {}: run as the same user or root, or give CAP_SYS_NICE",
        tid.0
    )]
    NotPermitted { tid: Tid },
    /// Permission to read denied. The kernel itself lets everyone read masks.
    #[error(
        "no permission to read the mask of thread {}: allow sched_getaffinity in the seccomp \
         profile and in the security policy (SELinux, Smack)",
        tid.0
    )]
    ReadNotPermitted { tid: Tid },
    /// Any other failure.
    #[error("cannot read or set the mask of thread {}", tid.0)]
    Other { tid: Tid, source: io::Error },
}

/// Sets the affinity mask of a thread (`sched_setaffinity`).
///
/// # Errors
/// See [`MaskError`]. An empty mask results in [`MaskError::OutsideCpuset`], as the kernel returns
/// EINVAL.
pub fn write_mask(tid: Tid, mask: &CpuSet) -> Result<(), MaskError> {
    let mut bits = [0u8; MASK_BYTES];
    for cpu in mask.iter() {
        bits[usize::from(cpu.0) / 8] |= 1 << (cpu.0 % 8);
    }
    // SAFETY: the kernel reads MASK_BYTES bytes from `bits`, which lives through the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_sched_setaffinity,
            tid.0,
            MASK_BYTES,
            bits.as_ptr(),
        )
    };
    if result == 0 {
        return Ok(());
    }
    Err(match Errno::last() {
        Errno::EINVAL => MaskError::OutsideCpuset {
            tid,
            mask: mask.clone(),
        },
        Errno::EPERM | Errno::EACCES => MaskError::NotPermitted { tid },
        errno => mask_error(tid, errno),
    })
}

fn read_error(tid: Tid, errno: Errno) -> MaskError {
    match errno {
        Errno::EPERM | Errno::EACCES => MaskError::ReadNotPermitted { tid },
        errno => mask_error(tid, errno),
    }
}

fn mask_error(tid: Tid, errno: Errno) -> MaskError {
    match errno {
        Errno::ESRCH => MaskError::Gone { tid },
        errno => MaskError::Other {
            tid,
            source: errno.into(),
        },
    }
}

/// Reads the affinity mask of a thread: with `sched_getaffinity` on the live machine, from
/// `Cpus_allowed_list` of a recording. May be empty: a thread that was pinned in the root cgroup to
/// a cpu that has gone offline has no cpu in its mask.
///
/// # Errors
/// See [`MaskError`].
pub fn read_mask(host: &HostRoot, tid: Tid) -> Result<CpuSet, MaskError> {
    if host.is_live() {
        read_live_mask(tid)
    } else {
        read_recorded_mask(host, tid)
    }
}

fn read_live_mask(tid: Tid) -> Result<CpuSet, MaskError> {
    let mut bits = [0u8; MASK_BYTES];
    // SAFETY: the kernel writes at most MASK_BYTES bytes into `bits`, which lives through the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_sched_getaffinity,
            tid.0,
            MASK_BYTES,
            bits.as_mut_ptr(),
        )
    };
    if let Ok(length) = usize::try_from(result) {
        // The result is the number of bytes written: one bit per possible cpu, rounded up to words.
        let bytes = bits.iter().take(length).enumerate();
        let ids = bytes.flat_map(|(i, byte)| {
            (0..8u16)
                .filter(move |b| byte >> b & 1 == 1)
                .map(move |b| CpuId(i as u16 * 8 + b))
        });
        return Ok(ids.collect());
    }
    Err(read_error(tid, Errno::last()))
}

fn read_recorded_mask(host: &HostRoot, tid: Tid) -> Result<CpuSet, MaskError> {
    let path = host.proc.join(format!("{}/status", tid.0));
    let other = |source: OsError| MaskError::Other {
        tid,
        source: io::Error::other(source),
    };
    let text = match read_text(&path) {
        Ok(text) => text,
        Err(e) if e.is_gone() => return Err(MaskError::Gone { tid }),
        Err(e) => return Err(other(e)),
    };
    // A malicious thread name cannot forge this line, because the kernel escapes newlines in
    // `Name:`.
    text.lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
        .and_then(|list| list.parse().ok())
        .ok_or_else(|| {
            other(OsError::content(
                &path,
                &text,
                "a status with Cpus_allowed_list",
            ))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The calling thread; other threads of the test keep their masks.
    fn me() -> Tid {
        Tid(nix::unistd::gettid().as_raw())
    }

    #[test]
    fn a_written_mask_is_read_back_and_can_be_restored() {
        let host = HostRoot::live();
        let before = read_mask(&host, me()).unwrap();
        let one: CpuSet = before.first().into_iter().collect();
        write_mask(me(), &one).unwrap();
        assert_eq!(read_mask(&host, me()).unwrap(), one);
        write_mask(me(), &before).unwrap();
        assert_eq!(read_mask(&host, me()).unwrap(), before);
    }

    #[test]
    fn a_mask_that_may_not_be_read_is_not_called_one_that_may_not_be_set() {
        for errno in [Errno::EPERM, Errno::EACCES] {
            let text = read_error(me(), errno).to_string();
            assert!(text.starts_with("no permission to read the mask"), "{text}");
        }
        let gone = read_error(me(), Errno::ESRCH);
        assert!(matches!(gone, MaskError::Gone { .. }));
    }

    #[test]
    fn a_mask_outside_the_cpuset_and_a_thread_that_is_gone_are_distinguished() {
        let far: CpuSet = [CpuId(CpuSet::MAX_ID)].into_iter().collect();
        assert!(matches!(
            write_mask(me(), &far),
            Err(MaskError::OutsideCpuset { .. })
        ));
        assert!(matches!(
            write_mask(me(), &CpuSet::new()),
            Err(MaskError::OutsideCpuset { .. })
        ));
        let gone = Tid(i32::MAX);
        let some: CpuSet = [CpuId(0)].into_iter().collect();
        assert!(matches!(
            write_mask(gone, &some),
            Err(MaskError::Gone { .. })
        ));
        assert!(matches!(
            read_mask(&HostRoot::live(), gone),
            Err(MaskError::Gone { .. })
        ));
    }
}
