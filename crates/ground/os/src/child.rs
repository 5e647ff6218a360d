//! Child processes that inherit selected descriptors, are killed when their parent dies, and are
//! waited for by pidfd.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child as Process, Command, ExitStatus, Stdio};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::prctl;
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::unistd::getppid;

use crate::{OsError, Pid, PidFd, Tid};

/// How a process terminated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// Exited with this code.
    Code(i32),
    Signal(i32),
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
        }
    }
}

impl From<ExitStatus> for Exit {
    fn from(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Code(code),
            (None, signal) => Self::Signal(signal.unwrap_or_default()),
        }
    }
}

/// Signals that a child ignores.
const IGNORED: [Signal; 4] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGUSR2,
];

/// The standard output of a child.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChildOutput {
    Discarded,
    Inherited,
}

/// A running child process. Dropping it kills the child and waits for it.
#[derive(Debug)]
pub struct Child {
    process: Process,
    pidfd: PidFd,
}

impl Child {
    /// Starts `program` with `arguments`. The descriptors in `inherited` keep their numbers in the
    /// child; every other close-on-exec descriptor is closed. stdin of the child is `/dev/null`;
    /// stderr is inherited.
    ///
    /// The child ignores SIGINT, SIGTERM, SIGHUP and SIGUSR2, which a terminal or an init system
    /// may send to the whole process group; only its parent stops it. The kernel kills it with
    /// SIGKILL when the *thread* that called this function exits (PR_SET_PDEATHSIG): call it from a
    /// thread that lives as long as the process.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn start(
        program: &Path,
        arguments: &[OsString],
        inherited: &[BorrowedFd<'_>],
        output: ChildOutput,
    ) -> Result<Self, OsError> {
        let parent = nix::unistd::getpid();
        let inherited: Vec<RawFd> = inherited.iter().map(AsRawFd::as_raw_fd).collect();
        let mut command = Command::new(program);
        command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(match output {
                ChildOutput::Discarded => Stdio::null(),
                ChildOutput::Inherited => Stdio::inherit(),
            });
        let before_exec = move || -> io::Result<()> {
            die_with_parent(parent, Signal::SIGKILL)?;
            for ignored in IGNORED {
                // SAFETY: SIG_IGN installs no handler.
                unsafe { signal(ignored, SigHandler::SigIgn) }?;
            }
            for &fd in &inherited {
                // SAFETY: the parent keeps the descriptor borrowed until the child has started.
                let fd = unsafe { BorrowedFd::borrow_raw(fd) };
                fcntl(fd, FcntlArg::F_SETFD(FdFlag::empty()))?;
            }
            Ok(())
        };
        // SAFETY: between fork and exec only system calls are made; nothing is allocated.
        unsafe { command.pre_exec(before_exec) };
        let mut process = command.spawn().map_err(|source| OsError::Read {
            path: program.into(),
            source,
        })?;
        // infallible: a pid is a positive i32.
        match PidFd::open(Pid(process.id() as i32)) {
            Ok(pidfd) => Ok(Self { process, pidfd }),
            Err(error) => {
                let _ = process.kill();
                let _ = process.wait();
                Err(error)
            }
        }
    }

    /// Process id of the child.
    #[must_use]
    pub fn pid(&self) -> Pid {
        // infallible: a pid is a positive i32.
        Pid(self.process.id() as i32)
    }

    /// Kills the child with SIGKILL; its exit is reported like any other.
    pub fn kill(&mut self) {
        // Fails only if the child has exited and was already waited for.
        let _ = self.process.kill();
    }

    /// Exit status of the child if it has exited: all of its threads are gone, so it makes no more
    /// writes.
    ///
    /// # Errors
    /// The `waitpid` call fails.
    pub fn try_wait(&mut self) -> Result<Option<Exit>, OsError> {
        let status = self
            .process
            .try_wait()
            .map_err(|e| OsError::call("waitpid", e))?;
        Ok(status.map(Exit::from))
    }
}

