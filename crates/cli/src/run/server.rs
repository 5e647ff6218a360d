//! The server as a child: started, listened to, drained.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::{Duration, Instant};

use albacore_api::{OneMachine, Server};
use albacore_os::{Key, Pid, PidFd, Poll, Signals, Spawn};
use serde_json::{Value, json};

use super::events::event;
use super::inbox::Inbox;
use crate::args::RunArgs;
use crate::failure::{Failure, sentence};

/// How long a server that was told to end at a failed start is waited for.
const FAILED_START: Duration = Duration::from_secs(5);

/// The server's process.
pub(super) struct Child {
    pid: Pid,
    handle: PidFd,
    exit: Option<std::io::Result<ExitStatus>>,
}

impl Child {
    /// Starts the server; what it prints and how it ends comes through `inbox`.
    pub(super) fn start(
        deployment: &OneMachine,
        args: &RunArgs,
        inbox: SyncSender<Inbox>,
    ) -> Result<Self, Failure> {
        let spawn = spawn(deployment, args)?;
        let failed = |e| Failure::Failed(sentence(&e));
        let (told, started) = std::sync::mpsc::sync_channel(1);
        // The kernel ends the child with the thread that started it, so that thread stays: it waits for the child.
        std::thread::spawn(move || {
            let mut child = match spawn.start() {
                Ok(child) => child,
                Err(error) => {
                    let text = format!("cannot start the server: {}", sentence(&error));
                    drop(told.send(Err(Failure::Failed(text))));
                    return;
                }
            };
            let pid = Pid(child.id() as i32);
            drop(told.send(PidFd::open(pid).map(|handle| (pid, handle)).map_err(failed)));
            let lines = child.stdout.take().map(|stdout| {
                let inbox = inbox.clone();
                std::thread::spawn(move || {
                    for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                        if inbox.send(Inbox::ServerLine(line)).is_err() {
                            return;
                        }
                    }
                })
            });
            let status = child.wait();
            // What it said last is heard before that it ended. A worker that outlives it may hold the pipe open.
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
                exit: None,
            }),
            Ok(Err(failure)) => Err(failure),
            Err(_) => Err(Failure::Failed("the thread of the server ended".into())),
        }
    }

    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    pub(super) fn note_exit(&mut self, status: std::io::Result<ExitStatus>) {
        self.exit = Some(status);
    }

    /// Ends a server that cannot be placed; the failure to report: the server's own if it failed first.
    pub(super) fn end_for(self, inbox: &Receiver<Inbox>, reason: &str) -> Failure {
        // A server that ended at once said why on standard error; "process is gone" would hide it.
        let deadline = Instant::now() + Duration::from_millis(500);
        let is_gone = reason.contains("is gone");
        while is_gone && Instant::now() < deadline {
            let left = deadline.saturating_duration_since(Instant::now());
            if let Ok(Inbox::ServerExited(status)) = inbox.recv_timeout(left) {
                return Failure::Failed(ended(&status));
            }
        }
        match self.drain(inbox, FAILED_START, &mut |_| {}) {
            Ok(()) => Failure::Failed(reason.to_owned()),
            Err(also) => Failure::Failed(format!("{reason}; {also}")),
        }
    }

    /// Asks the server to end and waits; kills it when patience is over.
    pub(super) fn drain(
        mut self,
        inbox: &Receiver<Inbox>,
        patience: Duration,
        line: &mut dyn FnMut(&str),
    ) -> Result<(), String> {
        if self.exit.is_none() && self.handle.terminate().is_ok() {
            self.wait(inbox, patience, line);
        }
        if self.exit.is_none() {
            drop(self.handle.kill());
            self.wait(inbox, FAILED_START, line);
            return Err(format!(
                "the server (process {}) did not end {} s after SIGTERM and was killed",
                self.pid.0,
                patience.as_secs()
            ));
        }
        match &self.exit {
            Some(Ok(status)) if status.success() => Ok(()),
            Some(status) => Err(ended(status)),
            None => Ok(()),
        }
    }

    fn wait(&mut self, inbox: &Receiver<Inbox>, patience: Duration, line: &mut dyn FnMut(&str)) {
        let deadline = Instant::now() + patience;
        let left = || deadline.saturating_duration_since(Instant::now());
        while let Ok(message) = inbox.recv_timeout(left()) {
            match message {
                Inbox::ServerExited(status) => return self.note_exit(status),
                Inbox::ServerLine(text) => line(&text),
                // A second Ctrl-C: enough waited.
                Inbox::Signal(count) if count > 1 => return,
                _ => {}
            }
        }
    }
}

fn spawn(deployment: &OneMachine, args: &RunArgs) -> Result<Spawn, Failure> {
    let pairs = |environment: &[(String, String)]| -> Vec<(OsString, OsString)> {
        environment
            .iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect()
    };
    match &deployment.server {
        Server::BuiltIn(settings) => {
            let mut command: Vec<OsString> = vec![server_program()?.into()];
            command.extend(settings.arguments());
            let mut listen = |flag: &str, address: SocketAddr| {
                command.extend([flag.into(), address.to_string().into()]);
            };
            listen("--http", args.http);
            listen("--grpc", args.grpc);
            let environment = pairs(&settings.environment);
            Ok(Spawn {
                command,
                environment,
                directory: None,
                pipe_stdout: true,
            })
        }
        Server::Own(own) => Ok(Spawn {
            command: own.command.iter().map(Into::into).collect(),
            environment: pairs(&own.environment),
            directory: own.working_dir.clone(),
            pipe_stdout: false,
        }),
    }
}

/// `albacore-server` beside this program.
fn server_program() -> Result<PathBuf, Failure> {
    let own = std::env::current_exe().map_err(|e| Failure::Failed(sentence(&e)))?;
    let program = own.with_file_name("albacore-server");
    if program.is_file() {
        return Ok(program);
    }
    Err(Failure::Failed(format!(
        "{} is missing: albacore and albacore-server are installed into the same folder",
        program.display()
    )))
}

/// Hands SIGINT and SIGTERM to the inbox.
pub(super) fn forward_signals(inbox: SyncSender<Inbox>) -> Result<(), Failure> {
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

/// A line of the built-in server as an event.
pub(super) fn line(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| event("server_said", json!({"text": text})))
}

/// How the server ended, as a sentence.
pub(super) fn ended(status: &std::io::Result<ExitStatus>) -> String {
    match status {
        Ok(status) => format!("the server ended by itself ({status}); its own message is above"),
        Err(error) => format!("the server cannot be waited for: {error}"),
    }
}
