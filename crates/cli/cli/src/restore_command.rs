//! `albacore restore`: sets the masks of threads to all CPUs that their cgroup may use.
//!
//! For threads whose placer was killed: a placer restores masks on exit. A thread inherits its
//! mask, so threads with an old mask may appear during a pass over the processes: passes are
//! repeated until one finds nothing to restore.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use albacore_api::counted;
use albacore_os::{
    HostRoot, MaskError, Pid, Tid, find_cgroup, read_children, read_comm, read_mask, read_stat,
    read_tasks, write_mask,
};
use albacore_topology::CpuSet;

use crate::args::RestoreArgs;
use crate::limits::{RESTORE_ERRORS_SHOWN, RESTORE_PASSES_MAX, RESTORE_PROCESSES_MAX};
use albacore_command::print;
use albacore_command::{Failure, sentence};

/// Restores masks, or reports with `--dry-run` which ones it would restore.
pub(crate) fn run(args: &RestoreArgs) -> Result<(), Failure> {
    if let Some(node) = &args.node {
        return crate::restore_node::run(node, &args.cluster);
    }
    let host = HostRoot::live();
    for &pid in &args.pids {
        refuse_if_placed(&host, Pid(pid))?;
    }
    let mut restored = Restored::default();
    for _ in 0..RESTORE_PASSES_MAX {
        let before = restored.written.len();
        for &pid in &args.pids {
            restored.restore_tree(&host, Pid(pid), args.dry_run)?;
        }
        if restored.written.len() == before || args.dry_run {
            break;
        }
    }
    print(&restored.summary(args.dry_run))?;
    match restored.errors.is_empty() {
        true => Ok(()),
        false => Err(Failure::Failed(restored.error_summary())),
    }
}

#[derive(Default)]
struct Restored {
    processes: BTreeSet<i32>,
    threads: BTreeSet<i32>,
    written: BTreeSet<i32>,
    errors: BTreeSet<String>,
}

impl Restored {
    /// Restores `root` and all of its descendants.
    fn restore_tree(&mut self, host: &HostRoot, root: Pid, is_dry: bool) -> Result<(), Failure> {
        let gone = |e: &dyn std::error::Error| {
            Failure::Failed(format!("process {}: {}", root.0, sentence(e)))
        };
        read_stat(host, root).map_err(|e| gone(&e))?;
        let mut waiting = vec![root];
        let mut seen = 0;
        // bound: RESTORE_PROCESSES_MAX processes.
        while let Some(pid) = waiting.pop() {
            seen += 1;
            if seen > RESTORE_PROCESSES_MAX {
                return Err(Failure::Failed(format!(
                    "process {}: has more than {RESTORE_PROCESSES_MAX} descendants; give the \
                     processes to restore",
                    root.0
                )));
            }
            self.restore_process(host, pid, is_dry);
            // A process that has exited has no children.
            waiting.extend(read_children(host, pid).unwrap_or_default());
        }
        Ok(())
    }

    fn restore_process(&mut self, host: &HostRoot, pid: Pid, is_dry: bool) {
        let cpuset = find_cgroup(host, pid)
            .map_err(|e| sentence(&e))
            .and_then(|c| c.read_effective_cpuset(host).map_err(|e| sentence(&e)));
        let cpuset = match cpuset {
            Ok(effective) => effective.cpus,
            Err(_) if read_stat(host, pid).is_err() => return,
            Err(error) => {
                self.errors.insert(format!("process {}: {error}", pid.0));
                return;
            }
        };
        self.processes.insert(pid.0);
        for tid in read_tasks(host, pid).unwrap_or_default() {
            self.restore_thread(host, tid, &cpuset, is_dry);
        }
    }

    fn restore_thread(&mut self, host: &HostRoot, tid: Tid, cpuset: &CpuSet, is_dry: bool) {
        let result = read_mask(host, tid).and_then(|mask| match mask == *cpuset {
            true => Ok(false),
            false if is_dry => Ok(true),
            false => {
                write_mask(tid, cpuset)?;
                let mask = read_mask(host, tid)?;
                if mask != *cpuset {
                    self.errors.insert(format!(
                        "thread {}: its mask is {mask} after {cpuset} was written: another program \
                         sets it; stop that program",
                        tid.0
                    ));
                }
                Ok(mask == *cpuset)
            }
        });
        match result {
            Ok(is_written) => {
                self.threads.insert(tid.0);
                if is_written {
                    self.written.insert(tid.0);
                }
            }
            // The thread has exited.
            Err(MaskError::Gone { .. }) => {}
            Err(e) => {
                self.errors
                    .insert(format!("thread {}: {}", tid.0, sentence(&e)));
            }
        }
    }

    fn summary(&self, is_dry: bool) -> String {
        let verb = if is_dry { "would be" } else { "were" };
        format!(
            "{} of {} threads in {} processes {verb} given all cpus of their cgroup\n",
            self.written.len(),
            self.threads.len(),
            self.processes.len()
        )
    }

    fn error_summary(&self) -> String {
        let mut text = format!("not restored: {}", counted(self.errors.len(), "mask"));
        for error in self.errors.iter().take(RESTORE_ERRORS_SHOWN) {
            // infallible: writing to a String.
            let _ = write!(text, "; {error}");
        }
        text
    }
}

/// Rejects a process that is placed by a running `albacore run`, which would pin it again.
fn refuse_if_placed(host: &HostRoot, pid: Pid) -> Result<(), Failure> {
    let mut at = pid;
    // bound: the depth of the process tree
    for _ in 0..RESTORE_PROCESSES_MAX {
        let Ok(stat) = read_stat(host, at) else {
            return Ok(());
        };
        let comm = read_comm(host, at).unwrap_or_default();
        if comm == "albacore" || comm == "kubectl-albacore" {
            return Err(Failure::Failed(format!(
                "process {}: `albacore run` (process {}) places it and would pin it again; stop \
                 it, which restores every mask, or set spec.placement.policy: None in its file",
                pid.0, at.0
            )));
        }
        if stat.parent <= 1 {
            return Ok(());
        }
        at = Pid(stat.parent);
    }
    Ok(())
}
