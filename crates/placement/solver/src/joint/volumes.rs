//! The number of threads of each deployment on every cpu, before they are assigned to workers.
//!
//! **Problem.** Loads must be balanced, (8) and (8+), with few threads moved. **Approach.** Threads
//! stay on their current cpus as far as (2) and (3) allow, the others are placed one by one on the
//! least loaded cpu. Then the search looks for augmenting chains of links (a thread of a deployment
//! moves from one cpu to another) that lower one of the largest loads and raise one that is smaller
//! by 2 or more (or, where cores differ in speed, that end at a lower fill level: see
//! `fill_order`); first with threads that do not run yet, then with all. Cores likewise, with
//! chains whose links change the loads of cpus only by exchanging two. **Proof sketch.** Each chain
//! lowers the sum of squares, so the search terminates; without such a chain, loads are
//! decreasingly minimal (Frank and Murota). The set that a search from the largest loads reaches
//! without finding a chain is closed: no chain from a smaller load into it helps either, so each
//! cpu and deployment is visited once for all loads. **Limits.** Chains are the shortest ones, not
//! always those with the fewest moves.

use std::collections::VecDeque;

use super::fresh_start::fresh_loads;
use super::instance::{Instance, L3, NO_CPU, NUMA, PACKAGE, Tenant};

/// Counts of threads by tenant and cpu.
pub(super) struct JointVolumes {
    cpus: usize,
    /// Threads of each tenant on each cpu, row by row.
    counts: Vec<u32>,
    /// How many of them run there already.
    in_place: Vec<u32>,
    /// Number of mains that run on each cpu.
    mains: Vec<u32>,
    /// Threads and obstacles on each cpu.
    pub(super) loads: Vec<u32>,
}

/// One thread of a tenant moves from one cpu to another.
#[derive(Clone, Copy)]
struct ChainLink {
    tenant: usize,
    from: usize,
    to: usize,
}

/// Balanced counts that are close to the mappings in force.
pub(super) fn balance(instance: &Instance) -> JointVolumes {
    let mut volume = JointVolumes {
        cpus: instance.cpus,
        counts: vec![0; instance.tenants.len() * instance.cpus],
        in_place: vec![0; instance.tenants.len() * instance.cpus],
        mains: vec![0; instance.cpus],
        loads: instance.obstacles.clone(),
    };
    if let Some(counts) = fresh_loads(instance) {
        for (cell, &count) in counts.iter().enumerate() {
            volume.loads[cell % instance.cpus] += count;
        }
        volume.counts = counts;
    } else {
        for (index, tenant) in instance.tenants.iter().enumerate() {
            volume.keep_in_place(index, tenant);
        }
        let mut core_loads = instance.core_loads(&volume.loads);
        for index in 0..instance.tenants.len() {
            volume.add_free(instance, index, &mut core_loads);
        }
    }
    for may_move in [false, true] {
        // bound: each chain lowers the sum of squares of loads
        while let Some(chain) = volume.chain_of_cpus(instance, may_move) {
            if !volume.move_along_chain(instance, &chain) {
                break;
            }
        }
    }
    for may_move in [false, true] {
        // bound: each chain lowers the sum of squares of the loads of cores
        while let Some(chain) = volume.chain_of_cores(instance, may_move) {
            if !volume.move_along_chain(instance, &chain) {
                break;
            }
        }
    }
    volume
}

impl JointVolumes {
    /// Whether every thread stays on its current cpu.
    pub(super) fn is_unchanged(&self, instance: &Instance) -> bool {
        self.in_place.iter().sum::<u32>() as usize == instance.slots
    }

    /// Number of threads of a tenant on a cpu.
    pub(super) fn count(&self, tenant: usize, cpu: usize) -> u32 {
        self.counts[tenant * self.cpus + cpu]
    }

