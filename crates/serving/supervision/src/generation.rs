//! The processes of one binary: the serving front, its standby, and their workers.
//!
//! If a front exits by itself, the server exits with its exit code. A front that is killed or
//! crashes is replaced: by the standby, at once if it is prepared, or by a new front that takes
//! over the descriptors in the store.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use albacore_os::{Exit, OsError, Poll};

use crate::front::{FrontRole, RunningFront};
use crate::limits::{
    FAILURES_MAX, PASS_PERIOD, REASON_CHARS_MAX, RESEND_PERIOD, RETRY_PAUSE_MAX, RETRY_PAUSE_MIN,
    STANDBY_DEADLINE, STANDBY_PAUSE, STANDBY_PAUSE_UNREADY,
};
use crate::messages::{FrontMessage, Predecessor, StandbyState, Status, SupervisorMessage};
use crate::outgoing::SharedFd;
use crate::store::FdStore;
use crate::worker_host::WorkerHost;

/// Exit code of a Rust program whose main thread panicked.
const PANIC: i32 = 101;

/// The running binary, even if its file was replaced by a newer one.
const RUNNING: &str = "/proc/self/exe";

/// How a generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GenerationEnd {
    /// Its front exited by itself, with this code.
    Code(i32),
    /// Its fronts crash repeatedly; contains the last exit status.
    Crashed(Exit),
}

/// State common to all generations.
#[derive(Debug)]
pub(crate) struct SupervisorContext {
    pub(crate) poll: Poll,
    /// Arguments of the server, for every front.
    pub(crate) arguments: Vec<OsString>,
    pub(crate) fronts_started: u64,
}

#[derive(Debug)]
pub(crate) struct Generation {
    program: PathBuf,
    /// The open file that `program` refers to, if it refers to a descriptor.
    _binary: Option<File>,
    pub(crate) store: FdStore,
    host: WorkerHost,
    serving: Option<RunningFront>,
    standby: Option<RunningFront>,
    /// When a standby may be started.
    standby_at: Instant,
    /// Consecutive standbys that could not start.
    standby_failures: u32,
    /// Consecutive fronts that died before they were ready.
    failures: u32,
    /// Whether a front was ready.
    was_ready: bool,
    /// The front that died last, until it is reported to the next one.
    predecessor: Option<Predecessor>,
    /// No new front is started: the serving front drains and exits.
    is_ending: bool,
    /// Another generation serves until this one is ready.
    is_pending_upgrade: bool,
    pub(crate) status: Status,
}

impl Generation {
    /// A generation of the running binary.
    pub(crate) fn first() -> Self {
        Self::new(RUNNING.into(), None, FdStore::default())
    }

    /// A generation of a newer binary, which is dropped if it does not become ready.
    pub(crate) fn upgrade(binary: File, listeners: Vec<SharedFd>) -> Self {
        // Refers to the open file, even if its path is replaced meanwhile.
        let program = PathBuf::from(format!("/proc/self/fd/{}", binary.as_raw_fd()));
        let store = FdStore::with_listeners(listeners);
        Self {
            is_pending_upgrade: true,
            ..Self::new(program, Some(binary), store)
        }
    }

    fn new(program: PathBuf, binary: Option<File>, store: FdStore) -> Self {
        Self {
            host: WorkerHost::new(program.clone()),
            program,
            _binary: binary,
            store,
            serving: None,
            standby: None,
            standby_at: Instant::now(),
            standby_failures: 0,
            failures: 0,
            was_ready: false,
            predecessor: None,
            is_ending: false,
            is_pending_upgrade: false,
            status: Status::default(),
        }
    }

    /// Starts a front that serves immediately.
    pub(crate) fn start(
        &mut self,
        role: FrontRole,
        environment: &mut SupervisorContext,
    ) -> Result<(), OsError> {
        let mut front = self.start_front(role, environment)?;
        if let Some(workers) = front.workers.take() {
            self.host.serve(workers, &environment.poll)?;
        }
        self.standby_at = Instant::now() + STANDBY_PAUSE_UNREADY;
        self.serving = Some(front);
        Ok(())
    }

    fn start_front(
        &mut self,
        role: FrontRole,
        environment: &mut SupervisorContext,
    ) -> Result<RunningFront, OsError> {
        environment.fronts_started += 1;
        let (number, poll) = (environment.fronts_started, &environment.poll);
        let mut front =
            RunningFront::start(&self.program, &environment.arguments, role, number, poll)?;
        self.store.send_all(&mut front.control);
        front.control.send(&SupervisorMessage::AllStored, &[]);
        Ok(front)
    }

    /// Whether its front is ready.
    pub(crate) fn is_ready(&self) -> bool {
        self.serving.as_ref().is_some_and(|front| front.is_ready)
    }

