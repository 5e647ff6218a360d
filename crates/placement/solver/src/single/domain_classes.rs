//! The domains of a level, grouped into classes of equal ones, with the value of k threads of one
//! worker in each.
//!
//! The bounds and the annealing on counts treat domains of one class alike, so their tables are
//! built once per class. A [`LevelGroup`] is a range of adjacent levels of the tree. In a domain of
//! its outer level, k threads of one worker have a value of at most `value[k]`: the gains of all
//! levels of the group, as if the worker were alone in the domain; negative for scatter, where
//! closeness costs.

use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};

use crate::Mode;
use crate::single::allowed::Allowed;
use crate::single::capacities::{
    Capacity, capacities, main_capacity, pairs_if_even, pairs_if_filled, pairs_if_filled_with_main,
};
use crate::single::domains::{CORE, Domains, LEVELS};

/// Adjacent levels of the tree, both ends included.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LevelGroup {
    pub(crate) inner: usize,
    pub(crate) outer: usize,
}

impl LevelGroup {
    pub(crate) fn levels(self) -> RangeInclusive<usize> {
        self.inner..=self.outer
    }

    fn has_cores(self) -> bool {
        self.levels().contains(&CORE)
    }
}

/// The right-hand side of rule (12+) on cores or of rule (12) on cpus, where that rule binds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FullMainLimit {
    /// Whether the units are cores.
    pub(crate) on_cores: bool,
    /// How many units may be full and hold a main.
    pub(crate) count: i64,
}

impl FullMainLimit {
    /// The limit on cores if it binds, else that on cpus.
    fn strictest(domains: &Domains, allowed: &Allowed) -> Option<Self> {
        let [cores, cpus] = Self::both(domains, allowed);
        cores.or(cpus)
    }

    /// Rule (12+), then rule (12); `None` where the rule does not bind.
    pub(crate) fn both(domains: &Domains, allowed: &Allowed) -> [Option<Self>; 2] {
        let workers = domains.workers as i64;
        let binding = |rule: Option<u32>, count: u32, on_cores| {
            let count = i64::from(count);
            (rule.is_some() && count < workers).then_some(Self { on_cores, count })
        };
        let cores = binding(domains.rules.full_main_cores, allowed.full_main_cores, true)
            .filter(|_| allowed.core_mains == 1);
        let cpus = binding(domains.rules.full_main_cpus, allowed.full_main_cpus, false)
            .filter(|_| domains.rules.rank_cap == 1);
        [cores, cpus]
    }
}

/// Where rule (12) binds: number of peers that fit beside a main on a cpu that is not full.
pub(crate) fn peers_beside_main(domains: &Domains, allowed: &Allowed) -> Option<i64> {
    let [_, cpus] = FullMainLimit::both(domains, allowed);
    let single =
        domains.rules.rank_cap == 1 && domains.rules.worker_cap == 1 && domains.threads > 1;
    (cpus.is_some() && single).then(|| i64::from(domains.rules.cpu_volume.1) - 2)
}

/// A class of equal domains.
pub(crate) struct Class {
    /// Number of domains.
    pub(crate) count: usize,
    /// Cpus of each domain.
    pub(crate) cpus: u32,
    pub(crate) capacity: Capacity,
    /// `value[k]` for k = 0..=`capacity.per_worker`.
    pub(crate) value: Vec<i64>,
    /// Reduction of `value[k]` if the worker's main is among the k threads and its core is not
    /// full.
    pub(crate) main_loss: Vec<i64>,
    /// Least closeness of m mains in the domain: `main_closeness[m]`, as far as mains fit.
    pub(crate) main_closeness: Vec<i64>,
    /// Where rule (12+) binds: reduction of the capacity if m cores have a main and are not full.
    forgone: Option<Vec<i64>>,
    /// Where rule (12) binds as well: the same if neither the core nor the main's cpu is full.
    forgone_by_both: Option<Vec<i64>>,
}

impl Class {
    /// Most mains of a domain.
    pub(crate) fn mains_most(&self) -> usize {
        self.main_closeness.len() - 1
    }

    /// Number of cores of a domain that must be full and hold a main, given its volume and number
    /// of mains.
    pub(crate) fn full_cores_needed(&self, volume: i64, mains: i64) -> i64 {
        let Some(forgone) = &self.forgone else {
            return 0;
        };
        let last = forgone.len() - 1;
        let spare = i64::from(self.capacity.most) - volume;
        let fits = |full: &i64| forgone[last.min((mains - full) as usize)] <= spare;
        if fits(&0) {
            return 0;
        }
        (1..mains).find(fits).unwrap_or(mains)
    }

    /// The same for cpus.
    pub(crate) fn full_cpus_needed(&self, volume: i64, mains: i64) -> i64 {
        (volume + mains - i64::from(self.capacity.with_mains)).max(0)
    }

