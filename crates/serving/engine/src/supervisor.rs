//! Starts the workers, waits for their ends, ends those that hang, and starts them again.
//!
//! One thread does nothing else. The kernel kills a worker when the thread that started it ends, so
//! this thread lives until the last worker is gone.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use std::os::fd::AsFd as _;

use albacore_batching::Nanos;
use albacore_os::{Channel, Child, HostRoot, Key, OsError, Pid, Poll, ThreadTimes};

use super::EngineEvent;
use super::cpus::Cpus;
use super::hold::Shared;
use super::state::{Life, Phase};
use crate::limits::{
    HANG_LOOK_PERIOD, HANG_READING_SHARE, RESPAWN_PAUSE_MAX, RESPAWN_PAUSE_MIN, RESPAWNS_AT_ONCE,
    WORKER_STOP_DEADLINE,
};
use crate::ring::Ring;
use crate::worker;

/// The key of the engine's own wakes; workers have their index.
const WAKE: Key = Key(u64::MAX);

/// A worker between two looks.
enum Stage {
    Running(Child, Arc<Life>),
    /// To be started at this time.
    Due(Instant),
    /// Not to be started again.
    Over,
}

pub(super) struct Supervisor {
    shared: Arc<Shared>,
    program: PathBuf,
    poll: Poll,
    lives: Vec<Stage>,
    /// Set once the workers are told to stop: when those that still run are killed.
    kill_at: Option<Instant>,
    /// When it was last looked for workers that hang.
    looked: Instant,
    /// When the threads of suspects may be read again.
    may_read: Instant,
    /// Whether it was said that the kernel does not count for how long threads wait.
    is_unread_told: bool,
    cpus: Cpus,
}

impl Supervisor {
    pub(super) fn new(shared: Arc<Shared>, program: PathBuf) -> Result<Self, OsError> {
        let poll = Poll::new()?;
        poll.add(&shared.supervise, WAKE)?;
        let now = Instant::now();
        let lives = (0..shared.sizes.workers).map(|_| Stage::Due(now)).collect();
        Ok(Self {
            shared,
            program,
            poll,
            lives,
            kill_at: None,
            looked: now,
            may_read: now,
            is_unread_told: false,
            cpus: Cpus::new(),
        })
    }

    /// Runs until the engine stops and the last worker is gone.
    pub(super) fn run(mut self) -> Result<(), OsError> {
        // bound: one pass for each end of a worker, each due start, each wake, and each look.
        loop {
            // Before the first workers are up: batches are shared by what is known of the cpus.
            if let Some(cpus) = self.cpus.look() {
                self.shared.state().set_cpus(cpus);
            }
            self.start_what_is_due();
            if self.lives.iter().all(|life| matches!(life, Stage::Over)) {
                return Ok(());
            }
            let keys = self.poll.wait(self.next_due())?;
            for key in keys {
                match usize::try_from(key.0) {
                    Ok(index) if index < self.lives.len() => self.look_at(index)?,
                    _ => self.shared.supervise.clear(),
                }
            }
            if self.shared.state().phase >= Phase::Stopping {
                self.stop();
            } else {
                self.kill_those_that_hang();
            }
        }
    }

    fn next_due(&self) -> Duration {
        let starts = self.lives.iter().filter_map(|life| match life {
            Stage::Due(at) => Some(*at),
            Stage::Running(..) | Stage::Over => None,
        });
        let next = starts.chain(self.kill_at).min();
        let due = next.map(|at| at.saturating_duration_since(Instant::now()));
        due.unwrap_or(HANG_LOOK_PERIOD).min(HANG_LOOK_PERIOD)
    }

    /// Looks at most every [`HANG_LOOK_PERIOD`] for workers that hang, and ends them. That they are
    /// gone is then told by the kernel, as with any other death.
    fn kill_those_that_hang(&mut self) {
        let since = self.looked.elapsed();
        if since < HANG_LOOK_PERIOD {
            return;
        }
        self.looked = Instant::now();
        let stalled = since.saturating_sub(2 * HANG_LOOK_PERIOD);
        let stalled = Nanos(u64::try_from(stalled.as_nanos()).unwrap_or(u64::MAX));
        let suspects = self
            .shared
            .change(|state, now, out| state.suspects(stalled, now, out));
        if suspects.is_empty() || self.looked < self.may_read {
            return;
        }
        for suspect in suspects {
            let worker = suspect.worker;
            let Some(Stage::Running(child, _)) = self.lives.get(worker) else {
                continue;
            };
            let pid = child.pid();
            let at = self.shared.now();
            let threads = self.read_threads(pid);
            let hang = self
                .shared
                .change(|state, now, out| state.judge(&suspect, (threads, at), now, out));
            if let (Some(hang), Some(Stage::Running(child, _))) = (hang, self.lives.get_mut(worker))
            {
                let (used, without_cpu) = (hang.used, hang.excused);
                tracing::warn!(
                    worker,
                    pid = pid.0,
                    ?used,
                    ?without_cpu,
                    "a worker hangs: it is ended"
                );
                child.kill();
            }
        }
        self.may_read = Instant::now() + self.looked.elapsed() * HANG_READING_SHARE;
    }