    /// Replaces another generation as the serving one.
    pub(crate) fn take_over_from(&mut self, previous: &Self) {
        self.is_pending_upgrade = false;
        self.standby_at = Instant::now() + STANDBY_PAUSE;
        self.status = Status {
            upgrades: previous.status.upgrades + 1,
            standby: StandbyState::Starting,
            ..previous.status.clone()
        };
        self.publish();
    }

    /// Lets the front drain and exit. It then holds the only descriptors of the listening sockets:
    /// once it has closed them, connections are refused. Returns how the generation ended, if it
    /// already has.
    pub(crate) fn end(
        &mut self,
        message: &SupervisorMessage,
    ) -> Result<Option<GenerationEnd>, OsError> {
        // A front that is dead by now did not die while draining.
        let ended = self.reap_serving(Instant::now())?;
        self.is_ending = true;
        self.standby = None;
        self.store.release_listeners();
        if let Some(front) = &mut self.serving {
            front.control.send(message, &[]);
        }
        Ok(ended)
    }

    /// Handles all events. Returns how the generation ended, if it has.
    pub(crate) fn handle_events(
        &mut self,
        environment: &mut SupervisorContext,
    ) -> Result<Option<GenerationEnd>, OsError> {
        let now = Instant::now();
        self.host.handle_events(&environment.poll)?;
        self.receive(now);
        if let Some(end) = self.reap_serving(now)? {
            return Ok(Some(end));
        }
        if self.is_ending || self.is_pending_upgrade {
            return Ok(match self.serving {
                Some(_) => None,
                None => Some(GenerationEnd::Code(0)),
            });
        }
        if let Some(end) = self.check_standby(now)? {
            return Ok(Some(end));
        }
        if self.serving.is_none() && self.standby.as_ref().is_some_and(|it| it.is_prepared) {
            self.promote(environment, now)?;
        }
        if self.standby.is_none() && self.standby_at <= now {
            self.start_next(environment, now)?;
        }
        Ok(None)
    }

    pub(crate) fn timeout(&self) -> Duration {
        let fronts = self.serving.iter().chain(&self.standby);
        let mut timeout = self.host.timeout().min(PASS_PERIOD);
        if fronts.into_iter().any(|front| front.control.is_waiting()) {
            timeout = RESEND_PERIOD;
        }
        match self.standby.is_none() && !self.is_ending && !self.is_pending_upgrade {
            true => timeout.min(self.standby_at.saturating_duration_since(Instant::now())),
            false => timeout,
        }
    }

    fn receive(&mut self, now: Instant) {
        let mut is_status_changed = false;
        if let Some(front) = &mut self.serving {
            for (message, fds) in front.control.receive().0 {
                let standby = self.standby.as_mut().map(|standby| &mut standby.control);
                match message {
                    // The listening sockets are about to be closed.
                    FrontMessage::Store { .. } if self.is_ending => {}
                    FrontMessage::Store { key } => self.store.insert(key, fds, standby),
                    FrontMessage::Remove { key } => self.store.remove(key, standby),
                    FrontMessage::Ready => {
                        front.is_ready = true;
                        self.was_ready = true;
                        self.standby_at = self.standby_at.min(now + STANDBY_PAUSE);
                        is_status_changed = true;
                    }
                    FrontMessage::Failed { reason } => front.failure = Some(reason),
                    FrontMessage::Prepared => {}
                }
            }
            front.control.flush();
            if front.control.is_stuck() {
                front.child.kill();
            }
        }
        if let Some(front) = &mut self.standby {
            for (message, _) in front.control.receive().0 {
                match message {
                    FrontMessage::Prepared => {
                        front.is_prepared = true;
                        self.standby_failures = 0;
                        self.status.standby = StandbyState::Ready;
                        is_status_changed = true;
                    }
                    FrontMessage::Failed { reason } => front.failure = Some(reason),
                    // Only the serving front stores descriptors.
                    FrontMessage::Store { .. }
                    | FrontMessage::Remove { .. }
                    | FrontMessage::Ready => {}
                }
            }
            front.control.flush();
            if front.control.is_stuck() {
                front.child.kill();
            }
        }
        if is_status_changed {
            self.publish();
        }
    }

