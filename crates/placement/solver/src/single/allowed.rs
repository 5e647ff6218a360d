//! Limits of a search on cores and full cpus: the rules, relaxed as far as the volumes could not
//! keep them.

use crate::single::domains::{CORE, Domains};
use crate::single::volumes::Volumes;

/// Right-hand sides of the rules after the relaxations that the volumes could not avoid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Allowed {
    /// Fewest and most threads of a core.
    pub(crate) core_volume: (u32, u32),
    /// Most mains on a core.
    pub(crate) core_mains: u32,
    /// Most cpus with ceil(WT/C) threads and a main.
    pub(crate) full_main_cpus: u32,
    /// Most cores with ceil(WT/P) threads and a main.
    pub(crate) full_main_cores: u32,
}

impl Allowed {
    /// The rules as stated, without any relaxation.
    pub(crate) fn strict(domains: &Domains) -> Self {
        Self {
            core_volume: domains.rules.core_volume,
            core_mains: domains.rules.core_mains,
            full_main_cpus: domains.rules.full_main_cpus.unwrap_or(u32::MAX),
            full_main_cores: domains.rules.full_main_cores.unwrap_or(u32::MAX),
        }
    }

    /// The rules, relaxed as far as `volumes` breaks them.
    pub(crate) fn by(domains: &Domains, volumes: &Volumes) -> Self {
        let mut allowed = Self::strict(domains);
        let (mut full, mut full_cores) = (0, 0);
        for core in 0..domains.count(CORE) {
            let members = domains.members(CORE, core);
            let threads: u32 = volumes.threads[members.clone()].iter().sum();
            let mains: u32 = volumes.mains[members.clone()].iter().sum();
            allowed.core_volume.0 = allowed.core_volume.0.min(threads);
            allowed.core_volume.1 = allowed.core_volume.1.max(threads);
            allowed.core_mains = allowed.core_mains.max(mains);
            full_cores += u32::from(threads >= domains.rules.core_volume.1 && mains > 0);
            for cpu in members {
                let at_top = volumes.threads[cpu] >= domains.rules.cpu_volume.1;
                full += u32::from(at_top && volumes.mains[cpu] > 0);
            }
        }
        // One amount is admitted for both sides, so both may use it, and a proof covers all of
        // that.
        let (lower, upper) = domains.rules.core_volume;
        let off = allowed.volume_off(domains);
        allowed.core_volume = (lower.saturating_sub(off), upper + off);
        allowed.full_main_cpus = allowed.full_main_cpus.max(full);
        allowed.full_main_cores = allowed.full_main_cores.max(full_cores);
        allowed
    }

    /// Amount by which (8+) is relaxed, on the side where it is more.
    fn volume_off(&self, domains: &Domains) -> u32 {
        let (lower, upper) = domains.rules.core_volume;
        let above = self.core_volume.1.saturating_sub(upper);
        above.max(lower.saturating_sub(self.core_volume.0))
    }

    /// Amount by which each rule is relaxed.
    pub(crate) fn amounts(&self, domains: &Domains) -> [(&'static str, u32); 4] {
        let beyond = |allowed: u32, rule: Option<u32>| rule.map_or(0, |rule| allowed - rule);
        [
            ("8+", self.volume_off(domains)),
            ("mains-per-core", self.core_mains - domains.rules.core_mains),
            (
                "12",
                beyond(self.full_main_cpus, domains.rules.full_main_cpus),
            ),
            (
                "12+",
                beyond(self.full_main_cores, domains.rules.full_main_cores),
            ),
        ]
    }
}
