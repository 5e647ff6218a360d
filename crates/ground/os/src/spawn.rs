//! Starts the command of a third-party server so that it terminates with this process.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::setsid;

use crate::child::die_with_parent;
use crate::limits::ORPHANS_AT_ONCE_MAX;
use crate::{HostRoot, OsError, Pid, read_children};

/// A command to start.
#[derive(Clone, Debug)]
pub struct CommandSpec {
    /// Program (looked up in PATH) and arguments; not empty.
    pub command: Vec<OsString>,
    /// Environment variables added to those of this process.
    pub environment: Vec<(OsString, OsString)>,
    /// Working directory; `None` to inherit that of this process.
    pub directory: Option<PathBuf>,
    /// Destination of its output.
    pub output: SpawnOutput,
}

/// Destination of the output of a started command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SpawnOutput {
    /// stdout and stderr of this process.
    Inherited,
    /// stdout is piped (`Child::stdout`), stderr is inherited.
    Pipe,
    /// stdout is piped (`Child::stdout`), stderr is appended to this file.
    PipeAndLog(PathBuf),
    /// Both are appended to this file.
    Log(PathBuf),
}

impl CommandSpec {
    /// Starts the command in a new session, so that Ctrl-C in the terminal reaches only us. The
    /// kernel sends it SIGTERM when the *thread* that called this function exits
    /// (PR_SET_PDEATHSIG): call it from a thread that lives as long as the process.
    ///
    /// # Errors
    /// The command is empty or cannot be started; the error contains its name.
    pub fn start(&self) -> Result<Child, OsError> {
        let Some((program, arguments)) = self.command.split_first() else {
            return Err(OsError::call("exec of an empty command", Errno::ENOENT));
        };
        let parent = nix::unistd::getpid();
        let mut command = Command::new(program);
        command
            .args(arguments)
            .envs(self.environment.iter().cloned())
            .stdin(Stdio::null());
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        self.direct_output(&mut command)?;
        let before_exec = move || -> io::Result<()> {
            setsid()?;
            die_with_parent(parent, Signal::SIGTERM)
        };
        // SAFETY: between fork and exec only system calls are made; nothing is allocated.
        unsafe { command.pre_exec(before_exec) };
        command.spawn().map_err(|source| OsError::Read {
            path: PathBuf::from(program),
            source,
        })
    }

    fn direct_output(&self, command: &mut Command) -> Result<(), OsError> {
        let open = |path: &PathBuf| {
            let file = File::options().create(true).append(true).open(path);
            file.and_then(|file| Ok((file.try_clone()?, file)))
                .map_err(|source| OsError::Read {
                    path: path.clone(),
                    source,
                })
        };
        match &self.output {
            SpawnOutput::Inherited => {}
            SpawnOutput::Pipe => {
                command.stdout(Stdio::piped());
            }
            SpawnOutput::PipeAndLog(path) => {
                let (_, stderr) = open(path)?;
                command.stdout(Stdio::piped()).stderr(stderr);
            }
            SpawnOutput::Log(path) => {
                let (stdout, stderr) = open(path)?;
                command.stdout(stdout).stderr(stderr);
            }
        }
        Ok(())
    }
}

/// Makes this process the parent of every orphan among its descendants (child subreaper), so that
/// none of them escapes.
///
/// # Errors
/// The `prctl` call fails.
pub fn become_subreaper() -> Result<(), OsError> {
    prctl::set_child_subreaper(true).map_err(|e| OsError::call("prctl(PR_SET_CHILD_SUBREAPER)", e))
}

/// Reaps exited children except those in `keep`, whose exit status is awaited elsewhere; returns
/// the number of children reaped.
///
/// # Errors
/// The children cannot be listed.
pub fn reap_orphans(host: &HostRoot, keep: &[Pid]) -> Result<usize, OsError> {
    let me = Pid(nix::unistd::getpid().as_raw());
    let mut reaped = 0;
    for child in read_children(host, me)?
        .into_iter()
        .take(ORPHANS_AT_ONCE_MAX)
    {
        if keep.contains(&child) {
            continue;
        }
        let id = Id::Pid(nix::unistd::Pid::from_raw(child.0));
        // Any other result: the child is running, or was already reaped.
        let status = waitid(id, WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG);
        if let Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)) = status {
            reaped += 1;
        }
    }
    Ok(reaped)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn a_command_runs_in_a_session_of_its_own_with_its_variables() {
        let script = "echo $WORD; cut -d' ' -f6 /proc/self/stat; pwd";
        let spec = CommandSpec {
            command: ["sh", "-c", script].map(OsString::from).into(),
            environment: vec![("WORD".into(), "tuna".into())],
            directory: Some("/".into()),
            output: SpawnOutput::Pipe,
        };
        let mut child = spec.start().unwrap();
        let mut text = String::new();
        child
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut text)
            .unwrap();
        assert!(child.wait().unwrap().success());
        assert_eq!(
            text,
            format!("tuna\n{}\n/\n", child.id()),
            "the session is named by its leader"
        );
    }

    #[test]
    fn a_log_takes_both_streams_and_keeps_what_it_had() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        std::fs::write(&log, "before\n").unwrap();
        let spec = CommandSpec {
            command: ["sh", "-c", "echo out; echo err >&2"]
                .map(OsString::from)
                .into(),
            environment: Vec::new(),
            directory: None,
            output: SpawnOutput::Log(log.clone()),
        };
        assert!(spec.start().unwrap().wait().unwrap().success());
        assert_eq!(std::fs::read_to_string(log).unwrap(), "before\nout\nerr\n");
    }

    #[test]
    fn a_command_that_does_not_exist_is_named() {
        let spec = CommandSpec {
            command: vec!["/no/such/server".into()],
            environment: Vec::new(),
            directory: None,
            output: SpawnOutput::Inherited,
        };
        assert!(
            spec.start()
                .unwrap_err()
                .to_string()
                .contains("/no/such/server")
        );
    }
}
