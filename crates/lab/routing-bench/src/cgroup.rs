//! Cgroups with a CPU quota, v1 or v2.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use albacore_os::{Pid, PidFd};

use crate::error::RoutingError;

/// Smallest quota that the kernel accepts. With a longer period a batch would be computed either at
/// full speed or with a stall many times its length, which no linear model fits.
const QUOTA_MICROS: f64 = 1000.0;

/// Timeout for the exit of killed processes.
const KILL_PATIENCE: Duration = Duration::from_secs(10);

/// A cgroup for the processes of one pod, which are killed on drop.
#[derive(Debug)]
pub struct CpuCgroup {
    directory: PathBuf,
}

impl CpuCgroup {
    /// Creates the cgroup `name` with a quota of `share` cpus; `None` for no limit.
    ///
    /// # Errors
    /// The caller is not root, or there is no cpu controller.
    pub fn make(name: &str, share: Option<f64>) -> Result<Self, RoutingError> {
        let mounts = Path::new("/proc/self/mounts");
        let text = std::fs::read_to_string(mounts).map_err(RoutingError::file(mounts))?;
        let Some((root, is_v1)) = cpu_hierarchy(&text) else {
            let what = "no cgroup hierarchy with the cpu controller is mounted: mount one";
            return Err(RoutingError::Failed(what.to_owned()));
        };
        if !is_v1 {
            let file = root.join("cgroup.subtree_control");
            std::fs::write(&file, "+cpu").map_err(RoutingError::file(&file))?;
        }
        let directory = root.join(name);
        std::fs::create_dir(&directory).map_err(RoutingError::file(&directory))?;
        let cgroup = Self { directory };
        if let Some(share) = share {
            let period = (QUOTA_MICROS / share).round();
            let files = match is_v1 {
                true => vec![
                    ("cpu.cfs_period_us", period.to_string()),
                    ("cpu.cfs_quota_us", QUOTA_MICROS.to_string()),
                ],
                false => vec![("cpu.max", format!("{QUOTA_MICROS} {period}"))],
            };
            for (file, text) in files {
                let file = cgroup.directory.join(file);
                std::fs::write(&file, text).map_err(RoutingError::file(&file))?;
            }
        }
        Ok(cgroup)
    }

    /// A command that runs `program` in the cgroup.
    #[must_use]
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("sh");
        let procs = self.directory.join("cgroup.procs");
        command
            .args(["-c", "echo $$ >\"$0\" && exec \"$@\""])
            .arg(procs)
            .arg(program);
        command
    }

    /// Kills all processes in the cgroup, and waits until they have exited.
    ///
    /// # Errors
    /// They do not exit.
    pub fn kill_all(&self) -> Result<(), RoutingError> {
        let file = self.directory.join("cgroup.procs");
        let start = Instant::now();
        // bound: KILL_PATIENCE
        while start.elapsed() < KILL_PATIENCE {
            let text = std::fs::read_to_string(&file).map_err(RoutingError::file(&file))?;
            if text.is_empty() {
                return Ok(());
            }
            for pid in text.lines().filter_map(|line| line.parse().ok()) {
                // It may have exited meanwhile.
                let _ = PidFd::open(Pid(pid)).and_then(|process| process.kill());
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        let what = "processes that were killed do not end";
        Err(RoutingError::Failed(format!("{}: {what}", file.display())))
    }
}

impl Drop for CpuCgroup {
    fn drop(&mut self) {
        // Errors are ignored: a cgroup that remains is harmless, because the next one has another
        // name.
        let _ = self.kill_all();
        let start = Instant::now();
        // The kernel removes a process from its cgroup shortly after its exit.
        while std::fs::remove_dir(&self.directory).is_err() && start.elapsed() < KILL_PATIENCE {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Mount point of the hierarchy with the cpu controller, and whether it is v1.
fn cpu_hierarchy(mounts: &str) -> Option<(PathBuf, bool)> {
    let mut unified = None;
    for line in mounts.lines() {
        let mut words = line.split(' ').skip(1);
        let (Some(target), Some(kind), Some(options)) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        if kind == "cgroup" && options.split(',').any(|option| option == "cpu") {
            return Some((target.into(), true));
        }
        if kind == "cgroup2" {
            unified = Some((target.into(), false));
        }
    }
    unified
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_controller_of_v1_is_preferred_to_the_unified_hierarchy() {
        let unified = "cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0\n";
        let cpu = "cgroup /sys/fs/cgroup/cpu cgroup rw,relatime,cpu 0 0\n";
        let other = "cgroup /sys/fs/cgroup/cpuset cgroup rw,relatime,cpuset 0 0\n";
        let found = cpu_hierarchy(&[unified, other, cpu].concat());
        assert_eq!(found, Some(("/sys/fs/cgroup/cpu".into(), true)));
        let found = cpu_hierarchy(&[unified, other].concat());
        assert_eq!(found, Some(("/sys/fs/cgroup/unified".into(), false)));
        assert_eq!(cpu_hierarchy(other), None);
    }
}
