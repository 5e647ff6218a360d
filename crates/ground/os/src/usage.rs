//! CPU time of processes and threads, used to measure the effect of placement and to determine
//! whether a thread without progress was running.

use std::io;
use std::path::Path;

use crate::read::{read_optional_text, read_text};
use crate::{HostRoot, Micros, OsError, Pid, Tid, read_task_stat, read_tasks};

/// Total usage of the live threads of a process. Threads that have exited are not included, so only
/// differences over intervals in which no thread exited are meaningful.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ProcessUsage {
    /// Time running on a cpu, in microseconds.
    pub running_micros: u64,
    /// Time waiting in a run queue, in microseconds.
    pub waiting_micros: u64,
    /// Number of migrations of threads between cpus. `None` if the kernel does not count them (no
    /// CONFIG_SCHED_DEBUG).
    pub migrations: Option<u64>,
    /// Number of threads included.
    pub threads: usize,
}

/// Sums the usage of the live threads of a process.
///
/// # Errors
/// The process has exited, or the kernel does not provide these statistics.
pub fn read_usage(host: &HostRoot, pid: Pid) -> Result<ProcessUsage, OsError> {
    let mut usage = ProcessUsage {
        migrations: Some(0),
        ..ProcessUsage::default()
    };
    for tid in read_tasks(host, pid)? {
        let directory = host.proc.join(format!("{}/task/{}", pid.0, tid.0));
        let path = directory.join("schedstat");
        let (running, waiting) = match read_schedstat(&path) {
            Ok(times) => times,
            Err(e) if e.is_gone() && directory.exists() => return Err(e),
            Err(e) if e.is_gone() => continue,
            Err(e) => return Err(e),
        };
        usage.running_micros += running / 1_000;
        usage.waiting_micros += waiting / 1_000;
        usage.threads += 1;
        let moved = match read_optional_text(&directory.join("sched")) {
            Ok(text) => text.as_deref().and_then(migrations),
            Err(e) if e.is_gone() => Some(0),
            Err(e) => return Err(e),
        };
        usage.migrations = usage.migrations.zip(moved).map(|(sum, moved)| sum + moved);
    }
    Ok(usage)
}

/// Scheduler statistics of one thread.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ThreadTimes {
    pub tid: Tid,
    /// State letter of its `stat` file. `R`: running or runnable, including while throttled by a
    /// quota. `D`: uninterruptible sleep, e.g. on a page fault.
    pub state: u8,
    /// Time running on a cpu, in nanoseconds. Updated for a running thread at each tick of its cpu.
    pub running_nanos: u64,
    /// Time waiting in a run queue, in nanoseconds. A wait is added when it ends.
    pub waiting_nanos: u64,
}

/// Scheduler statistics of each live thread of a process, sorted by tid.
///
/// # Errors
/// The process has exited, or the kernel does not measure these times (no CONFIG_SCHED_INFO).
pub fn read_thread_times(host: &HostRoot, pid: Pid) -> Result<Vec<ThreadTimes>, OsError> {
    let mut threads = Vec::new();
    let directory = host.proc.join(format!("{}/task", pid.0));
    for tid in read_tasks(host, pid)? {
        let state = match read_task_stat(host, pid, tid) {
            Ok(stat) => stat.state,
            Err(e) if e.is_gone() => continue,
            Err(e) => return Err(e),
        };
        let path = directory.join(format!("{}/schedstat", tid.0));
        let (running_nanos, waiting_nanos) = match read_schedstat(&path) {
            Ok(times) => times,
            Err(e) if e.is_gone() && path.with_file_name("stat").exists() => {
                return Err(OsError::read(&path, io::ErrorKind::Unsupported.into()));
            }
            Err(e) if e.is_gone() => continue,
            Err(e) => return Err(e),
        };
        threads.push(ThreadTimes {
            tid,
            state,
            running_nanos,
            waiting_nanos,
        });
    }
    // A kernel with the statistics disabled reports zeros; every thread that was ever scheduled has
    // run for some time.
    if !threads.is_empty() && threads.iter().all(|thread| thread.running_nanos == 0) {
        let path = directory.join(format!("{}/schedstat", pid.0));
        return Err(OsError::content(&path, "0 0", "a time above zero"));
    }
    Ok(threads)
}

