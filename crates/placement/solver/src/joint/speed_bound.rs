//! Bounds on pairs within workers, from the number of threads on the cores of each speed.
//!
//! **Problem.** Where cores differ in speed, (8) fixes the number of threads that the cores of each
//! speed hold together; a bound that takes every worker alone gives all of them the same best
//! cores. **Approach.** Level by level, the threads of each speed in domains of that speed.
//! *Scatter*: the cells (worker, domain) share them evenly. *Compact*: cells are filled one after
//! the other, each up to the room of such a domain for one worker; a cell on slow cores has no
//! main, except for the `slow_mains`. **Proof sketch.** x(x-1)/2 is convex, so even shares have the
//! fewest pairs and full cells the most; equal levels of `fill_order` mean equal capacities, so the
//! threads of each speed are the same in every balanced placement. **Limits.** For deployments with
//! the same cpus. On a level where a domain contains cores of different speed, all cores count as
//! one speed for scatter, and compact is not bounded.

use std::collections::{BTreeMap, BTreeSet};

use super::instance::{CORE, Instance, pairs};

/// The threads on cores of each speed, and their cores, for deployments with the same cpus.
pub(super) struct SpeedBound<'a> {
    instance: &'a Instance,
    loads: &'a [u32],
    core_loads: Vec<u32>,
}

/// The domains of a level whose cores have one speed.
#[derive(Default)]
struct SpeedGroup {
    is_slow: bool,
    threads: u32,
    domains: BTreeSet<u16>,
    /// Most threads of one worker in one of them.
    room: u32,
}

impl<'a> SpeedBound<'a> {
    /// `None` if cores are equally fast, or if deployments differ in their cpus or share them with
    /// obstacles.
    pub(super) fn of(instance: &'a Instance, loads: &'a [u32]) -> Option<Self> {
        let applies = !instance.fill_order.is_uniform() && instance.is_undivided();
        applies.then(|| Self {
            instance,
            loads,
            core_loads: instance.core_loads(loads),
        })
    }

    /// Fewest pairs of scatter workers in domains of a level; 0 if any worker is compact.
    pub(super) fn fewest(&self, level: usize) -> i64 {
        if self.instance.tenants.iter().any(|tenant| tenant.sign < 0) {
            return 0;
        }
        let classes = self.classes(level);
        let workers = self.instance.workers as u32;
        let of_class =
            |class: &SpeedGroup| evenly(class.threads, workers * class.domains.len() as u32);
        if is_mixed(&classes) {
            let threads = classes.iter().map(|class| class.threads).sum();
            let domains: BTreeSet<&u16> = classes.iter().flat_map(|class| &class.domains).collect();
            return evenly(threads, workers * domains.len() as u32);
        }
        classes.iter().map(of_class).sum()
    }

    /// Most pairs of compact workers in domains of a level with `slow_mains` mains on slow cores.
    pub(super) fn most(&self, level: usize, slow_mains: u32) -> i64 {
        let classes = self.classes(level);
        let compact = self
            .instance
            .tenants
            .iter()
            .filter(|tenant| tenant.sign < 0);
        let longest = compact.clone().map(|tenant| tenant.threads as u32).max();
        let all = compact.map(|tenant| tenant.slots() as u32).sum::<u32>();
        let Some(longest) = longest.filter(|_| !is_mixed(&classes)) else {
            return i64::MAX;
        };
        let of_class = |class: &SpeedGroup| {
            let (whole, without_main) = (class.room.min(longest), class.room.min(longest - 1));
            let mut left = class.threads.min(all);
            let mut sum = 0;
            if class.is_slow {
                for _ in 0..slow_mains {
                    let here = whole.min(left);
                    left -= here;
                    sum += pairs(here);
                }
            }
            let cell = if class.is_slow { without_main } else { whole };
            match left.checked_div(cell) {
                Some(cells) => sum + i64::from(cells) * pairs(cell) + pairs(left % cell),
                None => sum,
            }
        };
        classes.iter().map(of_class).sum()
    }

    fn classes(&self, level: usize) -> Vec<SpeedGroup> {
        let instance = self.instance;
        let caps = instance.tenants.iter().map(|tenant| tenant.worker_cap);
        let worker_cap = u32::from(caps.max().unwrap_or(0));
        let Some(tenant) = instance.tenants.first() else {
            return Vec::new();
        };
        let mut classes: BTreeMap<u16, SpeedGroup> = BTreeMap::new();
        // per core: its capacity, its domain, its room for one worker
        let mut cores: BTreeMap<u16, (u16, u16, u32)> = BTreeMap::new();
        let mut fullest: BTreeMap<u16, u32> = BTreeMap::new();
        for cpu in tenant.cpus.iter().map(|&cpu| usize::from(cpu)) {
            let (domain, core) = (instance.of[level][cpu], instance.of[CORE][cpu]);
            let capacity = instance.fill_order.capacity(cpu);
            let class = classes.entry(capacity).or_default();
            class.is_slow = instance.is_slow[cpu];
            class.threads += self.loads[cpu];
            class.domains.insert(domain);
            cores.entry(core).or_insert((capacity, domain, 0)).2 += worker_cap;
            let load = self.core_loads[usize::from(core)];
            let most = fullest.entry(capacity).or_default();
            *most = load.max(*most);
            if level < CORE {
                class.room = worker_cap;
            }
        }
        if level >= CORE {
            let mut rooms: BTreeMap<(u16, u16), u32> = BTreeMap::new();
            for (capacity, domain, takes) in cores.into_values() {
                *rooms.entry((capacity, domain)).or_default() += takes.min(fullest[&capacity]);
            }
            for ((capacity, _), room) in rooms {
                let class = classes.entry(capacity).or_default();
                class.room = class.room.max(room);
            }
        }
        classes.into_values().collect()
    }
}

/// Whether any domain contains cores of two speeds.
fn is_mixed(classes: &[SpeedGroup]) -> bool {
    let mut seen = BTreeSet::new();
    let mut domains = classes.iter().flat_map(|class| &class.domains);
    !domains.all(|domain| seen.insert(domain))
}

/// Number of pairs if cells share threads evenly.
fn evenly(threads: u32, cells: u32) -> i64 {
    let cells = cells.max(1);
    let (each, more) = (threads / cells, threads % cells);
    i64::from(more) * pairs(each + 1) + i64::from(cells - more) * pairs(each)
}