/// Readable after the child has exited.
impl AsFd for Child {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
        // Fails only if the child was already waited for.
        let _ = self.process.wait();
    }
}

/// To be called in a child between fork and exec: the kernel sends it `signal` when the thread of
/// `parent` that started it exits.
pub(crate) fn die_with_parent(parent: nix::unistd::Pid, signal: Signal) -> io::Result<()> {
    prctl::set_pdeathsig(signal)?;
    match getppid() == parent {
        true => Ok(()),
        // The parent died before the call, so the signal will never be sent.
        false => Err(Errno::ECHILD.into()),
    }
}

/// Duplicates a descriptor that this process inherited as `number`.
///
/// # Errors
/// There is no such descriptor.
pub fn inherited_fd(number: RawFd) -> Result<OwnedFd, OsError> {
    if number < 0 {
        return Err(OsError::call("inherited descriptor", Errno::EBADF));
    }
    // SAFETY: the borrow ends with the next statement, which fails if the descriptor is not open.
    let fd = unsafe { BorrowedFd::borrow_raw(number) };
    fd.try_clone_to_owned()
        .map_err(|e| OsError::call("fcntl(F_DUPFD_CLOEXEC)", e))
}

/// Thread id of the calling thread.
#[must_use]
pub fn current_thread() -> Tid {
    Tid(nix::unistd::gettid().as_raw())
}

/// Sets the name of the calling thread (at most 15 bytes), as shown in `/proc/*/task/*/comm`.
///
/// # Errors
/// The name contains a NUL byte.
pub fn set_thread_name(name: &str) -> Result<(), OsError> {
    let name = std::ffi::CString::new(name)
        .map_err(|_| OsError::call("prctl(PR_SET_NAME)", Errno::EINVAL))?;
    prctl::set_name(&name).map_err(|e| OsError::call("prctl(PR_SET_NAME)", e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek};
    use std::time::Duration;

    fn shell(script: &str, inherited: &[BorrowedFd<'_>]) -> Child {
        Child::start(
            Path::new("/bin/sh"),
            &["-c".into(), script.into()],
            inherited,
            ChildOutput::Discarded,
        )
        .unwrap()
    }

    fn wait(child: &mut Child) -> Exit {
        let poll = crate::Poll::new().unwrap();
        poll.add(child, crate::PollKey(0)).unwrap();
        for _ in 0..600 {
            if let Some(exit) = child.try_wait().unwrap() {
                return exit;
            }
            poll.wait(Duration::from_millis(100)).unwrap();
        }
        panic!("the child did not end");
    }

    #[test]
    fn a_child_inherits_what_it_is_given_and_ignores_signals_of_the_group() {
        let mut file = tempfile::tempfile().unwrap();
        let number = file.as_raw_fd();
        let script =
            format!("kill -TERM $$; kill -INT $$; echo yes >/proc/self/fd/{number}; exit 3");
        assert_eq!(wait(&mut shell(&script, &[file.as_fd()])), Exit::Code(3));
        let mut text = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "yes\n");
        // Not inherited: the descriptor is closed in the child.
        let script = format!("test -e /proc/self/fd/{number}");
        assert_eq!(wait(&mut shell(&script, &[])), Exit::Code(1));
    }

    #[test]
    fn a_killed_child_reports_its_signal_and_a_dropped_one_is_reaped() {
        let mut child = shell("sleep 100", &[]);
        child.kill();
        assert_eq!(wait(&mut child).to_string(), "signal 9");
        let child = shell("sleep 100", &[]);
        let pid = child.pid();
        drop(child);
        assert!(PidFd::open(pid).is_err());
    }

    #[test]
    fn an_inherited_descriptor_must_be_open() {
        assert!(inherited_fd(-1).is_err());
        assert!(inherited_fd(999_999).is_err());
        let file = tempfile::tempfile().unwrap();
        assert!(inherited_fd(file.as_raw_fd()).is_ok());
    }
}