/// Time for which a thread was running or waiting in a run queue. `None` if the kernel does not
/// measure it: it has no CONFIG_SCHED_INFO, or reports zeros.
///
/// # Errors
/// The thread has exited, or the file is malformed.
pub fn read_task_demand(host: &HostRoot, pid: Pid, tid: Tid) -> Result<Option<Micros>, OsError> {
    let directory = host.proc.join(format!("{}/task/{}", pid.0, tid.0));
    let (running, waiting) = match read_schedstat(&directory.join("schedstat")) {
        Ok(times) => times,
        Err(e) if e.is_gone() && directory.join("stat").exists() => return Ok(None),
        Err(e) => return Err(e),
    };
    let demand = Micros((running + waiting) / 1_000);
    Ok((running > 0).then_some(demand))
}

/// Running and waiting time of a `schedstat` file, in nanoseconds.
fn read_schedstat(path: &Path) -> Result<(u64, u64), OsError> {
    let text = read_text(path)?;
    let mut fields = text.split_ascii_whitespace().map(str::parse::<u64>);
    match (fields.next(), fields.next()) {
        (Some(Ok(running)), Some(Ok(waiting))) => Ok((running, waiting)),
        _ => Err(OsError::content(path, &text, "two times in nanoseconds")),
    }
}

/// Parses the line `se.nr_migrations : 12`.
fn migrations(sched: &str) -> Option<u64> {
    let mut lines = sched.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = lines.find(|(key, _)| key.trim() == "se.nr_migrations")?;
    value.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_computes_uses_time_and_one_that_is_gone_is_an_error() {
        let host = HostRoot::live();
        let me = Pid(std::process::id() as i32);
        let before = read_usage(&host, me).unwrap();
        let mut sum = 0u64;
        // bound: until the kernel has accounted a millisecond
        while read_usage(&host, me).unwrap().running_micros < before.running_micros + 1_000 {
            sum = (0..100_000u64).fold(sum, |a, b| a.wrapping_mul(31).wrapping_add(b));
        }
        assert!(sum != 1 && before.threads >= 1);
        assert!(read_usage(&host, Pid(i32::MAX)).unwrap_err().is_gone());
    }

    #[test]
    fn a_computing_and_a_waiting_thread_differ_in_state() {
        let host = HostRoot::live();
        let me = Pid(std::process::id() as i32);
        let mut child = std::process::Command::new("sleep")
            .arg("600")
            .spawn()
            .unwrap();
        let pid = Pid(child.id() as i32);
        // bound: until it sleeps in nanosleep
        while !read_thread_times(&host, pid)
            .is_ok_and(|threads| threads.len() == 1 && threads[0].state == b'S')
        {
            std::thread::yield_now();
        }
        let before = read_thread_times(&host, pid).unwrap();
        assert!(before[0].running_nanos > 0 && before[0].tid == Tid(pid.0));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(read_thread_times(&host, pid).unwrap_err().is_gone());
        let own = read_thread_times(&host, me).unwrap();
        assert!(own.iter().any(|thread| thread.state == b'R'), "{own:?}");
        assert!(own.is_sorted_by_key(|thread| thread.tid));
    }

    #[test]
    fn a_kernel_that_counts_no_times_differs_from_a_thread_that_is_gone() {
        let keep = tempfile::tempdir().unwrap();
        let host = HostRoot::recorded(keep.path());
        let task = host.proc.join("7/task/7");
        std::fs::create_dir_all(&task).unwrap();
        assert_eq!(read_thread_times(&host, Pid(7)).unwrap(), []);
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
        std::fs::write(task.join("stat"), stat).unwrap();
        let error = read_thread_times(&host, Pid(7)).unwrap_err();
        assert!(!error.is_gone() && error.to_string().contains("schedstat"));
        assert_eq!(read_task_demand(&host, Pid(7), Tid(7)).unwrap(), None);
        std::fs::write(task.join("schedstat"), "0 0 0\n").unwrap();
        assert_eq!(read_task_demand(&host, Pid(7), Tid(7)).unwrap(), None);
        let error = read_thread_times(&host, Pid(7)).unwrap_err();
        assert!(!error.is_gone() && error.to_string().contains("schedstat"));
        std::fs::write(task.join("schedstat"), "5 9 1\n").unwrap();
        let times = read_thread_times(&host, Pid(7)).unwrap()[0];
        assert_eq!((times.running_nanos, times.waiting_nanos), (5, 9));
    }

    #[test]
    fn migrations_are_read_where_the_kernel_counts_them() {
        let text = "sleep (7, #threads: 1)\n---\nse.exec_start  :  12.5\nse.nr_migrations   :   42\nnr_switches : 9\n";
        assert_eq!((migrations(text), migrations("x : 1\n")), (Some(42), None));
    }
}
