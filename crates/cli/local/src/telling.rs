//! `albacore-params` as a child, and the feed that it reads: tells the running server what an edit
//! of the file changes.
//!
//! The child is started again when it ends. Two threads: one lives as long as the child may (the
//! kernel ends a child with the thread that started it), the other writes the feed, which must not
//! wait for its reader.

use std::ffi::OsString;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use albacore_os::{LineFifo, Pid, PidFd, Spawn, SpawnOutput, Written};
use albacore_settings::agent_stream::NodeSnapshot;

use crate::inbox::Inbox;
use albacore_command::{Failure, sentence};

/// How often the present snapshot is told again: the reader calls it stale after a minute.
const TELL_PERIOD: Duration = Duration::from_secs(10);

/// How often a line that waits for its reader is tried again.
const WAITING_PERIOD: Duration = Duration::from_millis(20);

/// Pause before a child that ended is started again; doubles with each short life ...
const PAUSE_MIN: Duration = Duration::from_millis(100);

/// ... up to this ...
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// ... and a life of this length was none.
const LONG_LIFE: Duration = Duration::from_secs(10);

/// How long the child may take to end after SIGTERM; it needs milliseconds.
const STOP_TIME: Duration = Duration::from_secs(6);

/// A running child and its feed.
pub(crate) struct Telling {
    snapshots: SyncSender<NodeSnapshot>,
    feeding: JoinHandle<()>,
    life: Arc<Life>,
    keeping: JoinHandle<()>,
}

/// The child, if it runs, and whether it should.
struct Life {
    is_wanted: AtomicBool,
    child: Mutex<Option<(Pid, PidFd)>>,
}

impl Life {
    fn child(&self) -> MutexGuard<'_, Option<(Pid, PidFd)>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Relaxed)
    }
}

impl Telling {
    /// Starts `program`, which reads the pipe `feed` and serves `socket` for the user `uid`.
    ///
    /// # Errors
    /// The pipe cannot be made.
    pub(crate) fn start(
        program: &Path,
        (feed, socket): (&Path, &Path),
        uid: u32,
        first: NodeSnapshot,
        inbox: SyncSender<Inbox>,
    ) -> Result<Self, Failure> {
        let pipe = LineFifo::new(feed).map_err(|e| Failure::Failed(sentence(&e)))?;
        let uid: OsString = uid.to_string().into();
        let flags = [
            ("--feed", feed.into()),
            ("--unix", socket.into()),
            ("--uid", uid),
        ];
        let mut command = vec![program.into(), "--log-filter".into(), "error".into()];
        command.extend(
            flags
                .into_iter()
                .flat_map(|(flag, value)| [flag.into(), value]),
        );
        let spawn = Spawn {
            command,
            environment: Vec::new(),
            directory: None,
            output: SpawnOutput::Ours,
        };
        let (snapshots, told) = sync_channel(1);
        let feeding = std::thread::spawn(move || feed_on(pipe, first, &told));
        let life = Arc::new(Life {
            is_wanted: AtomicBool::new(true),
            child: Mutex::new(None),
        });
        let kept = Arc::clone(&life);
        let keeping = std::thread::spawn(move || keep(&spawn, &kept, &inbox));
        Ok(Self {
            snapshots,
            feeding,
            life,
            keeping,
        })
    }

    /// Tells this from now on.
    pub(crate) fn tell(&self, snapshot: NodeSnapshot) {
        // The thread ends after this value alone.
        drop(self.snapshots.send(snapshot));
    }

    /// Says whether a process is the child at that time, from any thread.
    pub(crate) fn recognizer(&self) -> impl Fn(Pid) -> bool + Send + use<> {
        let life = Arc::clone(&self.life);
        move |pid| life.child().as_ref().is_some_and(|(own, _)| *own == pid)
    }

    /// Ends the child and both threads.
    pub(crate) fn stop(self) {
        {
            let child = self.life.child();
            self.life.is_wanted.store(false, Ordering::Relaxed);
            // One that has just ended needs no signal.
            drop(child.as_ref().map(|(_, child)| child.terminate()));
        }
        self.keeping.thread().unpark();
        let deadline = Instant::now() + STOP_TIME;
        // bound: STOP_TIME
        while !self.keeping.is_finished() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
        drop(self.life.child().as_ref().map(|(_, child)| child.kill()));
        drop(self.keeping.join());
        drop(self.snapshots);
        drop(self.feeding.join());
    }
}

/// Keeps the child running until it is not wanted any more.
fn keep(spawn: &Spawn, life: &Life, inbox: &SyncSender<Inbox>) {
    let mut pause = PAUSE_MIN;
    // bound: one pass each life of the child and a pause after it
    loop {
        let began = Instant::now();
        let started = {
            // Held until the child can be found: who stops it finds it or prevents it.
            let mut child = life.child();
            if !life.is_wanted() {
                return;
            }
            spawn.start().inspect(|started| {
                let pid = Pid(started.id() as i32);
                *child = PidFd::open(pid).ok().map(|handle| (pid, handle));
            })
        };
        let how = match started {
            Ok(mut child) => match child.wait() {
                Ok(status) => format!("ended with {status}"),
                // Reaped as an orphan of the server: it ended all the same.
                Err(_) => "ended".to_owned(),
            },
            Err(error) => format!("cannot be started: {}", sentence(&error)),
        };
        *life.child() = None;
        if !life.is_wanted() {
            return;
        }
        let text = format!(
            "albacore-params {how} and is started again; the server goes on with what it was told last"
        );
        // A run that does not listen any more ends.
        drop(inbox.try_send(Inbox::Note(text)));
        if began.elapsed() >= LONG_LIFE {
            pause = PAUSE_MIN;
        }
        std::thread::park_timeout(pause);
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Writes the newest snapshot when it comes and every TELL_PERIOD, until there can be no other.
fn feed_on(mut pipe: LineFifo, mut now: NodeSnapshot, told: &Receiver<NodeSnapshot>) {
    let mut is_due = true;
    // bound: one pass each snapshot or period; ends with the sender
    loop {
        let written = match (is_due, now.encode()) {
            // Without its end, which the pipe adds.
            (true, Ok(line)) => pipe.offer(line.trim_end()),
            _ => pipe.flush(),
        };
        let is_waiting = !matches!(written, Ok(Written::Whole));
        let period = if is_waiting {
            WAITING_PERIOD
        } else {
            TELL_PERIOD
        };
        match told.recv_timeout(period) {
            Ok(snapshot) => (now, is_due) = (snapshot, true),
            Err(RecvTimeoutError::Timeout) => is_due = !is_waiting,
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}
