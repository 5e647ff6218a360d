//! The `process_*` metrics of Prometheus client libraries, read from `/proc/self` at each scrape. A
//! metric that cannot be read has no sample.

use std::fmt::Write as _;
use std::fs;

/// Clock ticks per second in `/proc` (USER_HZ): 100 on every architecture that Linux supports
/// today, independent of the kernel's CONFIG_HZ.
const TICKS_PER_SECOND: f64 = 100.0;

/// Indexes of fields in `/proc/self/stat` after the command name, from 0.
const USER_TICKS: usize = 11;
const SYSTEM_TICKS: usize = 12;
const START_TICKS: usize = 19;

/// Appends the metric families as OpenMetrics text.
pub(crate) fn print(text: &mut String) {
    let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
    let (stat, status) = (read("/proc/self/stat"), read("/proc/self/status"));
    let families = [
        (
            "process_cpu_seconds",
            "Time on cpus, of user and kernel",
            "counter",
            cpu_seconds(&stat),
        ),
        (
            "process_resident_memory_bytes",
            "Memory in RAM",
            "gauge",
            kibibytes(&status, "VmRSS:"),
        ),
        (
            "process_virtual_memory_bytes",
            "Memory that is mapped",
            "gauge",
            kibibytes(&status, "VmSize:"),
        ),
        (
            "process_open_fds",
            "Open file descriptors",
            "gauge",
            open_files(),
        ),
        (
            "process_max_fds",
            "File descriptors that may be open",
            "gauge",
            files_max(&read("/proc/self/limits")),
        ),
        (
            "process_start_time_seconds",
            "When the process started, seconds since 1970",
            "gauge",
            start_seconds(&stat, &read("/proc/stat")),
        ),
    ];
    for (name, help, kind, value) in families {
        let Some(value) = value else { continue };
        let total = if kind == "counter" { "_total" } else { "" };
        // infallible: a write to a `String`.
        let _ = write!(
            text,
            "# HELP {name} {help}.\n# TYPE {name} {kind}\n{name}{total} {value}\n"
        );
    }
}

/// A field after the command name, which may contain spaces and parentheses.
fn field(stat: &str, index: usize) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(index)?.parse().ok()
}

fn cpu_seconds(stat: &str) -> Option<f64> {
    Some((field(stat, USER_TICKS)? + field(stat, SYSTEM_TICKS)?) / TICKS_PER_SECOND)
}

fn start_seconds(stat: &str, system: &str) -> Option<f64> {
    let boot = system.lines().find_map(|line| line.strip_prefix("btime "));
    let boot: f64 = boot?.trim().parse().ok()?;
    Some(boot + field(stat, START_TICKS)? / TICKS_PER_SECOND)
}

fn kibibytes(status: &str, name: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let number: f64 = line?.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(number * 1024.0)
}

fn open_files() -> Option<f64> {
    let entries = fs::read_dir("/proc/self/fd").ok()?.count();
    Some(entries.saturating_sub(1) as f64) // minus the descriptor of the directory itself
}

fn files_max(limits: &str) -> Option<f64> {
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"));
    match line?.split_whitespace().next()? {
        "unlimited" => Some(f64::INFINITY),
        number => number.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_behind_any_name() {
        let stat = "7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 250 150 0 0 20 0 1 0 1000 5 6";
        assert_eq!(cpu_seconds(stat), Some(4.0));
        assert_eq!(start_seconds(stat, "cpu 1\nbtime 100\n"), Some(110.0));
        assert_eq!(
            kibibytes("VmSize:\t 8 kB\nVmRSS:\t 2 kB\n", "VmRSS:"),
            Some(2048.0)
        );
        let limits = "Limit   Soft Limit Hard Limit Units\nMax open files  1024  4096  files\n";
        assert_eq!(files_max(limits), Some(1024.0));
        assert_eq!(cpu_seconds(""), None);
    }

    #[test]
    fn this_process_has_every_family() {
        let mut text = String::new();
        print(&mut text);
        assert_eq!(text.matches("# HELP process_").count(), 6, "{text}");
    }
}
