//! Monotonic time, and the clock that the kernel uses for thread start times.

use nix::time::{ClockId, clock_gettime};
use nix::unistd::{SysconfVar, sysconf};

use albacore_values::{Micros, Tid};

use crate::OsError;

/// Reads the time since boot; knows the length of a clock tick (USER_HZ).
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    ticks_per_second: u64,
}

impl Clock {
    /// Reads the tick rate with `sysconf`.
    ///
    /// # Errors
    /// `sysconf` fails (it never does).
    pub fn new() -> Result<Self, OsError> {
        let ticks =
            sysconf(SysconfVar::CLK_TCK).map_err(|e| OsError::call("sysconf(CLK_TCK)", e))?;
        match ticks.and_then(|t| u64::try_from(t).ok()).filter(|&t| t > 0) {
            Some(ticks_per_second) => Ok(Self { ticks_per_second }),
            None => Err(OsError::call("sysconf(CLK_TCK)", nix::errno::Errno::EINVAL)),
        }
    }

    /// Time since boot. Monotonic; unaffected by changes of the wall clock.
    ///
    /// # Errors
    /// The system call fails (it never does).
    pub fn now(&self) -> Result<Micros, OsError> {
        read_clock(ClockId::CLOCK_BOOTTIME)
    }

    /// CPU time used by the calling thread.
    ///
    /// # Errors
    /// The system call fails (it never does).
    pub fn thread_cpu(&self) -> Result<Micros, OsError> {
        read_clock(ClockId::CLOCK_THREAD_CPUTIME_ID)
    }

    /// CPU time used by a thread of this process.
    ///
    /// # Errors
    /// The thread does not belong to this process, or has exited.
    pub fn cpu_of_thread(&self, thread: Tid) -> Result<Micros, OsError> {
        // Encoded like `pthread_getcpuclockid`: the complement of the tid shifted by 3, one bit for
        // a per-thread clock, two bits for CPUCLOCK_SCHED.
        read_clock(ClockId::from_raw(!thread.0 << 3 | 0b110))
    }

    /// CPU time used by all threads of this process.
    ///
    /// # Errors
    /// The system call fails (it never does).
    pub fn process_cpu(&self) -> Result<Micros, OsError> {
        read_clock(ClockId::CLOCK_PROCESS_CPUTIME_ID)
    }

    /// Converts clock ticks, as of a start time in `stat`, to the beginning of the tick.
    pub fn ticks_to_micros(&self, ticks: u64) -> Micros {
        Micros((u128::from(ticks) * 1_000_000 / u128::from(self.ticks_per_second)) as u64)
    }
}

/// Reads a clock whose epoch is boot or process start.
pub(crate) fn read_clock(clock: ClockId) -> Result<Micros, OsError> {
    let time = clock_gettime(clock).map_err(|e| OsError::call("clock_gettime", e))?;
    // infallible: the time is not negative and below 292 thousand years.
    Ok(Micros(
        time.tv_sec() as u64 * 1_000_000 + time.tv_nsec() as u64 / 1_000,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HostRoot, Pid, read_stat};

    #[test]
    fn the_cpu_time_of_a_thread_is_read_from_another_one() {
        let clock = Clock::new().unwrap();
        let me = crate::current_thread();
        let before = clock.thread_cpu().unwrap();
        let seen = std::thread::spawn(move || clock.cpu_of_thread(me));
        let seen = seen.join().unwrap().unwrap();
        let after = clock.thread_cpu().unwrap();
        assert!(
            before <= seen && seen <= after,
            "{before:?} {seen:?} {after:?}"
        );
        assert!(clock.cpu_of_thread(Tid(1)).is_err(), "of another process");
    }

    #[test]
    fn a_start_time_is_within_a_tick_of_the_real_one() {
        let clock = Clock::new().unwrap();
        let before = clock.now().unwrap();
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let after = clock.now().unwrap();
        let stat = read_stat(&HostRoot::live(), Pid(child.id() as i32)).unwrap();
        let start = clock.ticks_to_micros(stat.start_ticks);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(
            start.0 + 20_000 >= before.0 && start <= after,
            "{before:?} {start:?} {after:?}"
        );
    }
}
