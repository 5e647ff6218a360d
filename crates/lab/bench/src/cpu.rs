//! CPU time of processes and of their descendants, from the kernel's accounting.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

use crate::error::BenchError;

/// Ticks per second in `/proc/PID/stat`: 100 on every architecture.
const TICKS_PER_SECOND: f64 = 100.0;

/// Parses `/proc/PID/stat`: the parent, and ticks of the process and of its reaped children.
fn parse_stat(text: &str) -> Option<(u32, u64)> {
    // The name may contain anything, also parentheses and spaces.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    let ticks = [11, 12, 13, 14]
        .map(number)
        .into_iter()
        .sum::<Option<u64>>()?;
    Some((u32::try_from(number(1)?).ok()?, ticks))
}

/// CPU time of `pids` and of all their descendants so far. A descendant that has exited is counted
/// once its parent has waited for it.
///
/// # Errors
/// A process does not exist.
pub fn cpu_time(pids: &[u32]) -> Result<Duration, BenchError> {
    let mut all = BTreeMap::new();
    let folder = fs::read_dir("/proc").map_err(|e| BenchError::Failed(format!("/proc: {e}")))?;
    for entry in folder.flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.parse::<u32>().ok());
        let Some(pid) = pid else { continue };
        // A process that has exited meanwhile is not an error.
        let text = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        if let Some(found) = parse_stat(&text) {
            all.insert(pid, found);
        }
    }
    if let Some(pid) = pids.iter().find(|pid| !all.contains_key(pid)) {
        return Err(BenchError::Failed(format!("--pid {pid}: no such process")));
    }
    let mut counted: BTreeSet<u32> = pids.iter().copied().collect();
    // bound: each pass but the last finds another process
    loop {
        let below = all
            .iter()
            .filter(|(_, (parent, _))| counted.contains(parent));
        let more: Vec<u32> = below.map(|(&pid, _)| pid).collect();
        let before = counted.len();
        counted.extend(more);
        if counted.len() == before {
            break;
        }
    }
    let ticks = counted
        .iter()
        .filter_map(|pid| all.get(pid))
        .map(|(_, ticks)| ticks);
    Ok(Duration::from_secs_f64(
        ticks.sum::<u64>() as f64 / TICKS_PER_SECOND,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_names_may_contain_parentheses() {
        let text = "7 (a) R (b) S 3 7 7 0 -1 0 0 0 0 0 10 5 2 1 20 0 1 0 9\n";
        assert_eq!(parse_stat(text), Some((3, 18)));
        assert_eq!(parse_stat("7 (a) S"), None);
    }

    #[test]
    fn cpu_time_of_this_process_grows_and_missing_processes_are_named() {
        let me = std::process::id();
        let before = cpu_time(&[me]).unwrap();
        let start = std::time::Instant::now();
        while cpu_time(&[me]).unwrap() <= before {
            assert!(start.elapsed() < Duration::from_secs(60));
        }
        assert!(
            cpu_time(&[u32::MAX])
                .unwrap_err()
                .to_string()
                .contains("--pid")
        );
    }
}
