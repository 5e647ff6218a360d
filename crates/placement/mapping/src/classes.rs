//! The domains of a level as classes of equal ones, and what a number of threads is worth in each.
//!
//! A *group* is a run of neighboring levels, `inner..=outer`. In a domain of the outer level, k
//! threads of one worker are worth at most `worth[k]`: the gains of all levels of the group, as if
//! the worker had the domain to itself; negative for scatter, where closeness costs.

use std::collections::BTreeMap;

use crate::Mode;
use crate::domains::{CORE, Domains, LEVELS, pairs};
use crate::improve::Allowed;
use crate::volumes::main_limits;

/// Threads that a domain may hold: at least, at most, and at most of one worker.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(crate) struct Room {
    pub(crate) least: u32,
    pub(crate) most: u32,
    pub(crate) of_worker: u32,
    /// Most threads and mains together, but for permits of cpus (`Permits`).
    pub(crate) top: u32,
}

/// What keeps mains and volumes apart: rule (12+) on cores or else rule (12) on cpus, where one of
/// them asks for anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Permits {
    /// Whether the units are cores.
    pub(crate) cores: bool,
    /// How many units may be full and hold a main.
    pub(crate) count: i64,
}

impl Permits {
    /// The stricter rule that applies.
    pub(crate) fn of(domains: &Domains, allowed: &Allowed) -> Option<Self> {
        let [cores, cpus] = Self::both(domains, allowed);
        cores.or(cpus)
    }

    /// Rule (12+) and rule (12), where they ask for anything.
    pub(crate) fn both(domains: &Domains, allowed: &Allowed) -> [Option<Self>; 2] {
        let workers = domains.workers as i64;
        let strict = |rule: Option<u32>, count: u32, cores| {
            let count = i64::from(count);
            (rule.is_some() && count < workers).then_some(Self { cores, count })
        };
        let cores = strict(domains.full_core_mains, allowed.full_core_mains, true)
            .filter(|_| allowed.core_mains == 1);
        let cpus =
            strict(domains.full_mains, allowed.full_mains, false).filter(|_| domains.rank_cap == 1);
        [cores, cpus]
    }
}

/// Where rule (12) lets only some full cpus hold a main: how many threads the others have beside
/// their mains.
pub(crate) fn beside_mains(domains: &Domains, allowed: &Allowed) -> Option<i64> {
    let [_, cpus] = Permits::both(domains, allowed);
    let single = domains.rank_cap == 1 && domains.worker_cap == 1 && domains.threads > 1;
    (cpus.is_some() && single).then(|| i64::from(domains.cpu_volume.1) - 2)
}

/// Domains that nothing tells apart.
#[derive(Clone)]
pub(crate) struct Class {
    /// How many there are.
    pub(crate) count: usize,
    pub(crate) cpus: u32,
    /// What each may hold.
    pub(crate) room: Room,
    /// `worth[k]` for k = 0..=`room.of_worker`.
    pub(crate) worth: Vec<i64>,
    /// What is lost of it if the worker's main is among the k, on a core that is not full.
    pub(crate) loss: Vec<i64>,
    /// What m mains in the domain cost at least: `mains[m]`, as far as there is room for mains.
    pub(crate) mains: Vec<i64>,
    /// The volumes that are asked about: all that there is room for, or fewer (`forks`).
    pub(crate) volumes: (u32, u32),
    /// The same of mains.
    pub(crate) main_counts: (u32, u32),
    /// Where rule (12+) applies: how many threads less the domain can hold if m of its cores have a
    /// main and are not full.
    taken: Option<Vec<i64>>,
    /// Where rule (12) applies too: the same if neither the core nor the main's cpu is full.
    taken_by_both: Option<Vec<i64>>,
}

impl Class {
    /// How many cores of a domain must be full and hold a main if it has so many threads and mains.
    pub(crate) fn cores_needed(&self, volume: i64, mains: i64) -> i64 {
        let Some(taken) = &self.taken else {
            return 0;
        };
        let last = taken.len() - 1;
        let room = i64::from(self.room.most) - volume;
        if taken[last.min(mains as usize)] <= room {
            return 0;
        }
        let fits = |full: &i64| taken[last.min((mains - full) as usize)] <= room;
        (1..mains).find(fits).unwrap_or(mains)
    }

    /// How many permits of either kind a domain must have if it has so many threads and mains: all
    /// other mains are on cores and on cpus that are not full.
    pub(crate) fn either_needed(&self, volume: i64, mains: i64) -> i64 {
        let Some(taken) = &self.taken_by_both else {
            return 0;
        };
        let room = i64::from(self.room.most) - volume;
        if taken
            .get(mains as usize)
            .is_some_and(|&taken| taken <= room)
        {
            return 0;
        }
        let without = taken.partition_point(|&taken| taken <= room) as i64 - 1;
        (mains - without.max(0)).max(0)
    }

    /// The same of cpus.
    pub(crate) fn cpus_needed(&self, volume: i64, mains: i64) -> i64 {
        (volume + mains - i64::from(self.room.top)).max(0)
    }
}

