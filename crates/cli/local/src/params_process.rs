//! Runs `albacore-params` as a child process with a feed (a named pipe) that it reads. Edits of the
//! file reach the running server this way.
//!
//! The child is restarted when it exits. Uses two threads: one supervises the child, because the
//! kernel kills a child together with the thread that started it; the other writes the feed,
//! because a write may block until the reader is ready.

use std::ffi::OsString;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use albacore_os::{CommandSpec, LineFifo, Pid, PidFd, SpawnOutput, WriteStatus};
use albacore_settings::agent_stream::NodeSnapshot;

use crate::message::Message;
use albacore_command::{Failure, sentence};

/// Interval at which the current snapshot is sent again: its reader considers it stale after a
/// minute.
const REFRESH_PERIOD: Duration = Duration::from_secs(10);

/// Interval at which a partially written line is retried.
const RETRY_PERIOD: Duration = Duration::from_millis(20);

/// First backoff before a child that exited is restarted; doubles after each short run.
const PAUSE_MIN: Duration = Duration::from_millis(100);

/// Longest backoff of restarts.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Length of a run that resets the backoff.
const LONG_UPTIME: Duration = Duration::from_secs(10);

/// Time limit for the exit of the child after SIGTERM; it needs milliseconds.
const STOP_TIME: Duration = Duration::from_secs(6);

/// Paths passed to the child.
pub(crate) struct ParamsFiles<'a> {
    /// The pipe that the child reads.
    pub(crate) feed: &'a Path,
    pub(crate) socket: &'a Path,
    /// The pipe to which the child writes latency reports.
    pub(crate) reports: &'a Path,
}

/// The supervised child and its feed.
pub(crate) struct ParamsProcess {
    snapshots: SyncSender<NodeSnapshot>,
    feed_writer: JoinHandle<()>,
    state: Arc<ChildState>,
    supervisor: JoinHandle<()>,
}

/// The child, if it runs, and whether it should run.
struct ChildState {
    is_wanted: AtomicBool,
    child: Mutex<Option<(Pid, PidFd)>>,
}

impl ChildState {
    fn child(&self) -> MutexGuard<'_, Option<(Pid, PidFd)>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Relaxed)
    }
}

impl ParamsProcess {
    /// Starts `program`, which serves the socket to the user `uid`.
    ///
    /// # Errors
    /// The pipe cannot be created.
    pub(crate) fn start(
        program: &Path,
        files: &ParamsFiles<'_>,
        uid: u32,
        first: NodeSnapshot,
        messages: SyncSender<Message>,
    ) -> Result<Self, Failure> {
        let pipe = LineFifo::new(files.feed).map_err(|e| Failure::Failed(sentence(&e)))?;
        let uid: OsString = uid.to_string().into();
        let flags = [
            ("--feed", files.feed.into()),
            ("--unix", files.socket.into()),
            ("--reports", files.reports.into()),
            ("--uid", uid),
        ];
        let mut command = vec![program.into(), "--log-filter".into(), "error".into()];
        command.extend(
            flags
                .into_iter()
                .flat_map(|(flag, value)| [flag.into(), value]),
        );
        let spec = CommandSpec {
            command,
            environment: Vec::new(),
            directory: None,
            output: SpawnOutput::Inherited,
        };
        let (snapshots, receiver) = sync_channel(1);
        let feed_writer = std::thread::spawn(move || write_feed(pipe, first, &receiver));
        let state = Arc::new(ChildState {
            is_wanted: AtomicBool::new(true),
            child: Mutex::new(None),
        });
        let supervised = Arc::clone(&state);
        let supervisor = std::thread::spawn(move || supervise(&spec, &supervised, &messages));
        Ok(Self {
            snapshots,
            feed_writer,
            state,
            supervisor,
        })
    }

    /// Sends this snapshot now and at every refresh.
    pub(crate) fn send(&self, snapshot: NodeSnapshot) {
        // Cannot fail: the receiving thread ends only after this sender is dropped.
        drop(self.snapshots.send(snapshot));
    }

    /// Returns a predicate, usable on any thread, for the current child process.
    pub(crate) fn recognizer(&self) -> impl Fn(Pid) -> bool + Send + use<> {
        let state = Arc::clone(&self.state);
        move |pid| state.child().as_ref().is_some_and(|(own, _)| *own == pid)
    }

    /// Stops the child and both threads.
    pub(crate) fn stop(self) {
        {
            let child = self.state.child();
            self.state.is_wanted.store(false, Ordering::Relaxed);
            // A child that has just exited needs no signal.
            drop(child.as_ref().map(|(_, child)| child.terminate()));
        }
        self.supervisor.thread().unpark();
        let deadline = Instant::now() + STOP_TIME;
        // bound: STOP_TIME
        while !self.supervisor.is_finished() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
        drop(self.state.child().as_ref().map(|(_, child)| child.kill()));
        drop(self.supervisor.join());
        drop(self.snapshots);
        drop(self.feed_writer.join());
    }
}

/// Restarts the child whenever it exits, until `is_wanted` is false.
fn supervise(spec: &CommandSpec, state: &ChildState, messages: &SyncSender<Message>) {
    let mut pause = PAUSE_MIN;
    // bound: one iteration per run of the child, with a pause after each
    loop {
        let began = Instant::now();
        let started = {
            // The lock is held during the start: `stop` either finds the child or prevents it.
            let mut child = state.child();
            if !state.is_wanted() {
                return;
            }
            spec.start().inspect(|started| {
                let pid = Pid(started.id() as i32);
                *child = PidFd::open(pid).ok().map(|handle| (pid, handle));
            })
        };
        let how = match started {
            Ok(mut child) => match child.wait() {
                Ok(status) => format!("ended with {status}"),
                // Already reaped with the orphans of the server.
                Err(_) => "ended".to_owned(),
            },
            Err(error) => format!("cannot be started: {}", sentence(&error)),
        };
        *state.child() = None;
        if !state.is_wanted() {
            return;
        }
        let text = format!(
            "albacore-params {how} and is started again; the server keeps its current parameters"
        );
        // The send fails if the run is shutting down.
        drop(messages.try_send(Message::Note(text)));
        if began.elapsed() >= LONG_UPTIME {
            pause = PAUSE_MIN;
        }
        std::thread::park_timeout(pause);
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Writes each new snapshot, and the newest one every REFRESH_PERIOD, until the sender is dropped.
fn write_feed(mut pipe: LineFifo, mut now: NodeSnapshot, snapshots: &Receiver<NodeSnapshot>) {
    let mut is_due = true;
    // bound: one iteration per snapshot or interval; ends with the sender
    loop {
        let written = match (is_due, now.encode()) {
            // Without the line feed, which the pipe adds.
            (true, Ok(line)) => pipe.offer(line.trim_end()),
            _ => pipe.flush(),
        };
        let is_waiting = !matches!(written, Ok(WriteStatus::Complete));
        let period = if is_waiting {
            RETRY_PERIOD
        } else {
            REFRESH_PERIOD
        };
        match snapshots.recv_timeout(period) {
            Ok(snapshot) => (now, is_due) = (snapshot, true),
            Err(RecvTimeoutError::Timeout) => is_due = !is_waiting,
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}
