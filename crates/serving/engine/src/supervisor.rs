//! Starts the workers, waits for them to exit, kills those that hang, and starts them again.
//!
//! One thread does nothing else. The kernel kills a worker when the thread that started it ends, so
//! this thread lives until the last worker is gone.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use std::os::fd::AsFd as _;

use albacore_batching::Nanos;
use albacore_os::{Channel, Child, HostRoot, OsError, Pid, Poll, PollKey, ThreadTimes};

use super::cpus::Cpus;
use super::event::EngineEvent;
use super::shared_state::SharedState;
use super::state::{Incarnation, Phase};
use crate::limits::{
    HANG_CHECK_PERIOD, HANG_SAMPLING_SHARE, RESPAWN_PAUSE_MAX, RESPAWN_PAUSE_MIN, RESPAWNS_AT_ONCE,
    WORKER_STOP_DEADLINE,
};
use crate::ring::Ring;
use crate::worker;

/// The key of the engine's own wakes; workers have their index.
const WAKE_KEY: PollKey = PollKey(u64::MAX);

/// A worker process between two passes of the supervisor.
enum ProcessState {
    Running(Child, Arc<Incarnation>),
    /// To be started at this time.
    Due(Instant),
    /// Not to be started again.
    Over,
}

pub(super) struct Supervisor {
    shared: Arc<SharedState>,
    program: PathBuf,
    poll: Poll,
    processes: Vec<ProcessState>,
    /// Set once the workers got the command to stop: when those that still run are killed.
    kill_at: Option<Instant>,
    /// When the workers were last checked for hangs.
    checked_at: Instant,
    /// When the threads of suspects may be sampled again.
    next_sample_at: Instant,
    /// Whether it was logged that the kernel does not count waiting times.
    is_read_error_logged: bool,
    cpus: Cpus,
}

impl Supervisor {
    pub(super) fn new(shared: Arc<SharedState>, program: PathBuf) -> Result<Self, OsError> {
        let poll = Poll::new()?;
        poll.add(&shared.supervise, WAKE_KEY)?;
        let now = Instant::now();
        let processes = (0..shared.parallelism.workers)
            .map(|_| ProcessState::Due(now))
            .collect();
        Ok(Self {
            shared,
            program,
            poll,
            processes,
            kill_at: None,
            checked_at: now,
            next_sample_at: now,
            is_read_error_logged: false,
            cpus: Cpus::new(),
        })
    }

    /// Runs until the engine stops and the last worker is gone.
    pub(super) fn run(mut self) -> Result<(), OsError> {
        // bound: one pass for each exit of a worker, each due start, each wake, and each check.
        loop {
            // Before the first workers are up: the threads of a batch depend on the number of cpus.
            if let Some(cpus) = self.cpus.poll() {
                self.shared.state().workers.set_cpus(cpus);
            }
            self.start_due_workers();
            if self
                .processes
                .iter()
                .all(|incarnation| matches!(incarnation, ProcessState::Over))
            {
                return Ok(());
            }
            let keys = self.poll.wait(self.next_due())?;
            for key in keys {
                match usize::try_from(key.0) {
                    Ok(index) if index < self.processes.len() => self.reap(index)?,
                    _ => self.shared.supervise.clear(),
                }
            }
            if self.shared.state().phase >= Phase::Stopping {
                self.stop();
            } else {
                self.kill_hung_workers();
            }
        }
    }

    fn next_due(&self) -> Duration {
        let starts = self
            .processes
            .iter()
            .filter_map(|incarnation| match incarnation {
                ProcessState::Due(at) => Some(*at),
                ProcessState::Running(..) | ProcessState::Over => None,
            });
        let next = starts.chain(self.kill_at).min();
        let due = next.map(|at| at.saturating_duration_since(Instant::now()));
        due.unwrap_or(HANG_CHECK_PERIOD).min(HANG_CHECK_PERIOD)
    }

