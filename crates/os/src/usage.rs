//! What a process used of the cpus: compared over time it tells whether placement helps.

use crate::read::{read_text, read_text_if_present};
use crate::{HostRoot, OsError, Pid, read_tasks};

/// What the live threads of a process have used so far. What threads used that have ended is not in it, so only
/// differences over times without such are to be compared.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Usage {
    /// Time on a cpu, microseconds.
    pub running_micros: u64,
    /// Time ready to run and waiting for a cpu, microseconds.
    pub waiting_micros: u64,
    /// How often a thread was moved to another cpu. `None` where the kernel does not tell (no CONFIG_SCHED_DEBUG).
    pub migrations: Option<u64>,
    /// How many threads this is the sum of.
    pub threads: usize,
}

/// Sums up the live threads of a process.
///
/// # Errors
/// The process is gone, or the kernel keeps no such statistics.
pub fn read_usage(host: &HostRoot, pid: Pid) -> Result<Usage, OsError> {
    let mut usage = Usage {
        migrations: Some(0),
        ..Usage::default()
    };
    for tid in read_tasks(host, pid)? {
        let directory = host.proc.join(format!("{}/task/{}", pid.0, tid.0));
        let path = directory.join("schedstat");
        let text = match read_text(&path) {
            Ok(text) => text,
            Err(e) if e.is_gone() && directory.exists() => return Err(e),
            Err(e) if e.is_gone() => continue,
            Err(e) => return Err(e),
        };
        let mut fields = text.split_ascii_whitespace().map(str::parse::<u64>);
        let (Some(Ok(running)), Some(Ok(waiting))) = (fields.next(), fields.next()) else {
            return Err(OsError::content(&path, &text, "two times in nanoseconds"));
        };
        usage.running_micros += running / 1_000;
        usage.waiting_micros += waiting / 1_000;
        usage.threads += 1;
        let moved = match read_text_if_present(&directory.join("sched")) {
            Ok(text) => text.as_deref().and_then(migrations),
            Err(e) if e.is_gone() => Some(0),
            Err(e) => return Err(e),
        };
        usage.migrations = usage.migrations.zip(moved).map(|(sum, moved)| sum + moved);
    }
    Ok(usage)
}

/// The line `se.nr_migrations : 12`.
fn migrations(sched: &str) -> Option<u64> {
    let mut lines = sched.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = lines.find(|(key, _)| key.trim() == "se.nr_migrations")?;
    value.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_computes_uses_time_and_one_that_is_gone_is_told() {
        let host = HostRoot::live();
        let me = Pid(std::process::id() as i32);
        let before = read_usage(&host, me).unwrap();
        let mut sum = 0u64;
        // bound: until the kernel has noted a millisecond
        while read_usage(&host, me).unwrap().running_micros < before.running_micros + 1_000 {
            sum = (0..100_000u64).fold(sum, |a, b| a.wrapping_mul(31).wrapping_add(b));
        }
        assert!(sum != 1 && before.threads >= 1);
        assert!(read_usage(&host, Pid(i32::MAX)).unwrap_err().is_gone());
    }

    #[test]
    fn migrations_are_read_where_the_kernel_tells_them() {
        let text = "sleep (7, #threads: 1)\n---\nse.exec_start  :  12.5\nse.nr_migrations   :   42\nnr_switches : 9\n";
        assert_eq!((migrations(text), migrations("x : 1\n")), (Some(42), None));
    }
}