    /// Reaps the serving front if it has exited.
    fn reap_serving(&mut self, now: Instant) -> Result<Option<GenerationEnd>, OsError> {
        let Some(front) = &mut self.serving else {
            return Ok(None);
        };
        let Some(exit) = front.child.try_wait()? else {
            return Ok(None);
        };
        // Handles messages that it sent before its exit.
        self.receive(now);
        let Some(front) = self.serving.take() else {
            return Ok(None);
        };
        let is_crash = match exit {
            Exit::Code(code) => code == PANIC,
            Exit::Signal(_) => true,
        };
        if let Exit::Code(code) = exit
            && !is_crash
        {
            return Ok(Some(GenerationEnd::Code(code)));
        }
        if self.is_ending || self.is_pending_upgrade {
            return Ok(Some(GenerationEnd::Crashed(exit)));
        }
        let connections = self.store.connections();
        self.status.front_deaths += 1;
        self.status.connections_reset += connections;
        let pid = front.child.pid().0;
        let cause = exit.to_string();
        tracing::warn!(pid, %cause, connections, "the front died");
        self.predecessor = Some(Predecessor {
            pid,
            cause,
            connections,
        });
        self.failures = match front.is_ready {
            true => 0,
            false => self.failures + 1,
        };
        if self.failures >= FAILURES_MAX {
            return Ok(Some(GenerationEnd::Crashed(exit)));
        }
        self.standby_at = now + pause(self.failures);
        Ok(None)
    }

    /// Reaps the standby if it has exited.
    fn check_standby(&mut self, now: Instant) -> Result<Option<GenerationEnd>, OsError> {
        let Some(standby) = &mut self.standby else {
            return Ok(None);
        };
        let exit = standby.child.try_wait()?;
        let is_late = !standby.is_prepared && standby.started.elapsed() > STANDBY_DEADLINE;
        let cause = match exit {
            Some(exit) => exit.to_string(),
            None if is_late => "it was not prepared in time".to_owned(),
            None => return Ok(None),
        };
        // Handles messages that it sent before its exit.
        self.receive(now);
        let failure = self.standby.take().and_then(|standby| standby.failure);
        self.standby_failed(failure.unwrap_or(cause), now);
        if self.serving.is_some() {
            return Ok(None);
        }
        self.failures += 1;
        let exit = exit.unwrap_or(Exit::Code(PANIC));
        Ok((self.failures >= FAILURES_MAX).then_some(GenerationEnd::Crashed(exit)))
    }

    fn standby_failed(&mut self, reason: String, now: Instant) {
        tracing::warn!(%reason, "a standby of the front cannot be started: it is retried");
        self.standby_failures = self.standby_failures.saturating_add(1);
        self.standby_at = now + pause(self.standby_failures);
        let reason = reason.chars().take(REASON_CHARS_MAX).collect();
        self.status.standby = StandbyState::Failed { reason };
        self.publish();
    }

    /// Promotes the standby to the serving front.
    fn promote(&mut self, environment: &SupervisorContext, now: Instant) -> Result<(), OsError> {
        let Some(mut front) = self.standby.take() else {
            return Ok(());
        };
        if let Some(workers) = front.workers.take() {
            self.host.serve(workers, &environment.poll)?;
        }
        let serve = SupervisorMessage::Serve {
            predecessor: self.predecessor.take(),
            was_ready: self.was_ready,
        };
        front.control.send(&serve, &[]);
        self.serving = Some(front);
        self.standby_at = now + STANDBY_PAUSE_UNREADY;
        self.status.takeovers += 1;
        self.status.standby = StandbyState::Starting;
        self.publish();
        Ok(())
    }

    fn start_next(
        &mut self,
        environment: &mut SupervisorContext,
        now: Instant,
    ) -> Result<(), OsError> {
        if self.serving.is_none() && self.store.listeners().is_none() {
            // The store is empty: the first front died at startup.
            return self.start(FrontRole::First, environment);
        }
        match self.start_front(FrontRole::Standby, environment) {
            Ok(front) => self.standby = Some(front),
            Err(error) => {
                let source = std::error::Error::source(&error);
                let source = source.map_or(String::new(), |source| format!(": {source}"));
                self.standby_failed(format!("{error}{source}"), now);
            }
        }
        Ok(())
    }

    /// Sends the counters to the serving front.
    fn publish(&mut self) {
        if let Some(front) = &mut self.serving {
            let status = SupervisorMessage::Status(self.status.clone());
            front.control.send(&status, &[]);
        }
    }
}

/// Backoff after this many consecutive failures.
fn pause(failures: u32) -> Duration {
    match failures.checked_sub(1) {
        None => Duration::ZERO,
        Some(more) => {
            let factor = 2_u32.saturating_pow(more);
            RETRY_PAUSE_MIN.saturating_mul(factor).min(RETRY_PAUSE_MAX)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_is_retried_at_once_and_crash_loops_back_off() {
        assert_eq!(pause(0), Duration::ZERO);
        assert_eq!(pause(1), RETRY_PAUSE_MIN);
        assert_eq!(pause(2), 2 * RETRY_PAUSE_MIN);
        assert_eq!(pause(u32::MAX), RETRY_PAUSE_MAX);
    }
}
