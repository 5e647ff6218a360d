//! Supervises the workers: requests their starts and respawns, handles their exits, and kills hung
//! ones. The worker host (crate `supervision`) carries out these requests; it also reports workers
//! that a previous front started.
//!
//! Runs on a thread of its own.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use std::os::fd::AsFd as _;

use albacore_batching::Nanos;
use albacore_os::{Channel, HostRoot, OsError, Pid, Poll, PollKey, ThreadTimes};
use albacore_supervision::{Link, LinkError, WorkerEvent, WorkerExit, WorkerRequest};
use albacore_values::sentence;
use albacore_worker::Ring;

use super::cpus::Cpus;
use super::event::EngineEvent;
use super::node_watch::NodeWatch;
use super::shared_state::SharedState;
use super::state::{EnginePhase, Incarnation};
use crate::limits::{
    ADOPTION_POLL_PERIOD, HANG_CHECK_PERIOD, HANG_SAMPLING_SHARE, RESPAWN_PAUSE_MAX,
    RESPAWN_PAUSE_MIN, RESPAWNS_AT_ONCE, WORKER_STOP_DEADLINE,
};

/// Poll keys of the engine's own wakeups and of worker events.
const WAKE_KEY: PollKey = PollKey(0);
const LINK_KEY: PollKey = PollKey(1);

