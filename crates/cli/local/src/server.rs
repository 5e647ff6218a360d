//! The server as a child: started, listened to, drained.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read};
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::{Duration, Instant};

use albacore_api::{ModelSource, OneMachine, Server};
use albacore_os::{Key, OsError, Pid, PidFd, Poll, Signals, Spawn, SpawnOutput};
use serde_json::{Value, json};

use crate::events::event;
use crate::inbox::Inbox;
use crate::run::Options;
use crate::serving::Serving;
use albacore_command::{Failure, program_beside, sentence};

/// How long a server that was told to end at a failed start is waited for.
const FAILED_START: Duration = Duration::from_secs(5);

/// Longest line taken from a server; a longer one is told in parts.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// What a shell returns for a child that SIGTERM ended.
const TERMINATED: i32 = 128 + SIGTERM;
const SIGTERM: i32 = 15;

/// Exit codes with which the built-in server has said why it ended: failed, broken invariant.
const SPEAKING: [i32; 2] = [1, 70];

pub(crate) struct Child {
    pid: Pid,
    handle: PidFd,
    is_built_in: bool,
    /// A second signal came: enough waited.
    is_hurried: bool,
    exit: Option<std::io::Result<ExitStatus>>,
}

impl Child {
    /// Starts the server; what it prints and how it ends comes through `inbox`.
    pub(crate) fn start(
        deployment: &OneMachine,
        options: &Options,
        serving: Option<&Serving>,
        inbox: SyncSender<Inbox>,
    ) -> Result<Self, Failure> {
        let is_built_in = matches!(deployment.server, Server::BuiltIn(_));
        let spawn = spawn(deployment, options, serving)?;
        let file = options.file.clone();
        let failed = |e| Failure::Failed(sentence(&e));
        let (told, started) = std::sync::mpsc::sync_channel(1);
        // The kernel ends the child with the thread that started it, so that thread stays: it waits
        // for the child.
        std::thread::spawn(move || {
            let mut child = match spawn.start() {
                Ok(child) => child,
                Err(error) => {
                    drop(told.send(Err(not_started(&file, &spawn, &error))));
                    return;
                }
            };
            let pid = Pid(child.id() as i32);
            drop(told.send(PidFd::open(pid).map(|handle| (pid, handle)).map_err(failed)));
            let lines = child.stdout.take().map(|stdout| {
                let inbox = inbox.clone();
                std::thread::spawn(move || listen(stdout, &inbox))
            });
            let status = child.wait();
            // What it said last is heard before that it ended. A worker that outlives it may hold
            // the pipe open.
            let deadline = Instant::now() + Duration::from_secs(1);
            while lines.as_ref().is_some_and(|thread| !thread.is_finished())
                && Instant::now() < deadline
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            drop(inbox.send(Inbox::ServerExited(status)));
        });
        match started.recv() {
            Ok(Ok((pid, handle))) => Ok(Self {
                pid,
                handle,
                is_built_in,
                is_hurried: false,
                exit: None,
            }),
            Ok(Err(failure)) => Err(failure),
            Err(_) => Err(Failure::Failed("the thread of the server ended".into())),
        }
    }

    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    pub(crate) fn note_exit(&mut self, status: std::io::Result<ExitStatus>) {
        self.exit = Some(status);
    }

    /// Kills it; its end comes through the inbox.
    pub(crate) fn kill_now(&self) {
        // It fails only if it has just ended.
        drop(self.handle.kill());
    }

    /// Takes note of a signal, the `count`th; the first asks for an end, the second for a quick
    /// one.
    pub(crate) fn note_signal(&mut self, count: u32) {
        self.is_hurried |= count > 1;
    }

    /// Ends a server that cannot be placed; the failure to report: the server's own if it ended
    /// first.
    pub(crate) fn end_for(mut self, inbox: &Receiver<Inbox>, reason: &str) -> Failure {
        // A server that ended at once said why; that it cannot be placed any more would hide it.
        self.wait(inbox, Duration::from_millis(500), &mut |_| {});
        if let Some(status) = &self.exit {
            return self.ended(status);
        }
        match self.drain(inbox, FAILED_START, &mut |_| {}) {
            Err(Failure::Failed(also)) => Failure::Failed(format!("{reason}; {also}")),
            Ok(()) | Err(_) => Failure::Failed(reason.to_owned()),
        }
    }

