//! Runs `albacore run` as a child process: starts it, reads its event lines, reconfigures it by
//! editing its file, and stops it.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use albacore_os::{CommandSpec, Pid, PidFd, SpawnOutput};
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// A running `albacore run`.
pub struct Service {
    child: Child,
    events: Receiver<Value>,
    /// Pid of each worker, by index, from the last event about it.
    workers: Vec<u64>,
    spawns: usize,
    is_ready: bool,
    placed: Option<Placed>,
    /// The last events, oldest first, for error messages.
    recent_events: VecDeque<Value>,
}

/// Number of events that an error message quotes.
const RECENT_EVENTS_MAX: usize = 20;

/// One thread of a `placed` event.
#[derive(Clone, Debug)]
pub struct PlacedThread {
    /// Index of its worker.
    pub worker: u64,
    pub rank: u64,
    pub tid: u64,
    /// The planned cpus, as a list.
    pub planned: String,
}

/// A `placed` event.
#[derive(Clone, Debug)]
pub struct Placed {
    /// The policy in force, in lower case.
    pub policy: String,
    /// `scatter` or `compact`.
    pub mode: String,
    pub threads: Vec<PlacedThread>,
}

/// The kill of a worker.
pub struct Kill {
    /// Index of the worker.
    pub worker: u64,
    /// For each thread of the replacement: time from its creation to its verified mask, in
    /// microseconds.
    pub spawn_to_verified_us: Vec<u64>,
}

/// Path of a program built beside this one, or one folder above it (tests run in `deps/`).
///
/// # Errors
/// The program was not built.
pub fn program(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let folders = own.ancestors().skip(1).take(2);
    let found = folders
        .map(|folder| folder.join(name))
        .find(|path| path.is_file());
    found.with_context(|| {
        format!(
            "{name} is not beside {}: run `cargo build --workspace --bins` first",
            own.display()
        )
    })
}

/// Standard output of `albacore ARGS`.
pub fn albacore_stdout(args: &[&str]) -> Result<String> {
    let output = Command::new(program("albacore")?).args(args).output()?;
    ensure!(
        output.status.success(),
        "albacore {}: {}",
        args.join(" "),
        output.status
    );
    Ok(String::from_utf8(output.stdout)?)
}

impl Service {
    /// Starts `albacore run -f file args` in this folder. The process ends when the calling thread
    /// ends.
    ///
    /// # Errors
    /// The program is missing or cannot be started.
    pub fn start(file: &Path, args: &[&str]) -> Result<Self> {
        Self::start_in(file, args, Path::new("."), &[])
    }

    /// As [`Service::start`]; stderr of the process and of the server is appended to `log`.
    pub fn start_with_log(file: &Path, args: &[&str], log: &Path) -> Result<Self> {
        let output = SpawnOutput::PipeAndLog(log.to_owned());
        Self::spawn(file, args, Path::new("."), &[], output)
    }

    /// Starts `albacore run -f file args` in `folder` with additional environment variables.
    pub fn start_in(
        file: &Path,
        args: &[&str],
        folder: &Path,
        environment: &[(&str, String)],
    ) -> Result<Self> {
        Self::spawn(file, args, folder, environment, SpawnOutput::Pipe)
    }

