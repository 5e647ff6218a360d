//! Starts the command of a foreign server so that it ends with this process.

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
pub struct Spawn {
    /// Program (looked up in PATH) and arguments; not empty.
    pub command: Vec<OsString>,
    /// Variables set beside those of this process.
    pub environment: Vec<(OsString, OsString)>,
    /// Where it runs; `None`: where this process runs.
    pub directory: Option<PathBuf>,
    /// Where its output goes.
    pub output: SpawnOutput,
}

/// Where the output of a started command goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SpawnOutput {
    /// To where ours goes.
    Ours,
    /// stdout becomes a pipe (`Child::stdout`), stderr is ours.
    Pipe,
    /// stdout becomes a pipe (`Child::stdout`), stderr is added to this file.
    PipeAndLog(PathBuf),
    /// Both are added to this file.
    Log(PathBuf),
}

impl Spawn {
    /// Starts the command in a session of its own, so that the terminal's Ctrl-C reaches only us.
    /// The kernel kills it with SIGTERM when the *thread* that called this ends: call it from a
    /// thread that lives as long as the process.
    ///
    /// # Errors
    /// The command is empty or cannot be started; the error names it.
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
        // SAFETY: between fork and exec only system calls are made, and nothing is allocated.
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
            SpawnOutput::Ours => {}
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

/// Makes this process the parent of every orphan among its descendants, so that none of them
/// escapes.
///
/// # Errors
/// The kernel refuses.
pub fn become_subreaper() -> Result<(), OsError> {
    prctl::set_child_subreaper(true).map_err(|e| OsError::call("prctl(PR_SET_CHILD_SUBREAPER)", e))
}

/// Reaps exited children except `keep`, whose exit status is awaited elsewhere; returns how many.
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
        // Otherwise it runs, or was reaped since it was listed.
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
        let spawn = Spawn {
            command: ["sh", "-c", script].map(OsString::from).into(),
            environment: vec![("WORD".into(), "tuna".into())],
            directory: Some("/".into()),
            output: SpawnOutput::Pipe,
        };
        let mut child = spawn.start().unwrap();
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
        let spawn = Spawn {
            command: ["sh", "-c", "echo out; echo err >&2"]
                .map(OsString::from)
                .into(),
            environment: Vec::new(),
            directory: None,
            output: SpawnOutput::Log(log.clone()),
        };
        assert!(spawn.start().unwrap().wait().unwrap().success());
        assert_eq!(std::fs::read_to_string(log).unwrap(), "before\nout\nerr\n");
    }

    #[test]
    fn a_command_that_does_not_exist_is_named() {
        let spawn = Spawn {
            command: vec!["/no/such/server".into()],
            environment: Vec::new(),
            directory: None,
            output: SpawnOutput::Ours,
        };
        assert!(
            spawn
                .start()
                .unwrap_err()
                .to_string()
                .contains("/no/such/server")
        );
    }
}