    /// Asks the server to end and waits; kills it when patience is over.
    pub(crate) fn drain(
        mut self,
        inbox: &Receiver<Inbox>,
        patience: Duration,
        line: &mut dyn FnMut(&str),
    ) -> Result<(), Failure> {
        if let Some(status) = self.exit.take() {
            return Err(self.ended(&status));
        }
        let asked = Instant::now();
        let patience = match self.handle.terminate() {
            Ok(()) => patience,
            // It has just ended, or it belongs to somebody else.
            Err(_) => Duration::from_secs(1),
        };
        self.wait(inbox, patience, line);
        if self.exit.is_none() {
            let waited = asked.elapsed().as_secs_f64();
            return Err(self.kill(inbox, waited, line));
        }
        match &self.exit {
            Some(Ok(status)) if is_as_asked(*status) => Ok(()),
            Some(status) => Err(self.ended(status)),
            None => Ok(()),
        }
    }

    /// Ends a server that did not end `waited` seconds after it was asked to.
    fn kill(
        &mut self,
        inbox: &Receiver<Inbox>,
        waited: f64,
        line: &mut dyn FnMut(&str),
    ) -> Failure {
        let killed = self.handle.kill();
        let until = match std::mem::take(&mut self.is_hurried) {
            true => "before the second signal".to_owned(),
            false => format!("within {waited:.1} s after SIGTERM"),
        };
        self.wait(inbox, FAILED_START, line);
        let how = match (&self.exit, killed) {
            (Some(_), _) => "was killed".to_owned(),
            (None, Ok(())) => "was killed, but has not ended yet".to_owned(),
            (None, Err(error)) => format!("cannot be killed: {}", sentence(&error)),
        };
        Failure::Failed(format!(
            "the server (process {}) did not end {until} and {how}",
            self.pid.0
        ))
    }

    /// How the server ended without being asked, or otherwise than it was asked, as a failure.
    pub(crate) fn ended(&self, status: &std::io::Result<ExitStatus>) -> Failure {
        let (name, status) = match (self.is_built_in, status) {
            (_, Err(error)) => {
                return Failure::Failed(format!("the server cannot be waited for: {error}"));
            }
            (true, Ok(status)) => {
                let code = status.code().filter(|code| SPEAKING.contains(code));
                if let Some(code) = code.and_then(|code| u8::try_from(code).ok()) {
                    return Failure::ServerFailed(code);
                }
                ("the server", status)
            }
            (false, Ok(status)) => ("the container `server`", status),
        };
        Failure::Failed(format!(
            "{name} ended with {status}: see above what it said itself, if anything"
        ))
    }

    fn wait(&mut self, inbox: &Receiver<Inbox>, patience: Duration, line: &mut dyn FnMut(&str)) {
        let deadline = Instant::now() + patience;
        // bound: patience
        while !self.is_hurried {
            let left = deadline.saturating_duration_since(Instant::now());
            match inbox.recv_timeout(left) {
                Ok(Inbox::ServerExited(status)) => return self.note_exit(status),
                Ok(Inbox::ServerLine(text)) => line(&text),
                Ok(Inbox::Signal(count)) => self.note_signal(count),
                Ok(Inbox::Placer(_) | Inbox::FileChanged | Inbox::Note(_) | Inbox::StartDue) => {}
                Err(_) => return,
            }
        }
    }
}

/// True if SIGTERM was the reason for this end: the process ended well, or the signal ended it.
fn is_as_asked(status: ExitStatus) -> bool {
    status.success() || status.signal() == Some(SIGTERM) || status.code() == Some(TERMINATED)
}

fn not_started(file: &Path, spawn: &Spawn, error: &OsError) -> Failure {
    let program = spawn.command.first().map(PathBuf::from).unwrap_or_default();
    let reason = match error {
        OsError::Read { source, .. } => source.to_string(),
        other => sentence(other),
    };
    let directory = match &spawn.directory {
        Some(directory) => format!(" in workingDir {}", directory.display()),
        None => String::new(),
    };
    Failure::Failed(format!(
        "{}: the command of the container `server`, {}, cannot be started{directory}: {reason}; give a program of this \
         machine",
        file.display(),
        program.display()
    ))
}

