//! Readers of `/proc/PID` and `/proc/PID/task/TID`.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

use albacore_values::{Pid, Tid};

use crate::limits::TASKS_MAX;
use crate::read::{read_bytes, read_optional_text, read_text};
use crate::{HostRoot, OsError, Stat, parse_stat};

fn process(host: &HostRoot, pid: Pid) -> PathBuf {
    host.proc.join(pid.0.to_string())
}

fn task(host: &HostRoot, pid: Pid, tid: Tid) -> PathBuf {
    host.proc.join(format!("{}/task/{}", pid.0, tid.0))
}

/// `/proc/PID/stat`.
///
/// # Errors
/// The process has exited, or the file is malformed.
pub fn read_stat(host: &HostRoot, pid: Pid) -> Result<Stat, OsError> {
    stat_of(process(host, pid).join("stat"))
}

/// `/proc/PID/task/TID/stat`.
///
/// # Errors
/// The thread has exited, or the file is malformed.
pub fn read_task_stat(host: &HostRoot, pid: Pid, tid: Tid) -> Result<Stat, OsError> {
    stat_of(task(host, pid, tid).join("stat"))
}

fn stat_of(path: PathBuf) -> Result<Stat, OsError> {
    let bytes = read_bytes(&path)?;
    parse_stat(&bytes).map_err(|source| OsError::Stat { path, source })
}

/// `/proc/PID/comm` without its trailing newline; invalid UTF-8 is replaced by U+FFFD.
///
/// # Errors
/// The process has exited.
pub fn read_comm(host: &HostRoot, pid: Pid) -> Result<String, OsError> {
    comm_of(process(host, pid).join("comm"))
}

/// `/proc/PID/task/TID/comm` without its trailing newline.
///
/// # Errors
/// The thread has exited.
pub fn read_task_comm(host: &HostRoot, pid: Pid, tid: Tid) -> Result<String, OsError> {
    comm_of(task(host, pid, tid).join("comm"))
}

fn comm_of(path: PathBuf) -> Result<String, OsError> {
    let mut comm = read_text(&path)?;
    if comm.ends_with('\n') {
        comm.pop();
    }
    Ok(comm)
}

/// `/proc/PID/cmdline`: the arguments joined by spaces; empty for a kernel thread or a process that
/// has exited.
///
/// # Errors
/// The process has exited.
pub fn read_cmdline(host: &HostRoot, pid: Pid) -> Result<String, OsError> {
    let bytes = read_bytes(&process(host, pid).join("cmdline"))?;
    let text = String::from_utf8_lossy(&bytes).replace('\0', " ");
    Ok(text.trim_end().to_owned())
}

/// The threads of a process, sorted by tid; at most 65,536.
///
/// # Errors
/// The process has exited.
pub fn read_tasks(host: &HostRoot, pid: Pid) -> Result<Vec<Tid>, OsError> {
    let path = process(host, pid).join("task");
    Ok(numbers_in(path)?.into_iter().map(Tid).collect())
}