    fn spawn(
        file: &Path,
        args: &[&str],
        folder: &Path,
        environment: &[(&str, String)],
        output: SpawnOutput,
    ) -> Result<Self> {
        let program = program("albacore")?.into_os_string();
        let fixed = ["run", "--output", "json", "-f"].map(OsString::from);
        let own = args.iter().map(OsString::from);
        let command = [program].into_iter().chain(fixed);
        let mut child = CommandSpec {
            command: command.chain([file.into()]).chain(own).collect(),
            environment: environment
                .iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
            directory: Some(folder.to_owned()),
            output,
        }
        .start()
        .context("cannot start albacore run")?;
        let stdout = child.stdout.take().context("no stdout")?;
        let (sender, events) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let Ok(event) = serde_json::from_str(&line) else {
                    continue;
                };
                if sender.send(event).is_err() {
                    return;
                }
            }
        });
        Ok(Self {
            child,
            events,
            workers: Vec::new(),
            spawns: 0,
            is_ready: false,
            placed: None,
            recent_events: VecDeque::new(),
        })
    }

    /// The HTTP address, once the server listens.
    pub fn listening(&mut self) -> Result<SocketAddr> {
        let event = self.wait(Duration::from_secs(30), "listening", |_| true)?;
        let address = event["http"]
            .as_str()
            .context("event `listening` without `http`")?;
        Ok(address.parse()?)
    }

    /// Waits until the built-in server has loaded its models and every thread is placed. The server
    /// listens before that, and answers requests with 503.
    pub fn ready(&mut self, patience: Duration) -> Result<()> {
        let deadline = Instant::now() + patience;
        // bound: `next` fails when the deadline passes
        while !self.is_ready || self.placed.is_none() {
            self.next(deadline)
                .context("waiting for `ready` and `placed`")?;
        }
        Ok(())
    }

    /// Waits until every thread of every worker is placed and verified.
    pub fn placed(&mut self, patience: Duration) -> Result<()> {
        self.wait(patience, "placed", |_| true).map(drop)
    }

    /// Waits until `policy` is in force on every thread.
    pub fn policy(&mut self, policy: &str, patience: Duration) -> Result<()> {
        self.placement(policy, None, patience)
    }

    /// Waits until `policy`, in `mode` if given, is in force on every thread.
    pub fn placement(
        &mut self,
        policy: &str,
        mode: Option<&str>,
        patience: Duration,
    ) -> Result<()> {
        let policy = policy.to_lowercase();
        let mode = mode.map(str::to_lowercase);
        let asked = Instant::now();
        self.drain();
        let is_it = |in_force: &Placed| {
            in_force.policy == policy && mode.as_ref().is_none_or(|mode| *mode == in_force.mode)
        };
        if self.placed.as_ref().is_some_and(is_it) {
            return Ok(());
        }
        let in_force = |event: &Value| read_placed(event).as_ref().is_some_and(is_it);
        self.wait(patience, "placed", in_force)
            .with_context(|| {
                format!(
                    "policy {policy} {:.1} s after",
                    asked.elapsed().as_secs_f64()
                )
            })
            .map(drop)
    }

    /// Kills a worker and waits until all threads of its replacement are verified.
    pub fn kill_worker(&mut self, worker: u64, patience: Duration) -> Result<Kill> {
        self.drain();
        let index = usize::try_from(worker)?;
        let pid = *self
            .workers
            .get(index)
            .context("no such worker was reported")?;
        PidFd::open(Pid(i32::try_from(pid)?))?.kill()?;
        let mut times = Vec::new();
        let deadline = Instant::now() + patience;
        // bound: `next` fails when the deadline passes
        loop {
            let event = self
                .next(deadline)
                .with_context(|| format!("worker {worker} killed"))?;
            let replaced = self.workers.get(index).is_some_and(|now| *now != pid);
            if event["event"] == "pinned" && event["worker"] == worker && replaced {
                times.extend(event["birth_to_verified_us"].as_u64());
            }
            if event["event"] == "placed" && !times.is_empty() {
                return Ok(Kill {
                    worker,
                    spawn_to_verified_us: times,
                });
            }
        }
    }

    /// The process `albacore run`.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The last `placed` event.
    pub fn last_placed(&self) -> Option<&Placed> {
        self.placed.as_ref()
    }

    /// Number of workers spawned so far.
    pub fn spawns(&mut self) -> usize {
        self.drain();
        self.spawns
    }

    /// Waits until no event has followed `placed` for half a second.
    ///
    /// # Errors
    /// Events continue until the timeout.
    pub fn settled(&mut self, patience: Duration) -> Result<()> {
        const QUIET: Duration = Duration::from_millis(500);
        let deadline = Instant::now() + patience;
        let mut last = Value::Null;
        while Instant::now() < deadline {
            match self.events.recv_timeout(QUIET) {
                Ok(event) => {
                    self.handle_event(&event);
                    last = event;
                }
                Err(_) if last.is_null() || last["event"] == "placed" => return Ok(()),
                Err(_) => {}
            }
        }
        bail!("placement did not settle; the last event was {last}")
    }

    /// Sends SIGTERM with a system call: an image with only these programs has no `kill`.
    fn terminate(&self) -> Result<()> {
        let pid = Pid(i32::try_from(self.child.id())?);
        PidFd::open(pid)?.terminate()?;
        Ok(())
    }

    fn drain(&mut self) {
        while let Ok(event) = self.events.try_recv() {
            self.handle_event(&event);
        }
    }

    /// Sends SIGTERM and returns the exit code.
    pub fn stop(mut self, patience: Duration) -> Result<Option<i32>> {
        self.terminate()?;
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status.code());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        bail!(
            "albacore run did not end {} s after SIGTERM",
            patience.as_secs()
        )
    }

    fn wait(
        &mut self,
        patience: Duration,
        name: &str,
        accept: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        let deadline = Instant::now() + patience;
        // bound: `next` fails when the deadline passes
        loop {
            let event = self
                .next(deadline)
                .with_context(|| format!("waiting for `{name}`"))?;
            if event["event"] == name && accept(&event) {
                return Ok(event);
            }
        }
    }

    fn next(&mut self, deadline: Instant) -> Result<Value> {
        let left = deadline.saturating_duration_since(Instant::now());
        let event = self.events.recv_timeout(left).with_context(|| {
            let events: Vec<String> = self.recent_events.iter().map(Value::to_string).collect();
            format!(
                "the expected event did not come in time; the last events were:\n{}",
                events.join("\n")
            )
        })?;
        self.handle_event(&event);
        Ok(event)
    }

    fn handle_event(&mut self, event: &Value) {
        self.recent_events.push_back(event.clone());
        if self.recent_events.len() > RECENT_EVENTS_MAX {
            self.recent_events.pop_front();
        }
        match event["event"].as_str() {
            Some("worker_born") => {
                let pair = (event["worker"].as_u64(), event["pid"].as_u64());
                let (Some(worker), Some(pid)) = pair else {
                    return;
                };
                let index = worker as usize;
                if self.workers.len() <= index {
                    self.workers.resize(index + 1, 0);
                }
                self.workers[index] = pid;
                self.spawns += 1;
            }
            Some("ready") => self.is_ready = true,
            Some("placed") => self.placed = read_placed(event),
            _ => {}
        }
    }
}

fn read_placed(event: &Value) -> Option<Placed> {
    let threads = event["threads"].as_array()?.iter().map(|thread| {
        Some(PlacedThread {
            worker: thread["worker"].as_u64()?,
            rank: thread["rank"].as_u64()?,
            tid: thread["tid"].as_u64()?,
            planned: thread["planned"].as_str()?.to_owned(),
        })
    });
    Some(Placed {
        policy: event["policy"].as_str()?.to_owned(),
        mode: event["mode"].as_str()?.to_owned(),
        threads: threads.collect::<Option<_>>()?,
    })
}

impl Drop for Service {
    /// Stops the process if the caller failed before `stop`.
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // waits only if the signal was sent
            if self.terminate().is_ok() {
                drop(self.child.wait());
            }
        }
    }
}