    /// Counts the threads of a tenant that may stay on their current cpus.
    fn keep_in_place(&mut self, index: usize, tenant: &Tenant) {
        let mut mains = vec![0; self.cpus];
        let mut peers = vec![0; self.cpus];
        let (mains_cap, peers_cap) = (u32::from(tenant.rank_cap), tenant.peers_cap());
        for current_cpus in tenant.current_cpus.chunks(tenant.threads) {
            let mut own: Vec<u16> = Vec::with_capacity(tenant.threads);
            for (rank, &current_cpu) in current_cpus.iter().enumerate() {
                if current_cpu == NO_CPU {
                    continue;
                }
                let cpu = usize::from(current_cpu);
                let here = own.iter().filter(|&&other| other == current_cpu).count();
                let (held, most) = if rank == 0 {
                    (&mut mains[cpu], mains_cap)
                } else {
                    (&mut peers[cpu], peers_cap)
                };
                if here < usize::from(tenant.worker_cap) && *held < most {
                    *held += 1;
                    own.push(current_cpu);
                    self.counts[index * self.cpus + cpu] += 1;
                    self.in_place[index * self.cpus + cpu] += 1;
                    self.loads[cpu] += 1;
                    self.mains[cpu] += u32::from(rank == 0);
                }
            }
        }
    }

    /// Places the other threads of a tenant on the least loaded cpus; ties are broken in favor of
    /// the cpu with fewest running mains, then for scatter in favor of the package, NUMA node and
    /// L3 with fewest threads of the tenant, for compact by the order of the tree.
    fn add_free(&mut self, instance: &Instance, index: usize, cores: &mut [u32]) {
        let tenant = &instance.tenants[index];
        let row = index * self.cpus;
        let placed: u32 = self.counts[row..row + self.cpus].iter().sum();
        const SPREAD: [usize; 3] = [PACKAGE, NUMA, L3];
        let mut own = SPREAD.map(|level| vec![0u32; instance.counts[level]]);
        for cpu in 0..self.cpus {
            for (own, level) in own.iter_mut().zip(SPREAD) {
                own[usize::from(instance.of[level][cpu])] += self.counts[row + cpu];
            }
        }
        for _ in placed as usize..tenant.slots() {
            let open = tenant.cpus.iter().map(|&cpu| usize::from(cpu));
            let best = open
                .filter(|&cpu| self.counts[row + cpu] < tenant.cpu_cap())
                .min_by_key(|&cpu| {
                    let [_, core, l2, l3, numa, package] =
                        std::array::from_fn(|level| usize::from(instance.of[level][cpu]));
                    let spread = [own[0][package], own[1][numa], own[2][l3]];
                    let spread = if tenant.sign > 0 { spread } else { [0; 3] };
                    let level = instance.fill_order.level(cpu, self.loads[cpu] + 1);
                    let load = (level, cores[core]);
                    let order = [package, numa, l3, l2, cpu];
                    (load, self.mains[cpu], spread, order)
                });
            if let Some(cpu) = best {
                self.counts[row + cpu] += 1;
                self.loads[cpu] += 1;
                cores[instance.core(cpu)] += 1;
                for (own, level) in own.iter_mut().zip(SPREAD) {
                    own[usize::from(instance.of[level][cpu])] += 1;
                }
            }
        }
    }

    /// Whether a thread of the tenant may leave the cpu.
    pub(super) fn may_leave(&self, tenant: usize, cpu: usize, may_move: bool) -> bool {
        let at = tenant * self.cpus + cpu;
        let staying = if may_move { 0 } else { self.in_place[at] };
        self.counts[at] > staying
    }

    pub(super) fn may_enter(&self, instance: &Instance, tenant: usize, cpu: usize) -> bool {
        let of = &instance.tenants[tenant];
        of.allows[cpu] && self.counts[tenant * self.cpus + cpu] < of.cpu_cap()
    }