/// The workers cannot be supervised.
#[derive(Debug, thiserror::Error)]
pub(super) enum SuperviseError {
    #[error(transparent)]
    Os(#[from] OsError),
    #[error("the worker host cannot be reached")]
    Host(#[from] LinkError),
}

/// State of a worker process between two passes of the supervisor.
enum ProcessState {
    Running(Pid, Arc<Incarnation>),
    /// Its start was requested from the host.
    Starting(Arc<Incarnation>),
    /// Will be started at this time.
    Due(Instant),
    /// Will not be started again.
    Ended,
}

pub(super) struct WorkerSupervisor {
    shared: Arc<SharedState>,
    host: Link,
    /// Whether the host has reported all running workers; none is started before.
    has_listed_workers: bool,
    poll: Poll,
    processes: Vec<ProcessState>,
    /// Set when the workers got the stop command: the time when remaining ones are killed.
    kill_at: Option<Instant>,
    /// Time of the last check for hung workers.
    checked_at: Instant,
    /// Earliest time of the next sampling of suspects.
    next_sample_at: Instant,
    /// Whether it was logged that the kernel does not account waiting times.
    is_read_error_logged: bool,
    cpus: Cpus,
    nodes: Option<NodeWatch>,
}

impl WorkerSupervisor {
    pub(super) fn new(
        shared: Arc<SharedState>,
        host: Link,
        cpus_max: Option<usize>,
    ) -> Result<Self, OsError> {
        let poll = Poll::new()?;
        poll.add(&shared.supervise, WAKE_KEY)?;
        poll.add(&host, LINK_KEY)?;
        let now = Instant::now();
        let processes = (0..shared.parallelism.workers)
            .map(|_| ProcessState::Due(now))
            .collect();
        Ok(Self {
            shared,
            host,
            has_listed_workers: false,
            poll,
            processes,
            kill_at: None,
            checked_at: now,
            next_sample_at: now,
            is_read_error_logged: false,
            cpus: Cpus::new(cpus_max),
            nodes: NodeWatch::new(),
        })
    }

    /// Runs until the engine stops and the last worker has exited.
    pub(super) fn run(mut self) -> Result<(), SuperviseError> {
        // bound: one pass for each exit of a worker, each due start, each wakeup, and each check.
        loop {
            // Before the first workers are up, because the threads of a batch depend on the number
            // of cpus.
            if let Some(cpus) = self.cpus.poll() {
                self.shared.state().workers.set_cpus(cpus);
            }
            if self.has_listed_workers {
                self.start_due_workers();
            }
            if self
                .processes
                .iter()
                .all(|incarnation| matches!(incarnation, ProcessState::Ended))
            {
                return Ok(());
            }
            let keys = self.poll.wait(self.next_due())?;
            if keys.contains(&WAKE_KEY) {
                self.shared.supervise.clear();
            }
            // bound: the capacity of the link
            while let Some((event, fds)) = self.host.receive()? {
                self.handle_event(event, fds)?;
            }
            let has_unattached = self.shared.state().workers.has_unattached();
            if has_unattached {
                self.shared
                    .update(|state, now, out| state.collect_all(now, out));
            }
            if self.shared.state().phase >= EnginePhase::Stopping {
                self.stop()?;
            } else {
                self.kill_hung_workers()?;
                if let Some(nodes) = &mut self.nodes {
                    let running = self.processes.iter().map(|process| match process {
                        ProcessState::Running(pid, _) => Some(*pid),
                        _ => None,
                    });
                    nodes.check(&self.shared, running);
                }
            }
        }
    }

    fn next_due(&self) -> Duration {
        let starts = self
            .processes
            .iter()
            .filter_map(|incarnation| match incarnation {
                ProcessState::Due(at) if self.has_listed_workers => Some(*at),
                _ => None,
            });
        if self.shared.state().workers.has_unattached() {
            return ADOPTION_POLL_PERIOD;
        }
        let next = starts.chain(self.kill_at).min();
        let due = next.map(|at| at.saturating_duration_since(Instant::now()));
        due.unwrap_or(HANG_CHECK_PERIOD).min(HANG_CHECK_PERIOD)
    }

    /// Checks for hung workers, at most once per [`HANG_CHECK_PERIOD`], and kills them. The kernel
    /// then reports their exits like any other.
    fn kill_hung_workers(&mut self) -> Result<(), SuperviseError> {
        let since = self.checked_at.elapsed();
        if since < HANG_CHECK_PERIOD {
            return Ok(());
        }
        self.checked_at = Instant::now();
        let stalled = since.saturating_sub(2 * HANG_CHECK_PERIOD);
        let stalled = Nanos::from(stalled);
        let suspects = self
            .shared
            .update(|state, now, out| state.suspects(stalled, now, out));
        if suspects.is_empty() || self.checked_at < self.next_sample_at {
            return Ok(());
        }
        for suspect in suspects {
            let worker = suspect.worker;
            let Some(&ProcessState::Running(pid, _)) = self.processes.get(worker) else {
                continue;
            };
            let at = self.shared.now();
            let threads = self.read_threads(pid);
            let hang = self
                .shared
                .update(|state, now, out| state.check_suspect(&suspect, threads, at, now, out));
            if let Some(hang) = hang {
                let (used, without_cpu) = (hang.used, hang.excused);
                tracing::warn!(
                    worker,
                    pid = pid.0,
                    ?used,
                    ?without_cpu,
                    "a worker hangs: it is killed"
                );
                self.kill(worker, pid)?;
            }
        }
        self.next_sample_at = Instant::now() + self.checked_at.elapsed() * HANG_SAMPLING_SHARE;
        Ok(())
    }

    fn kill(&self, worker: usize, pid: Pid) -> Result<(), LinkError> {
        let kill = WorkerRequest::Kill { worker, pid: pid.0 };
        self.host.send(&kill, &[])
    }

    /// Scheduler times of the threads of a worker; `None` if it has exited or the kernel does not
    /// account them.
    fn read_threads(&mut self, pid: Pid) -> Option<Vec<ThreadTimes>> {
        match albacore_os::read_thread_times(&HostRoot::live(), pid) {
            Ok(threads) => Some(threads),
            Err(error) if error.is_gone() => None,
            Err(error) => {
                if !std::mem::replace(&mut self.is_read_error_logged, true) {
                    let cause = sentence(&error);
                    tracing::warn!(
                        %cause,
                        "the time that workers wait for a cpu is unknown: on a busy machine a \
                         worker that waits long is treated as hung and restarted"
                    );
                }
                None
            }
        }
    }

    fn start_due_workers(&mut self) {
        let now = Instant::now();
        for index in 0..self.processes.len() {
            if self.shared.state().phase >= EnginePhase::Stopping {
                return;
            }
            if matches!(self.processes[index], ProcessState::Due(at) if at <= now) {
                self.processes[index] = match self.start(index) {
                    Ok(incarnation) => ProcessState::Starting(incarnation),
                    Err(error) => self.handle_failed_start(index, &sentence(&error)),
                };
            }
        }
    }

    /// Requests the start of a worker. The memory of this front is already in its channel.
    fn start(&self, worker: usize) -> Result<Arc<Incarnation>, SuperviseError> {
        let ring = Ring::create("albacore-ring")?;
        let (channel, worker_end) = Channel::pair()?;
        self.shared.send_memory(&channel)?;
        let request = WorkerRequest::Start {
            worker,
            arguments: albacore_worker::arguments(worker, self.shared.parallelism.threads),
        };
        let fds = [ring.fd(), worker_end.as_fd(), channel.as_fd()];
        self.host.send(&request, &fds)?;
        Ok(Arc::new(Incarnation { ring, channel }))
    }

    fn handle_failed_start(&self, worker: usize, cause: &str) -> ProcessState {
        tracing::error!(worker, %cause, "a worker cannot be started");
        let failures = self.shared.update(|state, _, out| {
            out.is_changed = true;
            state.worker_not_started(worker, cause)
        });
        ProcessState::Due(Instant::now() + pause(failures).max(RESPAWN_PAUSE_MIN))
    }

    fn handle_event(
        &mut self,
        event: WorkerEvent,
        fds: Vec<OwnedFd>,
    ) -> Result<(), SuperviseError> {
        match event {
            WorkerEvent::Begin => self.has_listed_workers = true,
            WorkerEvent::Adopted { worker, pid } if worker < self.processes.len() => {
                let incarnation = Arc::new(adopted_incarnation(fds)?);
                self.shared.update(|state, now, out| {
                    state.worker_adopted(worker, Arc::clone(&incarnation), now);
                    state.collect_all(now, out);
                });
                // The dead front may have submitted work without waking the worker.
                incarnation.ring.wake();
                self.processes[worker] = ProcessState::Running(Pid(pid), incarnation);
            }
            WorkerEvent::Started { worker, pid } => {
                let Some(ProcessState::Starting(incarnation)) = self.processes.get(worker) else {
                    return Ok(());
                };
                let incarnation = Arc::clone(incarnation);
                (self.shared.observer.0)(EngineEvent::WorkerStarted { worker, pid });
                // It may be ready already: check its ring.
                self.shared.update(|state, now, out| {
                    state.worker_started(worker, Arc::clone(&incarnation), now);
                    state.collect_all(now, out);
                });
                self.processes[worker] = ProcessState::Running(Pid(pid), incarnation);
            }
            WorkerEvent::NotStarted { worker, cause } => {
                if matches!(self.processes.get(worker), Some(ProcessState::Starting(_))) {
                    self.processes[worker] = self.handle_failed_start(worker, &cause);
                }
            }
            WorkerEvent::Exited { worker, pid, exit } => {
                if matches!(self.processes.get(worker), Some(ProcessState::Running(own, _)) if own.0 == pid)
                {
                    self.processes[worker] = self.handle_exit(worker, pid, exit);
                }
            }
            // The host has more workers than this front.
            WorkerEvent::Adopted { worker, pid } => self.kill(worker, Pid(pid))?,
        }
        Ok(())
    }

    /// Returns the next state of a worker whose process has exited.
    fn handle_exit(&self, worker: usize, pid: i32, exit: WorkerExit) -> ProcessState {
        let (failures, cause, is_stopping) = self.shared.update(|state, now, out| {
            let failures = state.worker_ended(worker, exit.into(), now, out);
            let ended = state.workers.last_exit(worker).to_owned();
            let is_stopping = state.phase >= EnginePhase::Stopping;
            if !is_stopping {
                state.counters.count_restart(worker);
                state.counters.worker_last_exit = Some(ended.clone());
            }
            (failures, ended, is_stopping)
        });
        if is_stopping {
            return ProcessState::Ended;
        }
        (self.shared.observer.0)(EngineEvent::WorkerExited { worker, pid, cause });
        ProcessState::Due(Instant::now() + pause(failures))
    }

    /// Sends the stop command to every worker, and kills those that have not exited by the
    /// deadline.
    fn stop(&mut self) -> Result<(), LinkError> {
        let now = Instant::now();
        let kill_at = *self.kill_at.get_or_insert_with(|| {
            for stage in &self.processes {
                if let ProcessState::Running(_, incarnation) = stage {
                    incarnation.ring.stop();
                }
            }
            now + WORKER_STOP_DEADLINE
        });
        for worker in 0..self.processes.len() {
            match &self.processes[worker] {
                &ProcessState::Running(pid, _) if now >= kill_at => self.kill(worker, pid)?,
                // It finds the stop command in its ring when it starts.
                ProcessState::Starting(incarnation) => incarnation.ring.stop(),
                ProcessState::Running(..) => {}
                ProcessState::Due(_) | ProcessState::Ended => {
                    self.processes[worker] = ProcessState::Ended;
                }
            }
        }
        Ok(())
    }
}

/// A worker of another front, from the descriptors passed with the event.
fn adopted_incarnation(fds: Vec<OwnedFd>) -> Result<Incarnation, OsError> {
    let mut fds = fds.into_iter();
    let mut next = || {
        let missing = std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
        fds.next().ok_or(OsError::Call {
            call: "recvmsg",
            source: missing,
        })
    };
    let ring = Ring::open(next()?)?;
    let channel = Channel::inherited(next()?);
    Ok(Incarnation { ring, channel })
}

/// Backoff before a worker is respawned after `failures` consecutive incarnations that exited
/// before they were ready.
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
    fn first_losses_are_respawned_at_once_and_crash_loops_back_off() {
        assert_eq!(pause(0), Duration::ZERO);
        assert_eq!(pause(RESPAWNS_AT_ONCE - 1), Duration::ZERO);
        assert_eq!(pause(RESPAWNS_AT_ONCE), RESPAWN_PAUSE_MIN);
        assert_eq!(pause(RESPAWNS_AT_ONCE + 1), 2 * RESPAWN_PAUSE_MIN);
        assert_eq!(pause(u32::MAX), RESPAWN_PAUSE_MAX);
    }
}
