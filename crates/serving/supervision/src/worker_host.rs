//! Worker processes: started, killed and reaped on behalf of the serving front. They survive it,
//! and the next front receives their rings and channels.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use albacore_os::{Child, ChildOutput, OsError, Poll, PollKey};

use crate::limits::{PASS_PERIOD, REASON_CHARS_MAX, RESEND_PERIOD};
use crate::link::Link;
use crate::messages::{WorkerEvent, WorkerRequest};
use crate::outgoing::{Outgoing, SharedFd};

/// Key of every descriptor: any event triggers a full pass.
pub(crate) const ANY: PollKey = PollKey(0);

#[derive(Debug)]
struct WorkerProcess {
    child: Child,
    /// Its ring, and the front's end of its channel.
    shared_fds: Vec<SharedFd>,
}

/// Dropping it kills the workers.
#[derive(Debug)]
pub struct WorkerHost {
    program: PathBuf,
    front: Option<Outgoing>,
    workers: BTreeMap<usize, WorkerProcess>,
}

impl WorkerHost {
    pub(crate) fn new(program: PathBuf) -> Self {
        Self {
            program,
            front: None,
            workers: BTreeMap::new(),
        }
    }

    /// Starts a worker host on a thread of this process, without a supervisor; it ends when the
    /// returned link is closed.
    ///
    /// # Errors
    /// There are no descriptors or threads left.
    pub fn on_thread(program: &Path) -> Result<Link, OsError> {
        let (host_end, front_end) = Link::pair()?;
        let poll = Poll::new()?;
        let mut host = Self::new(program.to_owned());
        host.serve(host_end, &poll)?;
        // The kernel kills the workers when this thread ends.
        let serving = move || {
            // bound: ends with the front
            loop {
                match host.handle_events(&poll) {
                    Ok(true) => {}
                    Ok(false) => return,
                    Err(error) => return tracing::error!(%error, "workers cannot be started"),
                }
                if poll.wait(host.timeout()).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("albf.workers".to_owned());
        thread.spawn(serving).map_err(|source| OsError::Call {
            call: "clone",
            source,
        })?;
        Ok(front_end)
    }

    /// Assigns the workers to this front, and reports the running ones to it.
    pub(crate) fn serve(&mut self, front: Link, poll: &Poll) -> Result<(), OsError> {
        poll.add(&front, ANY)?;
        let mut front = Outgoing::new(front);
        for (&worker, running) in &self.workers {
            let pid = running.child.pid().0;
            front.send(&WorkerEvent::Adopted { worker, pid }, &running.shared_fds);
        }
        front.send(&WorkerEvent::Begin, &[]);
        self.front = Some(front);
        Ok(())
    }

    pub(crate) fn timeout(&self) -> Duration {
        match self.front.as_ref().is_some_and(Outgoing::is_waiting) {
            true => RESEND_PERIOD,
            false => PASS_PERIOD,
        }
    }

    /// Handles requests of the front, and reports workers that have exited. Returns false once the
    /// front is gone.
    pub(crate) fn handle_events(&mut self, poll: &Poll) -> Result<bool, OsError> {
        let Some(front) = &self.front else {
            self.reap()?;
            return Ok(false);
        };
        let (requests, is_open) = front.receive();
        for (request, fds) in requests {
            match request {
                WorkerRequest::Start { worker, arguments } => {
                    self.start(worker, arguments, fds, poll);
                }
                WorkerRequest::Kill { worker, pid } => {
                    let running = self.workers.get_mut(&worker);
                    if let Some(running) = running.filter(|it| it.child.pid().0 == pid) {
                        running.child.kill();
                    }
                }
            }
        }
        if !is_open {
            self.front = None;
        }
        self.reap()?;
        if let Some(front) = &mut self.front {
            front.flush();
        }
        Ok(is_open)
    }

    fn start(&mut self, worker: usize, arguments: Vec<String>, fds: Vec<OwnedFd>, poll: &Poll) {
        let started = start_worker(&self.program, arguments, fds, poll);
        let event = match started {
            Ok(running) => {
                let pid = running.child.pid().0;
                self.workers.insert(worker, running);
                WorkerEvent::Started { worker, pid }
            }
            Err(cause) => WorkerEvent::NotStarted { worker, cause },
        };
        self.report(&event);
    }

    fn report(&mut self, event: &WorkerEvent) {
        if let Some(front) = &mut self.front {
            front.send(event, &[]);
        }
    }

    fn reap(&mut self) -> Result<(), OsError> {
        let mut ended = Vec::new();
        for (&worker, running) in &mut self.workers {
            if let Some(exit) = running.child.try_wait()? {
                ended.push((worker, exit));
            }
        }
        for (worker, exit) in ended {
            if let Some(running) = self.workers.remove(&worker) {
                let (pid, exit) = (running.child.pid().0, exit.into());
                self.report(&WorkerEvent::Exited { worker, pid, exit });
            }
        }
        Ok(())
    }
}

fn start_worker(
    program: &Path,
    arguments: Vec<String>,
    fds: Vec<OwnedFd>,
    poll: &Poll,
) -> Result<WorkerProcess, String> {
    let Ok([ring, worker_end, channel]) = <[OwnedFd; 3]>::try_from(fds) else {
        return Err("expected the descriptors of a ring and of both ends of a channel".to_owned());
    };
    let inherited = [ring.as_fd(), worker_end.as_fd()];
    let numbers = inherited.iter().map(|fd| fd.as_raw_fd().to_string());
    let arguments: Vec<OsString> = arguments
        .into_iter()
        .chain(numbers)
        .map(OsString::from)
        .collect();
    let described = |error: OsError| {
        let source = std::error::Error::source(&error);
        let source = source.map_or(String::new(), |source| format!(": {source}"));
        let text = format!("{error}{source}");
        text.chars().take(REASON_CHARS_MAX).collect::<String>()
    };
    let child =
        Child::start(program, &arguments, &inherited, ChildOutput::Discarded).map_err(described)?;
    poll.add(&child, ANY).map_err(described)?;
    Ok(WorkerProcess {
        child,
        shared_fds: vec![Arc::new(ring), Arc::new(channel)],
    })
}
