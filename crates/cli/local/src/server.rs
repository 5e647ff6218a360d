//! The server as a child process: start, output, drain.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::{Duration, Instant};

use albacore_api::{LocalDeployment, Server, counted};
use albacore_os::{CommandSpec, OsError, Pid, PidFd, Poll, PollKey, Signals, SpawnOutput};
use albacore_settings::Source;
use albacore_topology::CpuSet;
use serde_json::{Value, json};

use crate::events::event;
use crate::live_settings::LiveSettings;
use crate::message::Message;
use crate::options::Options;
use albacore_command::{Failure, program_beside, sentence};

/// Time limit for stopping a server after the start of the run failed.
const FAILED_START: Duration = Duration::from_secs(5);

/// Longest line read from a server; longer lines are reported in parts.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// Exit status that a shell returns for a child killed by SIGTERM.
const TERMINATED: i32 = 128 + SIGTERM;
const SIGTERM: i32 = 15;

/// Exit codes for which the built-in server has already printed the reason: failed, broken
/// invariant.
const REPORTED_EXIT_CODES: [i32; 2] = [1, 70];

pub(crate) struct ServerProcess {
    pid: Pid,
    handle: PidFd,
    is_built_in: bool,
    /// Whether a second signal was received, which ends all waiting.
    has_second_signal: bool,
    exit: Option<std::io::Result<ExitStatus>>,
}

impl ServerProcess {
    /// Starts the server; its output lines and its exit are sent as `messages`.
    pub(crate) fn start(
        deployment: &LocalDeployment,
        options: &Options,
        live_settings: Option<&LiveSettings>,
        messages: SyncSender<Message>,
    ) -> Result<Self, Failure> {
        let is_built_in = matches!(deployment.server, Server::BuiltIn(_));
        let spec = command_spec(deployment, options, live_settings)?;
        let file = options.file.clone();
        let failed = |e| Failure::Failed(sentence(&e));
        let (ready, started) = std::sync::mpsc::sync_channel(1);
        // The kernel kills the child together with the thread that started it, so that thread
        // continues and waits for the child.
        std::thread::spawn(move || {
            let mut child = match spec.start() {
                Ok(child) => child,
                Err(error) => {
                    drop(ready.send(Err(spawn_failure(&file, &spec, &error))));
                    return;
                }
            };
            let pid = Pid(child.id() as i32);
            drop(ready.send(PidFd::open(pid).map(|handle| (pid, handle)).map_err(failed)));
            let lines = child.stdout.take().map(|stdout| {
                let messages = messages.clone();
                std::thread::spawn(move || forward_lines(stdout, &messages))
            });
            let status = child.wait();
            // The last lines are handled before the exit. A worker that outlives the server may
            // hold the pipe open, so the wait is bounded.
            let deadline = Instant::now() + Duration::from_secs(1);
            while lines.as_ref().is_some_and(|thread| !thread.is_finished())
                && Instant::now() < deadline
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            drop(messages.send(Message::ServerExited(status)));
        });
        match started.recv() {
            Ok(Ok((pid, handle))) => Ok(Self {
                pid,
                handle,
                is_built_in,
                has_second_signal: false,
                exit: None,
            }),
            Ok(Err(failure)) => Err(failure),
            Err(_) => Err(Failure::Failed("the thread of the server ended".into())),
        }
    }

    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    pub(crate) fn record_exit(&mut self, status: std::io::Result<ExitStatus>) {
        self.exit = Some(status);
    }

    /// Kills it; its exit is reported by a message.
    pub(crate) fn kill_now(&self) {
        // Fails only if it has just exited.
        drop(self.handle.kill());
    }

    /// Records the signal number `count`: the first one requests a shutdown, the second an
    /// immediate one.
    pub(crate) fn record_signal(&mut self, count: u32) {
        self.has_second_signal |= count > 1;
    }

    /// Stops a server that cannot be placed. Returns the failure to report: that of the server if
    /// it exited first.
    pub(crate) fn stop_unplaceable(
        mut self,
        messages: &Receiver<Message>,
        reason: &str,
    ) -> Failure {
        // If the server exited at once, that is the cause, and the placement failure a consequence.
        self.wait(messages, Duration::from_millis(500), &mut |_| {});
        if let Some(status) = &self.exit {
            return self.exit_failure(status);
        }
        match self.drain(messages, FAILED_START, &mut |_| {}) {
            Err(Failure::Failed(also)) => Failure::Failed(format!("{reason}; {also}")),
            Ok(()) | Err(_) => Failure::Failed(reason.to_owned()),
        }
    }

