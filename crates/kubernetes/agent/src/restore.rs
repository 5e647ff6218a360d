//! `albacore-agent restore`: gives the threads of this node's pods all cpus of their containers,
//! whoever pinned them.
//!
//! For the day when no agent runs that could do it: after `kill -9`, or before it is removed for
//! good.

use std::collections::BTreeSet;

use albacore_api::counted;
use albacore_os::{
    Container as Cgroups, HostRoot, Kubepods, KubepodsError, MaskError, Tid, read_mask,
    read_members, read_tasks, write_mask,
};
use albacore_topology::CpuSet;

use crate::args::Common;
use crate::limits::{RESTORE_LOOKS_MAX, RESTORE_TOLD_MAX};
use crate::pods::Container;
use crate::wish::is_off_limits;

#[derive(Debug, Default)]
struct Work {
    threads: BTreeSet<i32>,
    written: BTreeSet<i32>,
    errors: BTreeSet<String>,
}

/// Gives back and says how much.
pub(crate) async fn run(common: &Common, node: &str) -> anyhow::Result<()> {
    let host = common.host();
    let proc = common.proc.display();
    anyhow::ensure!(host.is_live(), "masks cannot be written through {proc}");
    let wishes = crate::dump::wishes(common, node).await?;
    let mut work = Work::default();
    // Threads may be born with their parents' masks meanwhile: until a look finds nothing to do.
    for _ in 0..RESTORE_LOOKS_MAX {
        let before = work.written.len();
        for wish in wishes
            .iter()
            .filter(|wish| is_off_limits(&wish.pod).is_none())
        {
            if let Container::Running(id) = &wish.pod.container {
                work.restore_container(&host, &wish.pod.uid, id);
            }
        }
        if work.written.len() == before {
            break;
        }
    }
    println!(
        "{} of {} threads of this node's pods were given all cpus of their containers",
        work.written.len(),
        work.threads.len()
    );
    let errors: Vec<&str> = work.errors.iter().map(String::as_str).collect();
    anyhow::ensure!(
        errors.is_empty(),
        "not given back: {}; {}",
        counted(errors.len(), "mask"),
        errors[..errors.len().min(RESTORE_TOLD_MAX)].join("; ")
    );
    Ok(())
}

impl Work {
    fn restore_container(&mut self, host: &HostRoot, uid: &str, id: &str) {
        let found = Kubepods::find(host).and_then(|kubepods| kubepods.container(uid, id));
        match found {
            Ok(container) => {
                if let Err(error) = self.restore_members(host, &container)
                    && !error.is_gone()
                {
                    self.errors.insert(error.to_string());
                }
            }
            // It has ended: there is nothing to give back.
            Err(KubepodsError::NotFound { .. }) => {}
            Err(error) => {
                self.errors.insert(error.to_string());
            }
        }
    }

    fn restore_members(
        &mut self,
        host: &HostRoot,
        container: &Cgroups,
    ) -> Result<(), albacore_os::OsError> {
        let cpuset = container.cgroup.read_effective(host)?.cpus;
        if cpuset.is_empty() {
            return Ok(());
        }
        for pid in read_members(host, container)?.processes {
            for tid in read_tasks(host, pid).unwrap_or_default() {
                self.restore_thread(host, tid, &cpuset);
            }
        }
        Ok(())
    }

    fn restore_thread(&mut self, host: &HostRoot, tid: Tid, cpuset: &CpuSet) {
        let done = read_mask(host, tid).and_then(|mask| {
            if mask == *cpuset {
                return Ok(false);
            }
            write_mask(tid, cpuset)?;
            Ok(read_mask(host, tid)? == *cpuset)
        });
        match done {
            Ok(is_written) => {
                self.threads.insert(tid.0);
                if is_written {
                    self.written.insert(tid.0);
                }
            }
            Err(MaskError::Gone { .. }) => {}
            Err(error) => {
                self.errors.insert(format!("thread {}: {error}", tid.0));
            }
        }
    }
}