    /// Moves threads along a chain; returns false, with nothing moved, if a link is infeasible.
    fn move_along_chain(&mut self, instance: &Instance, chain: &[ChainLink]) -> bool {
        for (done, link) in chain.iter().enumerate() {
            let (from, to) = (
                link.tenant * self.cpus + link.from,
                link.tenant * self.cpus + link.to,
            );
            if self.counts[from] == 0 || !self.may_enter(instance, link.tenant, link.to) {
                for link in &chain[..done] {
                    self.move_thread(ChainLink {
                        from: link.to,
                        to: link.from,
                        ..*link
                    });
                }
                return false;
            }
            self.move_thread(*link);
            self.in_place[from] = self.in_place[from].min(self.counts[from]);
            debug_assert!(self.counts[to] > 0);
        }
        true
    }

    fn move_thread(&mut self, ChainLink { tenant, from, to }: ChainLink) {
        self.counts[tenant * self.cpus + from] -= 1;
        self.counts[tenant * self.cpus + to] += 1;
        self.loads[from] -= 1;
        self.loads[to] += 1;
    }

    /// A chain from a cpu to one on which a thread has a lower fill level.
    fn chain_of_cpus(&self, instance: &Instance, may_move: bool) -> Option<Vec<ChainLink>> {
        let usable = (0..self.cpus).filter(|&cpu| instance.is_used[cpu]);
        let held = |cpu: usize| instance.fill_order.level(cpu, self.loads[cpu]);
        let with_one_more = |cpu: usize| instance.fill_order.level(cpu, self.loads[cpu] + 1);
        if usable.clone().map(held).max() <= usable.map(with_one_more).min() {
            return None;
        }
        let mut order: Vec<usize> = (0..self.cpus).collect();
        order.sort_by_key(|&cpu| std::cmp::Reverse(held(cpu)));
        let mut search = BreadthFirst::new(1, self.cpus, instance.tenants.len());
        for &start in &order {
            search.enter(0, start, None);
            let level = held(start);
            // bound: each cpu is entered once in total
            while let Some(at) = search.queue.pop_front() {
                let ends = &mut |_: &mut BreadthFirst, next: usize| with_one_more(next) < level;
                if let Some(chain) = self.spread(instance, &mut search, at, may_move, ends) {
                    return Some(chain);
                }
            }
        }
        None
    }

    /// A chain from a core to one whose load is at least 2 less, which changes the loads of cpus
    /// only by exchanging some. Where cores differ in speed, the fill order keeps them even.
    fn chain_of_cores(&self, instance: &Instance, may_move: bool) -> Option<Vec<ChainLink>> {
        if !instance.fill_order.is_uniform() {
            return None;
        }
        let cores = instance.core_loads(&self.loads);
        let usable = (0..self.cpus).filter(|&cpu| instance.is_used[cpu]);
        if is_even(usable.map(|cpu| cores[instance.core(cpu)])) {
            return None;
        }
        let mut members = vec![Vec::new(); cores.len()];
        (0..self.cpus).for_each(|cpu| members[instance.core(cpu)].push(cpu));
        let mut levels = self.loads.clone();
        levels.sort_unstable();
        levels.dedup();
        let level = |load: u32| levels.binary_search(&load).unwrap_or(0);
        let mut order: Vec<usize> = (0..cores.len()).collect();
        order.sort_by_key(|&core| std::cmp::Reverse(cores[core]));
        let mut search = BreadthFirst::new(levels.len(), self.cpus, instance.tenants.len());
        let mut seen = vec![false; cores.len()];
        for &start in &order {
            if std::mem::replace(&mut seen[start], true) {
                continue;
            }
            for &cpu in &members[start] {
                search.enter(level(self.loads[cpu]), cpu, None);
            }
            // bound: each cpu is entered once per load with which a chain started
            while let Some(at) = search.queue.pop_front() {
                let started = at.0;
                let ends = &mut |search: &mut BreadthFirst, next: usize| {
                    let core = instance.core(next);
                    let links = self.loads[next] + 1 == levels[started];
                    if !links || std::mem::replace(&mut seen[core], true) {
                        return false;
                    }
                    if cores[core] + 2 <= cores[start] {
                        return true;
                    }
                    for &cpu in &members[core] {
                        search.hop(level(self.loads[cpu]), cpu, (started, next));
                    }
                    false
                };
                if let Some(chain) = self.spread(instance, &mut search, at, may_move, ends) {
                    return Some(chain);
                }
            }
        }
        None
    }