    /// Number of mains that must be on a full core or on a full cpu; all others are on cores and on
    /// cpus that are not full.
    pub(crate) fn full_units_needed(&self, volume: i64, mains: i64) -> i64 {
        let Some(forgone) = &self.forgone_by_both else {
            return 0;
        };
        let spare = i64::from(self.capacity.most) - volume;
        let fits = |forgone: &i64| *forgone <= spare;
        if forgone.get(mains as usize).is_some_and(fits) {
            return 0;
        }
        let without = forgone.partition_point(fits) as i64 - 1;
        (mains - without.max(0)).max(0)
    }
}

/// The classes of the outer level of a group.
pub(crate) struct Classes {
    pub(crate) classes: Vec<Class>,
    /// The class of each domain.
    pub(crate) of_domain: Vec<usize>,
}

/// Groups the domains of the outer level by key.
pub(crate) fn classes(domains: &Domains, allowed: &Allowed, group: LevelGroup) -> Classes {
    let keys = ClassKeyBuilder::of(domains, allowed, group);
    let count = keys.capacities[group.outer].len();
    let mut members: BTreeMap<ClassKey, Vec<usize>> = BTreeMap::new();
    for domain in 0..count {
        members.entry(keys.key(domain)).or_default().push(domain);
    }
    let mut of_domain = vec![0; count];
    for (class, members) in members.values().enumerate() {
        members.iter().for_each(|&domain| of_domain[domain] = class);
    }
    let classes = members
        .into_iter()
        .map(|(key, members)| keys.class(key, members.len()))
        .collect();
    Classes { classes, of_domain }
}

/// Most threads of one worker, and most mains, in a domain.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct DomainCaps {
    threads_per_worker: u32,
    mains: u32,
}

/// Properties that distinguish classes.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct ClassKey {
    capacity: Capacity,
    cpus: u32,
    /// The caps of the inner domains, largest first, for each level from the innermost relevant one
    /// to the outer level.
    caps: Vec<Vec<DomainCaps>>,
    /// Capacity that each core forgoes for a main by rule (12+), then by both rules; empty where
    /// they do not bind.
    forgone: [Vec<u32>; 2],
}

/// Inputs for the keys of all domains of a level group.
struct ClassKeyBuilder<'a> {
    domains: &'a Domains,
    allowed: &'a Allowed,
    group: LevelGroup,
    /// Capacities of the domains of each level up to the outer one.
    capacities: Vec<Vec<Capacity>>,
    /// Whether rule (12+) binds.
    binds_cores: bool,
    /// Whether rules (12+) and (12) both bind, and the group reaches up to cores.
    binds_both: bool,
}

impl<'a> ClassKeyBuilder<'a> {
    fn of(domains: &'a Domains, allowed: &'a Allowed, group: LevelGroup) -> Self {
        let strictest = FullMainLimit::strictest(domains, allowed);
        let both = FullMainLimit::both(domains, allowed);
        Self {
            domains,
            allowed,
            group,
            capacities: (0..=group.outer)
                .map(|level| capacities(domains, allowed, level))
                .collect(),
            binds_cores: strictest.is_some_and(|limit| limit.on_cores),
            binds_both: group.outer >= CORE && both.iter().all(Option::is_some),
        }
    }

    /// The innermost level whose caps are part of a key: rule (12+) needs those of cores.
    fn first_level(&self) -> usize {
        self.group.inner.min(CORE)
    }

    fn key(&self, domain: usize) -> ClassKey {
        let outer = self.group.outer;
        let members = self.domains.members(outer, domain);
        let forgone = |binds: bool, on_cpu: bool| {
            let forgone = || forgone_by_cores(self.domains, self.allowed, &members, on_cpu);
            binds.then(forgone).unwrap_or_default()
        };
        ClassKey {
            capacity: self.capacities[outer][domain],
            cpus: members.len() as u32,
            caps: (self.first_level()..=outer)
                .map(|level| self.caps(level, &members))
                .collect(),
            forgone: [
                forgone(self.binds_cores && outer >= CORE, false),
                forgone(self.binds_both, true),
            ],
        }
    }

    /// The caps of the domains of a level that contain these cpus, largest first.
    fn caps(&self, level: usize, cpus: &Range<usize>) -> Vec<DomainCaps> {
        let first = self.domains.domain(level, cpus.start);
        let last = self.domains.domain(level, cpus.end - 1);
        let mut caps: Vec<DomainCaps> = (first..=last)
            .map(|inside| DomainCaps {
                threads_per_worker: self.capacities[level][inside].per_worker,
                mains: main_capacity(self.domains, self.allowed, level, inside),
            })
            .collect();
        caps.sort_unstable_by(|a, b| b.cmp(a));
        caps
    }