pub(crate) fn numbers_in(path: PathBuf) -> Result<Vec<i32>, OsError> {
    let error = |source| OsError::read(&path, source);
    let mut numbers = Vec::new();
    for entry in fs::read_dir(&path).map_err(error)?.take(TASKS_MAX) {
        let name = entry.map_err(error)?.file_name();
        if let Some(number) = name.to_str().and_then(|name| name.parse().ok()) {
            numbers.push(number);
        }
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// The child processes of a process, forked by any of its threads, sorted by pid, including
/// zombies.
///
/// Uses `task/TID/children`; on a kernel without that file (CONFIG_PROC_CHILDREN) it reads the
/// parent of every process instead.
///
/// # Errors
/// The process has exited.
pub fn read_children(host: &HostRoot, pid: Pid) -> Result<Vec<Pid>, OsError> {
    let mut children = Vec::new();
    for tid in read_tasks(host, pid)? {
        let directory = task(host, pid, tid);
        match read_optional_text(&directory.join("children"))? {
            Some(text) => {
                children.extend(
                    text.split_ascii_whitespace()
                        .filter_map(|p| p.parse().ok())
                        .map(Pid),
                );
            }
            // If the directory exists, the kernel has no such file; otherwise the thread exited
            // after it was listed.
            None if directory.exists() => return children_by_parent(host, pid),
            None => {}
        }
    }
    children.sort_unstable();
    children.dedup();
    Ok(children)
}

fn children_by_parent(host: &HostRoot, parent: Pid) -> Result<Vec<Pid>, OsError> {
    let processes = numbers_in(host.proc.clone())?;
    let is_child = |&pid: &i32| {
        // A process that exited after it was listed is no longer a child.
        read_stat(host, Pid(pid)).is_ok_and(|stat| stat.parent == parent.0)
    };
    Ok(processes.into_iter().filter(is_child).map(Pid).collect())
}

/// Reads the most recently assigned pid or tid from `/proc/loadavg`. While it is unchanged, no
/// process or thread was created on the whole machine.
#[derive(Debug)]
pub struct LastPid {
    path: PathBuf,
    /// Kept open because it is read a hundred times per second.
    file: File,
}

impl LastPid {
    /// Opens the file.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open(host: &HostRoot) -> Result<Self, OsError> {
        let path = host.proc.join("loadavg");
        let file = File::open(&path).map_err(|source| OsError::read(&path, source))?;
        Ok(Self { path, file })
    }

    /// The most recently assigned id.
    ///
    /// # Errors
    /// The file cannot be read or parsed.
    pub fn read(&self) -> Result<i32, OsError> {
        let mut bytes = [0u8; 128];
        let length = self
            .file
            .read_at(&mut bytes, 0)
            .map_err(|source| OsError::read(&self.path, source))?;
        let text = String::from_utf8_lossy(&bytes[..length]);
        text.split_ascii_whitespace()
            .nth(4)
            .and_then(|field| field.parse().ok())
            .ok_or_else(|| OsError::content(&self.path, &text, "a load average with five fields"))
    }
}

/// The process of a thread, and the parent of that process; `None` if no thread has this id (no
/// longer, or not yet).
///
/// # Errors
/// The file cannot be read or parsed.
pub fn read_thread_owner(host: &HostRoot, tid: Tid) -> Result<Option<ThreadOwner>, OsError> {
    let path = host.proc.join(format!("{}/status", tid.0));
    let text = match read_text(&path) {
        Ok(text) => text,
        Err(e) if e.is_gone() => return Ok(None),
        Err(e) => return Err(e),
    };
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let number = line.and_then(|number| number.trim().parse().ok());
        number.ok_or_else(|| OsError::content(&path, &text, "a status with Tgid and PPid"))
    };
    Ok(Some(ThreadOwner {
        parent: Pid(field("PPid:")?),
        process: Pid(field("Tgid:")?),
    }))
}

/// The process of a thread, and its parent process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ThreadOwner {
    /// Parent of the process.
    pub parent: Pid,
    pub process: Pid,
}

/// Open directory `/proc/PID/task`, whose link count is used to count threads without listing them.
#[derive(Debug)]
pub struct TaskDirectory {
    file: File,
}

impl AsFd for TaskDirectory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl TaskDirectory {
    /// Opens the directory of a process.
    ///
    /// # Errors
    /// The process has exited, or there are no file descriptors left.
    pub fn open(host: &HostRoot, pid: Pid) -> Result<Self, OsError> {
        let path = process(host, pid).join("task");
        let file = File::open(&path).map_err(|source| OsError::read(&path, source))?;
        Ok(Self { file })
    }

    /// Current number of threads of the process; 0 after it has exited.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn thread_count(&self) -> io::Result<u64> {
        // Two links are the directory entry itself and its `.`.
        match self.file.metadata() {
            Ok(metadata) => Ok(metadata.nlink().saturating_sub(2)),
            Err(e) if matches!(e.raw_os_error(), Some(nix::libc::ENOENT | nix::libc::ESRCH)) => {
                Ok(0)
            }
            Err(e) => Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_read_from_the_live_kernel() {
        let host = HostRoot::live();
        let pid = Pid(std::process::id() as i32);
        let stat = read_stat(&host, pid).unwrap();
        assert_eq!(stat.id, pid.0);
        assert!(!stat.is_dead() && stat.start_ticks > 0);
        assert!(!read_cmdline(&host, pid).unwrap().is_empty());
        let last = LastPid::open(&host).unwrap();
        let before = last.read().unwrap();
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let directory = TaskDirectory::open(&host, pid).unwrap();
        let thread = std::thread::Builder::new()
            .name("albw7.3".into())
            .spawn(move || {
                let _ = stopped.recv();
            })
            .unwrap();
        assert_ne!(last.read().unwrap(), before, "a spawn moves the last pid");
        let tasks = read_tasks(&host, pid).unwrap();
        assert!(tasks.contains(&Tid(pid.0)) && directory.thread_count().unwrap() >= 2);
        // The new thread sets its name itself, shortly after it is created.
        let named = || {
            tasks
                .iter()
                .any(|&t| read_task_comm(&host, pid, t).is_ok_and(|c| c == "albw7.3"))
        };
        while !named() {
            std::thread::yield_now();
        }
        drop(stop);
        thread.join().unwrap();
    }

    #[test]
    fn a_child_is_found_through_both_ways_of_asking() {
        let host = HostRoot::live();
        let me = Pid(std::process::id() as i32);
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let pid = Pid(child.id() as i32);
        assert!(read_children(&host, me).unwrap().contains(&pid));
        assert!(children_by_parent(&host, me).unwrap().contains(&pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!read_children(&host, me).unwrap().contains(&pid));
        assert!(read_stat(&host, pid).unwrap_err().is_gone());
    }
}
