//! One-shot timer with nanosecond resolution, as a pollable file descriptor (timerfd).

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use crate::OsError;

/// Timer on the monotonic clock.
#[derive(Debug)]
pub struct Timer {
    timerfd: TimerFd,
}

impl Timer {
    /// Creates a disarmed timer.
    ///
    /// # Errors
    /// There are no file descriptors left.
    pub fn new() -> Result<Self, OsError> {
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let timerfd = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)
            .map_err(|e| OsError::call("timerfd_create", e))?;
        Ok(Self { timerfd })
    }

    /// Arms the timer: readable once after `delay` (at least one nanosecond). Replaces an earlier
    /// setting.
    ///
    /// # Errors
    /// The `timerfd_settime` call fails.
    pub fn set(&self, delay: Duration) -> Result<(), OsError> {
        let delay = TimeSpec::from_duration(delay.max(Duration::from_nanos(1)));
        self.timerfd
            .set(Expiration::OneShot(delay), TimerSetTimeFlags::empty())
            .map_err(|e| OsError::call("timerfd_settime", e))
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timerfd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Poll, PollKey};

    #[test]
    fn an_alarm_is_readable_after_its_delay_and_can_be_moved() {
        let (poll, alarm) = (Poll::new().unwrap(), Timer::new().unwrap());
        poll.add(&alarm, PollKey(1)).unwrap();
        alarm.set(Duration::from_secs(3600)).unwrap();
        assert_eq!(poll.wait(Duration::ZERO).unwrap(), []);
        alarm.set(Duration::ZERO).unwrap();
        assert_eq!(poll.wait(Duration::from_secs(60)).unwrap(), [PollKey(1)]);
    }
}