    /// The class of `count` domains of a key.
    fn class(&self, key: ClassKey, count: usize) -> Class {
        let (capacity, caps) = (key.capacity, &key.caps);
        let counts = 0..=capacity.per_worker;
        let main_loss = |k| match self.binds_cores {
            true => self.main_loss(caps, k),
            false => 0,
        };
        let main_closeness = self.main_closeness(caps);
        let [forgone, forgone_by_both] = key.forgone;
        Class {
            count,
            cpus: key.cpus,
            capacity,
            value: counts.clone().map(|k| self.value(caps, k)).collect(),
            main_loss: counts.map(main_loss).collect(),
            main_closeness,
            // rule (12) adds nothing where it requires no more than rule (12+) alone
            forgone_by_both: (self.binds_both && forgone != forgone_by_both)
                .then(|| prefix_sums(&forgone_by_both)),
            forgone: self.binds_cores.then(|| prefix_sums(&forgone)),
        }
    }

    /// The caps of a level, from those of a key.
    fn at_level<'c>(&self, caps: &'c [Vec<DomainCaps>], level: usize) -> &'c [DomainCaps] {
        &caps[level - self.first_level()]
    }

    /// Greatest value of k threads of a worker.
    fn value(&self, caps: &[Vec<DomainCaps>], k: u32) -> i64 {
        let gain = &self.domains.gain;
        let levels = self.group.levels().filter(|&level| gain[level] > 0);
        levels
            .map(|level| {
                let caps = thread_caps(self.at_level(caps, level));
                match self.domains.mode {
                    Mode::Compact => gain[level] * pairs_if_filled(&caps, k),
                    Mode::Scatter => -gain[level] * pairs_if_even(&caps, k),
                }
            })
            .sum()
    }

    /// Reduction of the value of k threads if one of them is a main on a core that is not full.
    /// Counted on the level of cores and on L2s that are cores, where closeness pays.
    fn main_loss(&self, caps: &[Vec<DomainCaps>], k: u32) -> i64 {
        let (domains, group) = (self.domains, self.group);
        let pays = domains.mode == Mode::Compact && group.has_cores() && domains.gain[CORE] > 0;
        if k == 0 || !pays {
            return 0;
        }
        let cores = self.at_level(caps, CORE).len();
        let below_full = domains.rules.core_volume.1 - 1;
        (CORE..=group.outer.min(LEVELS - 1))
            .filter(|&level| self.at_level(caps, level).len() == cores)
            .map(|level| {
                let caps = thread_caps(self.at_level(caps, level));
                let with_main = pairs_if_filled_with_main(&caps, k, below_full);
                domains.gain[level] * (pairs_if_filled(&caps, k) - with_main)
            })
            .sum()
    }

    /// The least closeness of 0, 1, ... mains in the domain, on the levels of the group.
    fn main_closeness(&self, caps: &[Vec<DomainCaps>]) -> Vec<i64> {
        let by_level: Vec<Vec<u32>> = self
            .group
            .levels()
            .map(|level| {
                let caps = self.at_level(caps, level).iter();
                let mut mains: Vec<u32> = caps.map(|caps| caps.mains).collect();
                mains.sort_unstable_by(|a, b| b.cmp(a));
                mains
            })
            .collect();
        let most = by_level[self.group.outer - self.group.inner][0];
        let closeness = |m: u32| -> i64 {
            let levels = self.group.levels().zip(&by_level);
            levels
                .map(|(level, caps)| self.domains.gain[level] * pairs_if_even(caps, m))
                .sum()
        };
        (0..=most).map(closeness).collect()
    }
}

/// More than any domain can hold.
const UNREACHABLE: u32 = 1 << 20;

/// Capacity that each core of these cpus forgoes if it has a main and is not full, in ascending
/// order; with `on_cpu`, the main's cpu is not full either.
fn forgone_by_cores(
    domains: &Domains,
    allowed: &Allowed,
    cpus: &Range<usize>,
    on_cpu: bool,
) -> Vec<u32> {
    let cores = domains.core(cpus.start)..=domains.core(cpus.end - 1);
    let below_full = domains.rules.core_volume.1 - 1;
    let forgone = |core: usize| {
        let size = domains.members(CORE, core).len() as u32;
        let (lower, upper) = domains.rules.cpu_volume;
        let most = (size * upper).min(allowed.core_volume.1);
        let least = (size * lower).max(allowed.core_volume.0.min(most));
        let below_full = match on_cpu {
            true => below_full.min(size * upper - 1),
            false => below_full,
        };
        match least > below_full {
            true => UNREACHABLE,
            false => most.saturating_sub(below_full),
        }
    };
    let mut forgone: Vec<u32> = cores.map(forgone).collect();
    forgone.sort_unstable();
    forgone
}

/// Prefix sums, starting with 0.
fn prefix_sums(of: &[u32]) -> Vec<i64> {
    let next = |sum: &mut i64, &more: &u32| {
        *sum += i64::from(more);
        Some(*sum)
    };
    std::iter::once(0).chain(of.iter().scan(0, next)).collect()
}

fn thread_caps(caps: &[DomainCaps]) -> Vec<u32> {
    caps.iter().map(|caps| caps.threads_per_worker).collect()
}