    /// What the scheduler says of the threads of a worker; `None` if it is gone, or the kernel does
    /// not say it.
    fn read_threads(&mut self, pid: Pid) -> Option<Vec<ThreadTimes>> {
        match albacore_os::read_thread_times(&HostRoot::live(), pid) {
            Ok(threads) => Some(threads),
            Err(error) if error.is_gone() => None,
            Err(error) => {
                if !std::mem::replace(&mut self.is_unread_told, true) {
                    let cause = super::load::describe(&error);
                    tracing::warn!(
                        %cause,
                        "how long workers wait for a cpu is not known: on a busy machine one that \
                         waits long is taken for one that hangs, and started again"
                    );
                }
                None
            }
        }
    }

    fn start_what_is_due(&mut self) {
        let now = Instant::now();
        for index in 0..self.lives.len() {
            if self.shared.state().phase >= Phase::Stopping {
                return;
            }
            if matches!(self.lives[index], Stage::Due(at) if at <= now) {
                self.lives[index] = match self.start(index) {
                    Ok((child, life)) => Stage::Running(child, life),
                    Err(error) => {
                        let cause = super::load::describe(&error);
                        tracing::error!(worker = index, %cause, "a worker cannot be started");
                        let failures = self.shared.change(|state, _, out| {
                            out.is_changed = true;
                            state.worker_not_started(index, &cause)
                        });
                        Stage::Due(now + pause(failures).max(RESPAWN_PAUSE_MIN))
                    }
                };
            }
        }
    }

    fn start(&self, index: usize) -> Result<(Child, Arc<Life>), OsError> {
        let shared = &self.shared;
        let ring = Ring::create("albacore-ring")?;
        let (channel, theirs) = Channel::pair()?;
        let life = Arc::new(Life { ring, channel });
        let fds = [
            life.ring.fd(),
            shared.done.as_fd(),
            shared.files.rows.as_fd(),
            shared.files.results.as_fd(),
            theirs.as_fd(),
        ];
        let arguments = worker::arguments(index, shared.sizes.threads, fds);
        // The worker may be ready before it is known here: it is looked at again below.
        let child = Child::start(&self.program, &arguments, &fds)?;
        self.poll.add(&child, Key(index as u64))?;
        (shared.observer.0)(EngineEvent::WorkerStarted {
            worker: index,
            pid: child.pid().0,
        });
        shared.change(|state, now, out| {
            state.worker_started(index, Arc::clone(&life), now);
            state.collect_all(now, out);
        });
        Ok((child, life))
    }

    fn look_at(&mut self, index: usize) -> Result<(), OsError> {
        let Some(Stage::Running(child, _)) = self.lives.get_mut(index) else {
            return Ok(());
        };
        let Some(exit) = child.try_wait()? else {
            return Ok(());
        };
        let pid = child.pid().0;
        self.poll.remove(child)?;
        let (failures, ended, is_stopping) = self.shared.change(|state, now, out| {
            let failures = state.worker_ended(index, exit, now, out);
            let ended = state.last_end(index).to_owned();
            let is_stopping = state.phase >= Phase::Stopping;
            if !is_stopping {
                state.counters.restarted(index);
                state.counters.worker_last_end = Some(ended.clone());
            }
            (failures, ended, is_stopping)
        });
        self.lives[index] = if is_stopping {
            Stage::Over
        } else {
            let cause = ended;
            (self.shared.observer.0)(EngineEvent::WorkerDied {
                worker: index,
                pid,
                cause,
            });
            Stage::Due(Instant::now() + pause(failures))
        };
        Ok(())
    }

    /// Tells every worker to end, and kills those that did not in time.
    fn stop(&mut self) {
        let now = Instant::now();
        let kill_at = *self.kill_at.get_or_insert_with(|| {
            for stage in &self.lives {
                if let Stage::Running(_, life) = stage {
                    life.ring.stop();
                }
            }
            now + WORKER_STOP_DEADLINE
        });
        for life in &mut self.lives {
            match life {
                Stage::Running(child, _) if now >= kill_at => child.kill(),
                Stage::Running(..) => {}
                Stage::Due(_) | Stage::Over => *life = Stage::Over,
            }
        }
    }
}

/// How long to wait before a worker is started again after `failures` lives in a row that ended
/// before it was ready.
fn pause(failures: u32) -> Duration {
    match failures.checked_sub(RESPAWNS_AT_ONCE) {
        None => Duration::ZERO,
        Some(more) => {
            let factor = 2_u32.saturating_pow(more);
            RESPAWN_PAUSE_MIN
                .saturating_mul(factor)
                .min(RESPAWN_PAUSE_MAX)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_deaths_are_followed_at_once_and_crash_loops_slow_down() {
        assert_eq!(pause(0), Duration::ZERO);
        assert_eq!(pause(RESPAWNS_AT_ONCE - 1), Duration::ZERO);
        assert_eq!(pause(RESPAWNS_AT_ONCE), RESPAWN_PAUSE_MIN);
        assert_eq!(pause(RESPAWNS_AT_ONCE + 1), 2 * RESPAWN_PAUSE_MIN);
        assert_eq!(pause(u32::MAX), RESPAWN_PAUSE_MAX);
    }
}
