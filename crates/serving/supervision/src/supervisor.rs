//! The main loop of the parent process: signals, and generations of fronts.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use albacore_os::{OsError, Poll, Signals};

use crate::front::FrontRole;
use crate::generation::{Generation, GenerationEnd, SupervisorContext};
use crate::limits::PASS_PERIOD;
use crate::messages::SupervisorMessage;
use crate::worker_host::ANY;

/// Exit code of a server whose fronts crash repeatedly.
const EXIT_CRASHED: u8 = 70;

/// Exit code of a server whose front crashed while draining.
const EXIT_UNANSWERED: u8 = 1;

struct Supervisor {
    environment: SupervisorContext,
    signals: Signals,
    /// Path of the binary, opened at an upgrade.
    program: PathBuf,
    current: Generation,
    /// A generation of a newer binary that is not ready yet.
    next: Option<Generation>,
    /// Generations of older binaries whose fronts are draining.
    retired: Vec<Generation>,
    upgrades_requested: u32,
    is_stopping: bool,
}

/// Runs a server until it exits; returns its exit code. `program` is the path of its binary, which
/// replaces the running one on SIGUSR2. `arguments` are those of the server.
///
/// # Errors
/// An essential system call fails. The child processes are killed.
pub fn supervise(program: &Path, arguments: Vec<OsString>) -> Result<u8, OsError> {
    // Clients wait while a front is replaced. The supervisor uses little cpu time.
    albacore_os::raise_thread_priority();
    let signals = Signals::install_with_sigusr2()?;
    let poll = Poll::new()?;
    poll.add(&signals, ANY)?;
    let mut environment = SupervisorContext {
        poll,
        arguments,
        fronts_started: 0,
    };
    let mut current = Generation::first();
    current.start(FrontRole::First, &mut environment)?;
    let supervisor = Supervisor {
        environment,
        signals,
        program: program.to_owned(),
        current,
        next: None,
        retired: Vec::new(),
        upgrades_requested: 0,
        is_stopping: false,
    };
    supervisor.run()
}

impl Supervisor {
    fn run(mut self) -> Result<u8, OsError> {
        // bound: one pass for each signal, message and exit of a process, and each PASS_PERIOD
        loop {
            if self.signals.termination_count() > 0 && !self.is_stopping {
                self.next = None;
                if let Some(end) = self.current.end(&SupervisorMessage::Drain)? {
                    return Ok(self.exit_code(end));
                }
                self.is_stopping = true;
            }
            let requested = self.signals.upgrade_count();
            if std::mem::replace(&mut self.upgrades_requested, requested) != requested {
                self.start_upgrade();
            }
            if let Some(end) = self.current.handle_events(&mut self.environment)? {
                return Ok(self.exit_code(end));
            }
            self.advance_upgrade()?;
            self.retire()?;
            self.environment.poll.wait(self.timeout())?;
        }
    }

    fn timeout(&self) -> Duration {
        let others = self.next.iter().chain(&self.retired);
        let all = others.chain([&self.current]).map(Generation::timeout);
        all.min().unwrap_or(PASS_PERIOD)
    }

    fn exit_code(&self, end: GenerationEnd) -> u8 {
        match end {
            // infallible for valid exit codes
            GenerationEnd::Code(code) => u8::try_from(code).unwrap_or(EXIT_CRASHED),
            GenerationEnd::Crashed(exit) if self.is_stopping => {
                tracing::error!(%exit, "the front exited before it had answered all requests");
                EXIT_UNANSWERED
            }
            GenerationEnd::Crashed(exit) => {
                tracing::error!(%exit, "fronts repeatedly exit before they are ready");
                EXIT_CRASHED
            }
        }
    }

    /// Starts a front of the binary on disk, in addition to the serving one.
    fn start_upgrade(&mut self) {
        let Some(listeners) = self.current.store.listeners().cloned() else {
            return tracing::warn!("SIGUSR2 is ignored: the server is starting or stopping");
        };
        if self.next.is_some() || self.is_stopping {
            return tracing::warn!("SIGUSR2 is ignored: the server is upgrading or stopping");
        }
        let file = match File::open(&self.program) {
            Ok(file) => file,
            Err(error) => {
                let program = self.program.display();
                return tracing::error!(
                    %error,
                    "{program} cannot be opened: the server is not upgraded"
                );
            }
        };
        let mut next = Generation::upgrade(file, listeners);
        match next.start(FrontRole::Upgrade, &mut self.environment) {
            Ok(()) => self.next = Some(next),
            Err(error) => tracing::error!(%error, "the server is not upgraded"),
        }
    }

    /// Lets the newer front serve once it is ready.
    fn advance_upgrade(&mut self) -> Result<(), OsError> {
        let Some(next) = &mut self.next else {
            return Ok(());
        };
        if let Some(end) = next.handle_events(&mut self.environment)? {
            tracing::error!(
                ?end,
                "the newer binary cannot serve: the server is not upgraded"
            );
            self.next = None;
            return Ok(());
        }
        if !next.is_ready() {
            return Ok(());
        }
        if let Some(mut next) = self.next.take() {
            next.take_over_from(&self.current);
            let mut previous = std::mem::replace(&mut self.current, next);
            if previous.end(&SupervisorMessage::Retire)?.is_none() {
                self.retired.push(previous);
            }
        }
        Ok(())
    }

    fn retire(&mut self) -> Result<(), OsError> {
        let mut remaining = Vec::new();
        for mut generation in std::mem::take(&mut self.retired) {
            match generation.handle_events(&mut self.environment)? {
                None => remaining.push(generation),
                Some(GenerationEnd::Code(0)) => {}
                Some(end) => {
                    tracing::warn!(?end, "a replaced front has not answered all requests");
                }
            }
        }
        self.retired = remaining;
        Ok(())
    }
}