    /// Sends SIGTERM and waits for the exit; kills the server after `timeout`.
    pub(crate) fn drain(
        mut self,
        messages: &Receiver<Message>,
        timeout: Duration,
        line: &mut dyn FnMut(&str),
    ) -> Result<(), Failure> {
        if let Some(status) = self.exit.take() {
            return Err(self.exit_failure(&status));
        }
        let requested = Instant::now();
        let timeout = match self.handle.terminate() {
            Ok(()) => timeout,
            // The server has just exited, or it belongs to another user.
            Err(_) => Duration::from_secs(1),
        };
        self.wait(messages, timeout, line);
        if self.exit.is_none() {
            let waited = requested.elapsed().as_secs_f64();
            return Err(self.kill(messages, waited, line));
        }
        match &self.exit {
            Some(Ok(status)) if is_requested_exit(*status) => Ok(()),
            Some(status) => Err(self.exit_failure(status)),
            None => Ok(()),
        }
    }

    /// Kills a server that did not exit within `waited` seconds after SIGTERM.
    fn kill(
        &mut self,
        messages: &Receiver<Message>,
        waited: f64,
        line: &mut dyn FnMut(&str),
    ) -> Failure {
        let killed = self.handle.kill();
        let until = match std::mem::take(&mut self.has_second_signal) {
            true => "before the second signal".to_owned(),
            false => format!("within {waited:.1} s after SIGTERM"),
        };
        self.wait(messages, FAILED_START, line);
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

    /// The failure for an exit that was not requested or not clean.
    pub(crate) fn exit_failure(&self, status: &std::io::Result<ExitStatus>) -> Failure {
        let (name, status) = match (self.is_built_in, status) {
            (_, Err(error)) => {
                return Failure::Failed(format!("the server cannot be waited for: {error}"));
            }
            (true, Ok(status)) => {
                let code = status
                    .code()
                    .filter(|code| REPORTED_EXIT_CODES.contains(code));
                if let Some(code) = code.and_then(|code| u8::try_from(code).ok()) {
                    return Failure::ServerFailed(code);
                }
                ("the server", status)
            }
            (false, Ok(status)) => ("the container `server`", status),
        };
        Failure::Failed(format!(
            "{name} ended with {status}: see its messages above"
        ))
    }

    fn wait(
        &mut self,
        messages: &Receiver<Message>,
        timeout: Duration,
        line: &mut dyn FnMut(&str),
    ) {
        let deadline = Instant::now() + timeout;
        // bound: timeout
        while !self.has_second_signal {
            let left = deadline.saturating_duration_since(Instant::now());
            match messages.recv_timeout(left) {
                Ok(Message::ServerExited(status)) => return self.record_exit(status),
                Ok(Message::ServerLine(text)) => line(&text),
                Ok(Message::Signal(count)) => self.record_signal(count),
                Ok(
                    Message::Placer(_)
                    | Message::FileChanged
                    | Message::Note(_)
                    | Message::StartDue,
                ) => {}
                Err(_) => return,
            }
        }
    }
}

/// Whether the exit is a result of SIGTERM: success, or death by that signal.
fn is_requested_exit(status: ExitStatus) -> bool {
    status.success() || status.signal() == Some(SIGTERM) || status.code() == Some(TERMINATED)
}

fn spawn_failure(file: &Path, spec: &CommandSpec, error: &OsError) -> Failure {
    let program = spec.command.first().map(PathBuf::from).unwrap_or_default();
    let reason = match error {
        OsError::Read { source, .. } => source.to_string(),
        other => sentence(other),
    };
    let directory = match &spec.directory {
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

/// Sends the output lines of the server as messages, until every writer has closed the pipe.
fn forward_lines(stdout: impl Read, messages: &SyncSender<Message>) {
    let mut stdout = BufReader::new(stdout);
    let mut line = Vec::new();
    // bound: one iteration per line of at most LINE_BYTES_MAX; ends with the writers or the
    // receiver
    while let Ok(1..) = stdout
        .by_ref()
        .take(LINE_BYTES_MAX)
        .read_until(b'\n', &mut line)
    {
        let text = String::from_utf8_lossy(&line).trim_end().to_owned();
        line.clear();
        if messages.send(Message::ServerLine(text)).is_err() {
            return;
        }
    }
}

/// Checks before the start that the server's model files can be opened; errors name the field.
pub(crate) fn check_models(file: &Path, server: &Server) -> Result<(), Failure> {
    let Server::BuiltIn(server) = server else {
        return Ok(());
    };
    for (index, model) in server.settings.models.iter().enumerate() {
        // The server fetches URLs itself.
        let Source::Path(path) = &model.source else {
            continue;
        };
        let problem = match File::open(path).and_then(|opened| opened.metadata()) {
            // The server looks for the model file in a directory.
            Ok(found) if found.is_file() || found.is_dir() => continue,
            Ok(_) => "is not a file".to_owned(),
            Err(error) => format!("cannot be opened: {error}"),
        };
        return Err(Failure::Failed(format!(
            "{}: spec.models[{index}].uri: {path} {problem}; give the path of a saved XGBoost or LightGBM model",
            file.display()
        )));
    }
    Ok(())
}

/// Checks that each thread of the front end can get its own CPU.
pub(crate) fn check_front_threads(file: &Path, server: &Server) -> Result<(), Failure> {
    let Server::BuiltIn(server) = server else {
        return Ok(());
    };
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    match server.front_threads.filter(|&own| usize::from(own) > cpus) {
        None => Ok(()),
        Some(threads) => Err(Failure::Usage(format!(
            "{}: spec.front.threads is {threads}, more than the {} that can be used here; lower \
             it, or remove it to use as many as possible",
            file.display(),
            counted(cpus, "cpu")
        ))),
    }
}

fn command_spec(
    deployment: &LocalDeployment,
    options: &Options,
    live_settings: Option<&LiveSettings>,
) -> Result<CommandSpec, Failure> {
    let pairs = |environment: &[(String, String)]| -> Vec<(OsString, OsString)> {
        environment
            .iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect()
    };
    match &deployment.server {
        Server::BuiltIn(server) => {
            let mut command: Vec<OsString> = vec![program_beside("albacore-server")?.into()];
            for (flag, value) in [
                ("--workers", server.workers.to_string()),
                ("--threads", server.threads.to_string()),
                ("--http", options.http.to_string()),
                ("--grpc", options.grpc.to_string()),
            ] {
                command.extend([flag.into(), value.into()]);
            }
            if let Some(mode) = server.load_reports {
                command.extend(["--load-reports".into(), mode.into()]);
            }
            let cpus_max = options.cpus.as_ref().map(CpuSet::len);
            for (flag, number) in [
                ("--front-threads", server.front_threads.map(usize::from)),
                ("--cpus-max", cpus_max),
            ] {
                let value = number.map(|number| number.to_string());
                command.extend(
                    value
                        .into_iter()
                        .flat_map(|value| [flag.into(), value.into()]),
                );
            }
            if server.envoy_health_header {
                command.push("--envoy-health-header".into());
            }
            command.extend(live_settings.into_iter().flat_map(LiveSettings::arguments));
            Ok(CommandSpec {
                command,
                environment: pairs(&server.environment),
                directory: None,
                output: SpawnOutput::Pipe,
            })
        }
        Server::Own(own) => Ok(CommandSpec {
            command: own.command.iter().map(Into::into).collect(),
            environment: pairs(&own.environment),
            directory: own.working_dir.clone(),
            // Its lines are also printed as events, because stdout contains one JSON object per
            // line.
            output: SpawnOutput::Pipe,
        }),
    }
}

/// Sends SIGINT and SIGTERM as messages.
pub(crate) fn forward_signals(messages: SyncSender<Message>) -> Result<(), Failure> {
    let failed = |e| Failure::Failed(sentence(&e));
    let signals = Signals::install().map_err(failed)?;
    let poll = Poll::new().map_err(failed)?;
    poll.add(&signals, PollKey(0)).map_err(failed)?;
    std::thread::spawn(move || {
        // bound: one iteration per signal; ends with the receiver
        while poll.wait(Duration::from_secs(3600)).is_ok() {
            let count = signals.termination_count();
            if count > 0 && messages.send(Message::Signal(count)).is_err() {
                return;
            }
        }
    });
    Ok(())
}

/// The event for an output line of the server; the built-in server prints events itself.
pub(crate) fn line_event(server: &Server, text: &str) -> Value {
    let plain = || event("server_said", json!({"text": text}));
    match server {
        Server::BuiltIn(_) => serde_json::from_str(text).unwrap_or_else(|_| plain()),
        Server::Own(_) => plain(),
    }
}