/// More than any domain holds.
const NEVER: u32 = 1 << 20;

/// By how much each core of a domain must stay below what it can hold if it has a main and is not
/// full, least first; `cpu` says whether the main's cpu is not full either.
fn forgone(
    domains: &Domains,
    allowed: &Allowed,
    cpus: std::ops::Range<usize>,
    cpu: bool,
) -> Vec<u32> {
    let cores = domains.core(cpus.start)..=domains.core(cpus.end - 1);
    let below = domains.core_volume.1 - 1;
    let of = |core: usize| {
        let size = domains.members(CORE, core).len() as u32;
        let (lower, upper) = domains.cpu_volume;
        let most = (size * upper).min(allowed.core_volume.1);
        let least = (size * lower).max(allowed.core_volume.0.min(most));
        let below = if cpu {
            below.min(size * upper - 1)
        } else {
            below
        };
        if least > below {
            NEVER
        } else {
            most.saturating_sub(below)
        }
    };
    let mut forgone: Vec<u32> = cores.map(of).collect();
    forgone.sort_unstable();
    forgone
}

/// 0, then the sums of the first one, two, ...
fn sums(of: &[u32]) -> Vec<i64> {
    let next = |sum: &mut i64, &more: &u32| {
        *sum += i64::from(more);
        Some(*sum)
    };
    std::iter::once(0).chain(of.iter().scan(0, next)).collect()
}

/// The rooms of a level's domains.
pub(crate) fn rooms(domains: &Domains, allowed: &Allowed, level: usize) -> Vec<Room> {
    let (lower, upper) = domains.cpu_volume;
    let threads = domains.threads as u32;
    if level < CORE {
        let of_worker = domains.worker_cap.min(upper).min(threads);
        let room = Room {
            least: lower,
            most: upper,
            of_worker,
            top: upper,
        };
        return vec![room; domains.cpus];
    }
    let mut rooms = vec![Room::default(); domains.count(level)];
    for core in 0..domains.count(CORE) {
        let members = domains.members(CORE, core);
        let size = members.len() as u32;
        let room = &mut rooms[domains.domain(level, members.start)];
        let most = (size * upper).min(allowed.core_volume.1);
        room.least += (size * lower).max(allowed.core_volume.0.min(most));
        room.most += most;
        room.top += size * upper;
        room.of_worker += (size * domains.worker_cap).min(most);
    }
    for room in &mut rooms {
        room.of_worker = room.of_worker.min(threads);
    }
    rooms
}

/// How many cpus, for each level inside how much of a worker and how many mains its parts hold, and
/// what its cores forgo for a main, by rule (12+) and by both rules.
type Shape = (usize, Vec<Vec<(u32, u32)>>, [Vec<u32>; 2]);

/// The classes of the outer level of a group, and the class of each domain.
pub(crate) fn classes(
    domains: &Domains,
    allowed: &Allowed,
    (inner, outer): (usize, usize),
) -> (Vec<Class>, Vec<usize>) {
    let by_level: Vec<Vec<Room>> = (0..=outer)
        .map(|level| rooms(domains, allowed, level))
        .collect();
    let by_core = Permits::of(domains, allowed).is_some_and(|permits| permits.cores);
    let by_both = outer >= CORE && Permits::both(domains, allowed).iter().all(Option::is_some);
    let mut found: BTreeMap<(Room, Shape), Vec<usize>> = BTreeMap::new();
    for (domain, &room) in by_level[outer].iter().enumerate() {
        let first = usize::from(domains.starts[outer][domain]);
        let last = usize::from(domains.starts[outer][domain + 1]) - 1;
        let caps = (inner.min(CORE)..=outer)
            .map(|level| {
                let parts = domains.domain(level, first)..=domains.domain(level, last);
                let mut caps: Vec<(u32, u32)> = by_level[level][parts.clone()]
                    .iter()
                    .zip(parts)
                    .map(|(room, part)| (room.of_worker, main_room(domains, allowed, level, part)))
                    .collect();
                caps.sort_unstable_by(|a, b| b.cmp(a));
                caps
            })
            .collect();
        let forgone = [(by_core && outer >= CORE, false), (by_both, true)].map(|(asked, cpu)| {
            let of = || forgone(domains, allowed, first..last + 1, cpu);
            asked.then(of).unwrap_or_default()
        });
        found
            .entry((room, (last - first, caps, forgone)))
            .or_default()
            .push(domain);
    }
    let mut class_of = vec![0; by_level[outer].len()];
    for (class, members) in found.values().enumerate() {
        members.iter().for_each(|&domain| class_of[domain] = class);
    }
    let class = |((room, (_, caps, forgone)), members): ((Room, Shape), Vec<usize>)| {
        let (count, cpus) = (
            members.len(),
            domains.members(outer, members[0]).len() as u32,
        );
        let worth: Vec<i64> = (0..=room.of_worker)
            .map(|k| worth_of(domains, (inner, outer), &caps, k))
            .collect();
        let loss = (0..=room.of_worker)
            .map(|k| {
                if by_core {
                    loss_of(domains, (inner, outer), &caps, k)
                } else {
                    0
                }
            })
            .collect();
        let mains = mains_of(domains, (inner, outer), &caps);
        Class {
            count,
            cpus,
            room,
            worth,
            loss,
            volumes: (room.least, room.most),
            main_counts: (0, mains.len() as u32 - 1),
            mains,
            taken: by_core.then(|| sums(&forgone[0])),
            // no more than rule (12+) asks for alone, where that is never nothing
            taken_by_both: (by_both && forgone[0] != forgone[1]).then(|| sums(&forgone[1])),
        }
    };
    (found.into_iter().map(class).collect(), class_of)
}