    /// Enters every cpu that a thread may move to from `cpu`, in the same state; returns the chain
    /// to the first of them for which `ends` is true.
    fn spread(
        &self,
        instance: &Instance,
        search: &mut BreadthFirst,
        (state, cpu): (usize, usize),
        may_move: bool,
        ends: &mut impl FnMut(&mut BreadthFirst, usize) -> bool,
    ) -> Option<Vec<ChainLink>> {
        for tenant in 0..instance.tenants.len() {
            let used = state * instance.tenants.len() + tenant;
            if search.used[used] || !self.may_leave(tenant, cpu, may_move) {
                continue;
            }
            search.used[used] = true;
            for &next in &instance.tenants[tenant].cpus {
                let next = usize::from(next);
                let link = ChainLink {
                    tenant,
                    from: cpu,
                    to: next,
                };
                let is_new = self.may_enter(instance, tenant, next)
                    && search.enter(state, next, Some((state, link)));
                if is_new && ends(search, next) {
                    return Some(search.chain(state, next));
                }
            }
        }
        None
    }
}

/// Whether no two loads differ by 2 or more: then no chain can improve the balance.
fn is_even(loads: impl Iterator<Item = u32>) -> bool {
    let (least, most) = loads.fold((u32::MAX, 0), |(a, b), load| (a.min(load), b.max(load)));
    most <= least.saturating_add(1)
}

/// How a cpu was reached.
#[derive(Clone, Copy)]
enum Reached {
    Unseen,
    /// A chain starts here.
    Start,
    /// By a link, from a cpu in the state with this number.
    Link(usize, ChainLink),
    /// Within a core: the chain continues here from another cpu in the state with this number.
    Hop(usize, usize),
}

/// A breadth-first search over cpus in states.
struct BreadthFirst {
    cpus: usize,
    reached: Vec<Reached>,
    /// Tenants whose open cpus were all entered, by state.
    used: Vec<bool>,
    queue: VecDeque<(usize, usize)>,
}

impl BreadthFirst {
    fn new(states: usize, cpus: usize, tenants: usize) -> Self {
        Self {
            cpus,
            reached: vec![Reached::Unseen; states * cpus],
            used: vec![false; states * tenants],
            queue: VecDeque::new(),
        }
    }

    /// Records how a cpu was reached; false if it was reached before.
    fn enter(&mut self, state: usize, cpu: usize, by: Option<(usize, ChainLink)>) -> bool {
        let way = by.map_or(Reached::Start, |(state, link)| Reached::Link(state, link));
        self.record(state, cpu, way)
    }

    fn hop(&mut self, state: usize, cpu: usize, (before, from): (usize, usize)) {
        self.record(state, cpu, Reached::Hop(before, from));
    }

    fn record(&mut self, state: usize, cpu: usize, way: Reached) -> bool {
        let at = &mut self.reached[state * self.cpus + cpu];
        let is_new = matches!(at, Reached::Unseen);
        if is_new {
            *at = way;
            self.queue.push_back((state, cpu));
        }
        is_new
    }

    /// The links that lead to a cpu, in order from the start.
    fn chain(&self, state: usize, cpu: usize) -> Vec<ChainLink> {
        let (mut state, mut cpu) = (state, cpu);
        let mut chain = Vec::new();
        // bound: each link leads back to a state that was entered earlier
        loop {
            match self.reached[state * self.cpus + cpu] {
                Reached::Link(before, link) => {
                    chain.push(link);
                    (state, cpu) = (before, link.from);
                }
                Reached::Hop(before, from) => (state, cpu) = (before, from),
                Reached::Start | Reached::Unseen => break,
            }
        }
        chain.reverse();
        chain
    }
}
