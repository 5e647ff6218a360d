//! Prints the masks of a pod's workers, as one line of JSON after every change, until the end of
//! the input. Reads cgroup v2, where the processes of a pod are in a cgroup named after its uid.

use std::collections::BTreeMap;
use std::io::{Read as _, Result, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Polling period: far below a tenth of the time that a repair may take.
const PERIOD: Duration = Duration::from_millis(2);

/// The masks at a point in time.
#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct PodMasks {
    /// Milliseconds since the first sample.
    pub ms: u64,
    /// Effective cpuset of the container with the workers.
    pub cpuset: String,
    /// Per worker thread, by its name: its tid and its mask.
    pub masks: BTreeMap<String, (i32, String)>,
}

/// Prints the current state and one line for every change, until the end of the input.
///
/// # Errors
/// Standard output is closed.
pub fn watch(uid: &str) -> Result<()> {
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        over.store(true, Ordering::Release);
    });
    let start = Instant::now();
    let mut before = None;
    // bound: until the end of the input
    loop {
        let is_last = is_over.load(Ordering::Acquire);
        let ms = start.elapsed().as_millis() as u64;
        let seen = read_masks(uid);
        if before.as_ref() != Some(&seen) {
            let line = serde_json::to_string(&PodMasks { ms, ..seen.clone() })?;
            writeln!(std::io::stdout().lock(), "{line}")?;
            before = Some(seen);
        }
        if is_last {
            return Ok(());
        }
        std::thread::sleep(PERIOD);
    }
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

fn below(path: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|entry| entry.path())
}

fn read_masks(uid: &str) -> PodMasks {
    let mut seen = PodMasks::default();
    let mut open = vec![PathBuf::from("/sys/fs/cgroup/kubepods")];
    // bound: the cgroups of one node
    while let Some(directory) = open.pop() {
        open.extend(below(&directory).filter(|path| path.is_dir()));
        if directory.to_string_lossy().contains(uid) {
            add(&mut seen, &directory);
        }
    }
    seen
}

fn add(seen: &mut PodMasks, directory: &Path) {
    for pid in text(&directory.join("cgroup.procs")).lines() {
        for task in below(&Path::new("/proc").join(pid).join("task")) {
            let status = text(&task.join("status"));
            let value = |name: &str| {
                let found = status.lines().find_map(|line| line.strip_prefix(name));
                found.unwrap_or_default().trim().to_owned()
            };
            // Workers name their threads with this prefix.
            if value("Name:").starts_with("albw") {
                let tid = value("Pid:").parse().unwrap_or_default();
                let mask = (tid, value("Cpus_allowed_list:"));
                seen.masks.insert(value("Name:"), mask);
                seen.cpuset = text(&directory.join("cpuset.cpus.effective"))
                    .trim()
                    .to_owned();
            }
        }
    }
}