/// Hands what the server prints to the inbox, line by line, until nobody can print any more.
fn listen(stdout: impl Read, inbox: &SyncSender<Inbox>) {
    let mut stdout = BufReader::new(stdout);
    let mut line = Vec::new();
    // bound: one turn a line of at most LINE_BYTES_MAX; ends with the writers or the receiver
    while let Ok(1..) = stdout
        .by_ref()
        .take(LINE_BYTES_MAX)
        .read_until(b'\n', &mut line)
    {
        let text = String::from_utf8_lossy(&line).trim_end().to_owned();
        line.clear();
        if inbox.send(Inbox::ServerLine(text)).is_err() {
            return;
        }
    }
}

/// Says with the field's name that a model cannot be opened, before a server is started for it.
pub(crate) fn check_models(file: &Path, server: &Server) -> Result<(), Failure> {
    let Server::BuiltIn(settings) = server else {
        return Ok(());
    };
    for (index, model) in settings.models.iter().enumerate() {
        // Whether a URL can be fetched is the server's to find out.
        let ModelSource::File(path) = &model.source else {
            continue;
        };
        let problem = match File::open(path).and_then(|opened| opened.metadata()) {
            Ok(found) if found.is_file() => continue,
            Ok(_) => "is no file".to_owned(),
            Err(error) => format!("cannot be opened: {error}"),
        };
        return Err(Failure::Failed(format!(
            "{}: spec.models[{index}].uri: {} {problem}; give the path of a saved XGBoost or LightGBM model",
            file.display(),
            path.display()
        )));
    }
    Ok(())
}

fn spawn(
    deployment: &OneMachine,
    options: &Options,
    serving: Option<&Serving>,
) -> Result<Spawn, Failure> {
    let pairs = |environment: &[(String, String)]| -> Vec<(OsString, OsString)> {
        environment
            .iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect()
    };
    match &deployment.server {
        Server::BuiltIn(settings) => {
            let mut command: Vec<OsString> = vec![program_beside("albacore-server")?.into()];
            command.extend(settings.arguments());
            command.extend(serving.map(Serving::arguments).unwrap_or_default());
            let mut listen = |flag: &str, address: SocketAddr| {
                command.extend([flag.into(), address.to_string().into()]);
            };
            listen("--http", options.http);
            listen("--grpc", options.grpc);
            let environment = pairs(&settings.environment);
            Ok(Spawn {
                command,
                environment,
                directory: None,
                output: SpawnOutput::Pipe,
            })
        }
        Server::Own(own) => Ok(Spawn {
            command: own.command.iter().map(Into::into).collect(),
            environment: pairs(&own.environment),
            directory: own.working_dir.clone(),
            // Events are one JSON object a line: what it prints is told as events, too.
            output: SpawnOutput::Pipe,
        }),
    }
}

/// Hands SIGINT and SIGTERM to the inbox.
pub(crate) fn forward_signals(inbox: SyncSender<Inbox>) -> Result<(), Failure> {
    let failed = |e| Failure::Failed(sentence(&e));
    let signals = Signals::install().map_err(failed)?;
    let poll = Poll::new().map_err(failed)?;
    poll.add(&signals, Key(0)).map_err(failed)?;
    std::thread::spawn(move || {
        // bound: one turn a signal; ends with the receiver
        while poll.wait(Duration::from_secs(3600)).is_ok() {
            let count = signals.take();
            if count > 0 && inbox.send(Inbox::Signal(count)).is_err() {
                return;
            }
        }
    });
    Ok(())
}

/// A line of the server as an event: the built-in one prints events itself.
pub(crate) fn line(server: &Server, text: &str) -> Value {
    let said = || event("server_said", json!({"text": text}));
    match server {
        Server::BuiltIn(_) => serde_json::from_str(text).unwrap_or_else(|_| said()),
        Server::Own(_) => said(),
    }
}
