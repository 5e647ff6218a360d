//! CPU quota, throttling and isolation of containers, from their cgroups.

use std::collections::BTreeMap;
use std::time::Instant;

use albacore_api::Isolation;
use albacore_os::{Cgroup, CpuQuota, HostRoot, Kubepods, Neighbors, read_cpu_quota};

use crate::facts::Throttling;
use crate::limits::THROTTLING_PERIOD;

/// Last values read for each pod, by uid.
#[derive(Debug, Default)]
pub(crate) struct ThrottlingMonitor {
    throttling: BTreeMap<String, Throttling>,
    /// Counters at the last read; throttling is reported for the interval since then.
    quotas: BTreeMap<String, CpuQuota>,
    read_at: Option<Instant>,
}

impl ThrottlingMonitor {
    /// The last values read for a pod.
    pub(crate) fn of(&self, uid: &str) -> Throttling {
        self.throttling.get(uid).copied().unwrap_or_default()
    }

    /// Reads all pods again once per [`THROTTLING_PERIOD`]; returns true if it did.
    pub(crate) fn refresh<'a>(
        &mut self,
        host: &HostRoot,
        pods: impl Iterator<Item = (&'a String, &'a Cgroup)>,
        now: Instant,
    ) -> bool {
        let is_recent = |at: Instant| now.duration_since(at) < THROTTLING_PERIOD;
        if self.read_at.is_some_and(is_recent) {
            return false;
        }
        self.read_at = Some(now);
        self.read(host, pods);
        true
    }

    /// An unreadable cgroup is treated as not isolated and without a quota.
    fn read<'a>(&mut self, host: &HostRoot, pods: impl Iterator<Item = (&'a String, &'a Cgroup)>) {
        let neighbors = Kubepods::find(host)
            .ok()
            .and_then(|kubepods| Neighbors::read(host, &kubepods).ok());
        let before = std::mem::take(&mut self.quotas);
        self.throttling.clear();
        for (uid, cgroup) in pods {
            let isolation = neighbors
                .as_ref()
                .and_then(|neighbors| neighbors.isolation(&cgroup.directory));
            let quota = read_cpu_quota(host, cgroup).unwrap_or_default();
            let throttling = Throttling {
                isolation: isolation.map_or(Isolation::None, api_isolation),
                quota: quota
                    .millicpus
                    .map(|millicpus| f64::from(millicpus) / 1000.0),
                throttled: before.get(uid).map_or(0.0, |before| share(before, &quota)),
            };
            self.throttling.insert(uid.clone(), throttling);
            self.quotas.insert(uid.clone(), quota);
        }
    }
}

fn api_isolation(found: albacore_os::CpuIsolation) -> Isolation {
    match found {
        albacore_os::CpuIsolation::Exclusive => Isolation::Exclusive,
        albacore_os::CpuIsolation::SharedPool => Isolation::SharedPool,
        albacore_os::CpuIsolation::None => Isolation::None,
    }
}

/// Share of the CFS periods between two reads in which all threads were throttled.
fn share(before: &CpuQuota, after: &CpuQuota) -> f64 {
    let periods = after.periods.saturating_sub(before.periods);
    let throttled = after
        .throttled_periods
        .saturating_sub(before.throttled_periods);
    match periods {
        0 => 0.0,
        _ => throttled as f64 / periods as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_periods_since_the_last_read_count() {
        let quota = |periods, throttled_periods| CpuQuota {
            periods,
            throttled_periods,
            ..CpuQuota::default()
        };
        assert_eq!(share(&quota(100, 50), &quota(200, 50)), 0.0);
        assert_eq!(share(&quota(100, 50), &quota(200, 75)), 0.25);
        assert_eq!(share(&quota(100, 50), &quota(100, 50)), 0.0);
        assert_eq!(
            share(&quota(100, 50), &quota(3, 1)),
            0.0,
            "a cgroup that was created again"
        );
    }
}
