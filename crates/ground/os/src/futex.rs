//! Futex: waits on a 32-bit word until another thread, possibly of another process, changes it.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;

/// Which threads share a futex.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sharing {
    /// Threads of this process only (FUTEX_PRIVATE_FLAG), which is cheaper.
    ProcessPrivate,
    /// Threads of every process that maps the word.
    ProcessShared,
}

impl Sharing {
    fn flag(self) -> libc::c_int {
        match self {
            Self::ProcessPrivate => libc::FUTEX_PRIVATE_FLAG,
            Self::ProcessShared => 0,
        }
    }
}

/// Blocks while `word` is `expected`, until woken or until `timeout` expires. May wake spuriously:
/// check the word again.
pub fn wait(sharing: Sharing, word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
    let timeout = timeout.map(|t| libc::timespec {
        // time_t on all 64-bit machines; libc plans to rename it for musl.
        tv_sec: i64::try_from(t.as_secs()).unwrap_or(i64::MAX),
        // infallible: below 1e9.
        tv_nsec: t.subsec_nanos() as libc::c_long,
    });
    let timeout = timeout
        .as_ref()
        .map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the word and the timespec live until the call returns; the kernel only reads them.
    // The result is ignored: woken, changed, interrupted and timed out all mean "check again".
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT | sharing.flag(),
            expected,
            timeout,
        );
    }
}

/// Wakes at most `count` waiters on `word`; returns the number of waiters woken.
pub fn wake(sharing: Sharing, word: &AtomicU32, count: u32) -> usize {
    let count = libc::c_int::try_from(count).unwrap_or(libc::c_int::MAX);
    // SAFETY: the kernel uses the address of the word as a key and does not access the word.
    let woken = unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAKE | sharing.flag(),
            count,
        )
    };
    debug_assert!(woken >= 0, "{}", Errno::last());
    usize::try_from(woken).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn a_waiter_is_woken_through_another_mapping() {
        let memory = crate::SharedMemory::create("test", crate::FUTEX_BYTES).unwrap();
        let ours = memory.map_words().unwrap();
        let sleeper = std::thread::spawn({
            let theirs = memory.map_words().unwrap();
            move || {
                while theirs.futexes()[3].load(Ordering::Acquire) == 0 {
                    wait(Sharing::ProcessShared, &theirs.futexes()[3], 0, None);
                }
            }
        });
        ours.futexes()[3].store(1, Ordering::Release);
        wake(Sharing::ProcessShared, &ours.futexes()[3], 1);
        sleeper.join().unwrap();
    }

    #[test]
    fn a_changed_word_and_a_timeout_end_the_sleep() {
        let word = AtomicU32::new(1);
        wait(Sharing::ProcessPrivate, &word, 0, None);
        wait(
            Sharing::ProcessPrivate,
            &word,
            1,
            Some(Duration::from_millis(1)),
        );
        assert_eq!(wake(Sharing::ProcessPrivate, &word, 1), 0);
    }
}
