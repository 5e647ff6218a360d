//! What a container's cgroups say beside its cpuset: whether it shares its cpus, and whether its
//! quota holds it back.

use std::collections::BTreeMap;

use albacore_api::Isolation;
use albacore_os::{Cgroup, CpuQuota, HostRoot, Kubepods, Neighbors, read_cpu_quota};

use crate::facts::Strain;

/// Strains of all pods, and what their quotas had counted at the look before; by uid.
#[derive(Debug, Default)]
pub(crate) struct Strains {
    strains: BTreeMap<String, Strain>,
    quotas: BTreeMap<String, CpuQuota>,
}

impl Strains {
    /// What was read last of a pod.
    pub(crate) fn of(&self, uid: &str) -> Strain {
        self.strains.get(uid).copied().unwrap_or_default()
    }

    /// Reads all of them anew. What cannot be read is taken for the weaker claim.
    pub(crate) fn read<'a>(
        &mut self,
        host: &HostRoot,
        pods: impl Iterator<Item = (&'a String, &'a Cgroup)>,
    ) {
        let neighbors = Kubepods::find(host)
            .ok()
            .and_then(|kubepods| Neighbors::read(host, &kubepods).ok());
        let before = std::mem::take(&mut self.quotas);
        self.strains.clear();
        for (uid, cgroup) in pods {
            let isolation = neighbors
                .as_ref()
                .and_then(|neighbors| neighbors.isolation(&cgroup.directory));
            let quota = read_cpu_quota(host, cgroup).unwrap_or_default();
            let strain = Strain {
                isolation: isolation.map_or(Isolation::None, level),
                quota: quota
                    .millicpus
                    .map(|millicpus| f64::from(millicpus) / 1000.0),
                throttled: before.get(uid).map_or(0.0, |before| share(before, &quota)),
            };
            self.strains.insert(uid.clone(), strain);
            self.quotas.insert(uid.clone(), quota);
        }
    }
}

fn level(found: albacore_os::Isolation) -> Isolation {
    match found {
        albacore_os::Isolation::Exclusive => Isolation::Exclusive,
        albacore_os::Isolation::SharedPool => Isolation::SharedPool,
        albacore_os::Isolation::None => Isolation::None,
    }
}

/// Share of the periods between two looks in which all threads were stopped.
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
    fn only_periods_since_the_last_look_count() {
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
            "a cgroup of a new life"
        );
    }
}
