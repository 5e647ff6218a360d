//! `albacore-agent restore`: sets the masks of this node's pods to all CPUs of their containers,
//! regardless of which process pinned them.
//!
//! For nodes without a running agent: after `kill -9`, or before a permanent removal.

use std::collections::BTreeSet;

use albacore_api::counted;
use albacore_os::{
    Container as ContainerCgroup, HostRoot, Kubepods, KubepodsError, MaskError, Tid, read_mask,
    read_members, read_tasks, write_mask,
};
use albacore_topology::CpuSet;

use crate::args::Common;
use crate::connect::list_desired_pods;
use crate::desired::is_off_limits;
use crate::limits::{RESTORE_ERRORS_SHOWN_MAX, RESTORE_PASSES_MAX};
use crate::opted_in_pod::PlacedContainer;

#[derive(Debug, Default)]
struct Restoration {
    threads: BTreeSet<i32>,
    written: BTreeSet<i32>,
    errors: BTreeSet<String>,
}

/// Gives back all masks and prints their number.
pub(crate) async fn run(common: &Common, node: &str) -> anyhow::Result<()> {
    let host = common.host();
    let proc = common.proc.display();
    anyhow::ensure!(host.is_live(), "masks cannot be written through {proc}");
    let desired = list_desired_pods(common, node).await?;
    let mut restoration = Restoration::default();
    // New threads inherit their parents' masks concurrently: repeat until a pass writes nothing.
    for _ in 0..RESTORE_PASSES_MAX {
        let before = restoration.written.len();
        for desired in desired
            .iter()
            .filter(|desired| is_off_limits(&desired.pod).is_none())
        {
            if let PlacedContainer::Running { id, .. } = &desired.pod.container {
                restoration.restore_container(&host, &desired.pod.uid, id);
            }
        }
        if restoration.written.len() == before {
            break;
        }
    }
    println!(
        "{} of {} threads of this node's pods were given all cpus of their containers",
        restoration.written.len(),
        restoration.threads.len()
    );
    let errors: Vec<&str> = restoration.errors.iter().map(String::as_str).collect();
    anyhow::ensure!(
        errors.is_empty(),
        "not restored: {}; {}",
        counted(errors.len(), "mask"),
        errors[..errors.len().min(RESTORE_ERRORS_SHOWN_MAX)].join("; ")
    );
    Ok(())
}

impl Restoration {
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
            // The container has exited.
            Err(KubepodsError::NotFound { .. }) => {}
            Err(error) => {
                self.errors.insert(error.to_string());
            }
        }
    }

    fn restore_members(
        &mut self,
        host: &HostRoot,
        container: &ContainerCgroup,
    ) -> Result<(), albacore_os::OsError> {
        let cpuset = container.cgroup.read_effective_cpuset(host)?.cpus;
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