/// The most that k threads can be worth; `caps` starts at the level `inner` or, if that is the
/// innermost, at it.
fn worth_of(
    domains: &Domains,
    (inner, outer): (usize, usize),
    caps: &[Vec<(u32, u32)>],
    k: u32,
) -> i64 {
    let base = inner.min(CORE);
    (inner..=outer)
        .filter(|&level| domains.gain[level] > 0)
        .map(|level| {
            let caps = firsts(&caps[level - base]);
            match domains.mode {
                Mode::Compact => domains.gain[level] * fill(&caps, k),
                Mode::Scatter => -domains.gain[level] * even(&caps, k),
            }
        })
        .sum()
}

/// By how much less k threads are worth if one of them is a main on a core that is not full. Only
/// counted where the group has the level of cores and closeness pays.
fn loss_of(
    domains: &Domains,
    (inner, outer): (usize, usize),
    caps: &[Vec<(u32, u32)>],
    k: u32,
) -> i64 {
    if k == 0
        || domains.mode == Mode::Scatter
        || inner > CORE
        || outer < CORE
        || domains.gain[CORE] == 0
    {
        return 0;
    }
    // bound of the levels of cores and of L2s that are cores
    let base = inner.min(CORE);
    let caps_of = |level: usize| &caps[level - base];
    let most = caps_of(CORE).len();
    let below = domains.core_volume.1 - 1;
    (CORE..=outer.min(LEVELS - 1))
        .filter(|&level| caps_of(level).len() == most)
        .map(|level| {
            let caps = firsts(caps_of(level));
            domains.gain[level] * (fill(&caps, k) - fill_with_main(&caps, k, below))
        })
        .sum()
}

/// How many mains a domain can hold.
fn main_room(domains: &Domains, allowed: &Allowed, level: usize, domain: usize) -> u32 {
    let (_, of_cpu) = main_limits(domains);
    if level < CORE {
        return of_cpu;
    }
    let members = domains.members(level, domain);
    let cores = domains.core(members.start)..=domains.core(members.end - 1);
    cores
        .map(|core| (of_cpu * domains.members(CORE, core).len() as u32).min(allowed.core_mains))
        .sum::<u32>()
        .min(domains.workers as u32)
}

/// The least closeness of 0, 1, ... mains in the domain, on the levels of the group.
fn mains_of(
    domains: &Domains,
    (inner, outer): (usize, usize),
    caps: &[Vec<(u32, u32)>],
) -> Vec<i64> {
    let base = inner.min(CORE);
    let rooms: Vec<Vec<u32>> = (inner..=outer)
        .map(|level| {
            let mut rooms: Vec<u32> = caps[level - base].iter().map(|&(_, mains)| mains).collect();
            rooms.sort_unstable_by(|a, b| b.cmp(a));
            rooms
        })
        .collect();
    let most = rooms[outer - inner][0];
    let of = |m: u32| -> i64 {
        (inner..=outer)
            .map(|level| domains.gain[level] * even(&rooms[level - inner], m))
            .sum()
    };
    (0..=most).map(of).collect()
}

fn firsts(caps: &[(u32, u32)]) -> Vec<u32> {
    caps.iter().map(|&(first, _)| first).collect()
}

/// Pairs within domains if they are filled one after the other.
pub(crate) fn fill(caps: &[u32], threads: u32) -> i64 {
    let mut left = threads;
    let mut sum = 0;
    for &cap in caps {
        let here = cap.min(left);
        left -= here;
        sum += pairs(here);
    }
    sum
}

/// The same if one of the threads is a main on a core with at most `below` of them: at best it is
/// the smallest core that the main takes from the peers.
pub(crate) fn fill_with_main(caps: &[u32], threads: u32, below: u32) -> i64 {
    let whole = fill(caps, threads);
    (1..=below.min(threads))
        .map(|here| pairs(here) + fill(&caps[..caps.len() - 1], threads - here))
        .max()
        .map_or(whole, |with_main| with_main.min(whole))
}

/// Pairs within domains if they are filled evenly; `caps` fall.
fn even(caps: &[u32], threads: u32) -> i64 {
    let mut left = threads;
    let mut sum = 0;
    for (at, &cap) in caps.iter().enumerate().rev() {
        // the smallest first: it takes its share or all it can
        let here = cap.min(left / (at as u32 + 1));
        left -= here;
        sum += pairs(here);
    }
    sum
}