    /// Checks for hung workers, at most every [`HANG_CHECK_PERIOD`], and kills them. Their exits
    /// are then reported by the kernel like any other.
    fn kill_hung_workers(&mut self) {
        let since = self.checked_at.elapsed();
        if since < HANG_CHECK_PERIOD {
            return;
        }
        self.checked_at = Instant::now();
        let stalled = since.saturating_sub(2 * HANG_CHECK_PERIOD);
        let stalled = Nanos::from(stalled);
        let suspects = self
            .shared
            .update(|state, now, out| state.suspects(stalled, now, out));
        if suspects.is_empty() || self.checked_at < self.next_sample_at {
            return;
        }
        for suspect in suspects {
            let worker = suspect.worker;
            let Some(ProcessState::Running(child, _)) = self.processes.get(worker) else {
                continue;
            };
            let pid = child.pid();
            let at = self.shared.now();
            let threads = self.read_threads(pid);
            let hang = self
                .shared
                .update(|state, now, out| state.check_suspect(&suspect, threads, at, now, out));
            if let (Some(hang), Some(ProcessState::Running(child, _))) =
                (hang, self.processes.get_mut(worker))
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
        self.next_sample_at = Instant::now() + self.checked_at.elapsed() * HANG_SAMPLING_SHARE;
    }

    /// Scheduler times of the threads of a worker; `None` if it is gone or the kernel does not
    /// count them.
    fn read_threads(&mut self, pid: Pid) -> Option<Vec<ThreadTimes>> {
        match albacore_os::read_thread_times(&HostRoot::live(), pid) {
            Ok(threads) => Some(threads),
            Err(error) if error.is_gone() => None,
            Err(error) => {
                if !std::mem::replace(&mut self.is_read_error_logged, true) {
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

    fn start_due_workers(&mut self) {
        let now = Instant::now();
        for index in 0..self.processes.len() {
            if self.shared.state().phase >= Phase::Stopping {
                return;
            }
            if matches!(self.processes[index], ProcessState::Due(at) if at <= now) {
                self.processes[index] = match self.start(index) {
                    Ok((child, incarnation)) => ProcessState::Running(child, incarnation),
                    Err(error) => {
                        let cause = super::load::describe(&error);
                        tracing::error!(worker = index, %cause, "a worker cannot be started");
                        let failures = self.shared.update(|state, _, out| {
                            out.is_changed = true;
                            state.worker_not_started(index, &cause)
                        });
                        ProcessState::Due(now + pause(failures).max(RESPAWN_PAUSE_MIN))
                    }
                };
            }
        }
    }

    fn start(&self, index: usize) -> Result<(Child, Arc<Incarnation>), OsError> {
        let shared = &self.shared;
        let ring = Ring::create("albacore-ring")?;
        let (channel, theirs) = Channel::pair()?;
        let incarnation = Arc::new(Incarnation { ring, channel });
        let mut fds = vec![
            incarnation.ring.fd(),
            shared.files.rows.as_fd(),
            shared.files.results.as_fd(),
            theirs.as_fd(),
        ];
        fds.extend(shared.done.iter().map(|wake| wake.as_fd()));
        let arguments = worker::arguments(index, shared.parallelism.threads, &fds);
        // The worker may be ready before the state knows it: its ring is checked below.
        let child = Child::start(&self.program, &arguments, &fds)?;
        self.poll.add(&child, PollKey(index as u64))?;
        (shared.observer.0)(EngineEvent::WorkerStarted {
            worker: index,
            pid: child.pid().0,
        });
        shared.update(|state, now, out| {
            state.worker_started(index, Arc::clone(&incarnation), now);
            state.collect_all(now, out);
        });
        Ok((child, incarnation))
    }

    fn reap(&mut self, index: usize) -> Result<(), OsError> {
        let Some(ProcessState::Running(child, _)) = self.processes.get_mut(index) else {
            return Ok(());
        };
        let Some(exit) = child.try_wait()? else {
            return Ok(());
        };
        let pid = child.pid().0;
        self.poll.remove(child)?;
        let (failures, ended, is_stopping) = self.shared.update(|state, now, out| {
            let failures = state.worker_ended(index, exit, now, out);
            let ended = state.workers.last_exit(index).to_owned();
            let is_stopping = state.phase >= Phase::Stopping;
            if !is_stopping {
                state.counters.restarted(index);
                state.counters.worker_last_end = Some(ended.clone());
            }
            (failures, ended, is_stopping)
        });
        self.processes[index] = if is_stopping {
            ProcessState::Over
        } else {
            let cause = ended;
            (self.shared.observer.0)(EngineEvent::WorkerExited {
                worker: index,
                pid,
                cause,
            });
            ProcessState::Due(Instant::now() + pause(failures))
        };
        Ok(())
    }

    /// Tells every worker to end, and kills those that have not after the deadline.
    fn stop(&mut self) {
        let now = Instant::now();
        let kill_at = *self.kill_at.get_or_insert_with(|| {
            for stage in &self.processes {
                if let ProcessState::Running(_, incarnation) = stage {
                    incarnation.ring.stop();
                }
            }
            now + WORKER_STOP_DEADLINE
        });
        for incarnation in &mut self.processes {
            match incarnation {
                ProcessState::Running(child, _) if now >= kill_at => child.kill(),
                ProcessState::Running(..) => {}
                ProcessState::Due(_) | ProcessState::Over => *incarnation = ProcessState::Over,
            }
        }
    }
}

/// The pause before a worker is started again after `failures` consecutive incarnations that ended
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
