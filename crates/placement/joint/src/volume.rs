//! How many threads of each deployment every cpu holds, before anybody asks which worker they
//! belong to.
//!
//! **Problem.** Loads shall be balanced, (8) and (8+), with few threads moved. **Approach.**
//! Threads stay where they run as far as (2) and (3) allow, the others go one by one where least
//! runs. Then chains of links (a thread of a deployment goes from one cpu to another) are looked
//! for along which a load of the largest falls and one lower by 2 or more rises; first with threads
//! that do not run yet, then with all. Cores in the same way, with chains whose links change no
//! load of cpus but by exchanging two. **Proof sketch.** Each chain lowers the sum of squares, so
//! it ends; where there is none, loads are decreasingly minimal (Frank and Murota). Whatever a
//! search from the largest loads reaches without finding one is closed: no chain from a smaller
//! load into it helps either, so each cpu and deployment is looked at once for all loads.
//! **Limits.** Chains are shortest, not always those of the fewest moves.

use std::collections::VecDeque;

use super::share::share;
use super::site::{NOWHERE, Party, Site};

/// Counts of threads by party and cpu.
pub(super) struct Volume {
    cpus: usize,
    /// Threads of each party on each cpu, row by row.
    counts: Vec<u32>,
    /// How many of them run there already.
    settled: Vec<u32>,
    /// Mains that run on each cpu.
    mains: Vec<u32>,
    /// Threads and obstacles of each cpu.
    pub(super) loads: Vec<u32>,
}

/// One thread of a party goes from one cpu to another.
#[derive(Clone, Copy)]
struct Link {
    party: usize,
    from: usize,
    to: usize,
}

/// Balanced counts close to what runs.
pub(super) fn balance(site: &Site) -> Volume {
    let mut volume = Volume {
        cpus: site.cpus,
        counts: vec![0; site.parties.len() * site.cpus],
        settled: vec![0; site.parties.len() * site.cpus],
        mains: vec![0; site.cpus],
        loads: site.obstacles.clone(),
    };
    if let Some(counts) = share(site) {
        for (cell, &count) in counts.iter().enumerate() {
            volume.loads[cell % site.cpus] += count;
        }
        volume.counts = counts;
    } else {
        for (index, party) in site.parties.iter().enumerate() {
            volume.settle(index, party);
        }
        let mut core_loads = site.core_loads(&volume.loads);
        for (index, party) in site.parties.iter().enumerate() {
            volume.add_free(site, (index, party), &mut core_loads);
        }
    }
    for may_move in [false, true] {
        // bound: each chain lowers the sum of squares of loads
        while let Some(chain) = volume.chain_of_cpus(site, may_move) {
            if !volume.follow(site, &chain) {
                break;
            }
        }
    }
    for may_move in [false, true] {
        // bound: each chain lowers the sum of squares of the loads of cores
        while let Some(chain) = volume.chain_of_cores(site, may_move) {
            if !volume.follow(site, &chain) {
                break;
            }
        }
    }
    volume
}

impl Volume {
    /// Whether every thread stays where it runs.
    pub(super) fn is_settled(&self, site: &Site) -> bool {
        self.settled.iter().sum::<u32>() as usize == site.slots
    }

    /// Threads of a party that a cpu shall hold.
    pub(super) fn count(&self, party: usize, cpu: usize) -> u32 {
        self.counts[party * self.cpus + cpu]
    }

    /// The threads of a party that may stay where they run.
    fn settle(&mut self, index: usize, party: &Party) {
        let mut mains = vec![0; self.cpus];
        let mut peers = vec![0; self.cpus];
        let (mains_cap, peers_cap) = (u32::from(party.rank_cap), party.peers_cap());
        for homes in party.homes.chunks(party.threads) {
            let mut own: Vec<u16> = Vec::with_capacity(party.threads);
            for (rank, &home) in homes.iter().enumerate() {
                if home == NOWHERE {
                    continue;
                }
                let cpu = usize::from(home);
                let here = own.iter().filter(|&&other| other == home).count();
                let (held, most) = if rank == 0 {
                    (&mut mains[cpu], mains_cap)
                } else {
                    (&mut peers[cpu], peers_cap)
                };
                if here < usize::from(party.worker_cap) && *held < most {
                    *held += 1;
                    own.push(home);
                    self.counts[index * self.cpus + cpu] += 1;
                    self.settled[index * self.cpus + cpu] += 1;
                    self.loads[cpu] += 1;
                    self.mains[cpu] += u32::from(rank == 0);
                }
            }
        }
    }

    /// The other threads of a party go where least runs; among equals where no main runs, then
    /// scatter to the L3 with fewest of its own, compact in the order of the tree.
    fn add_free(&mut self, site: &Site, (index, party): (usize, &Party), cores: &mut [u32]) {
        let row = index * self.cpus;
        let placed: u32 = self.counts[row..row + self.cpus].iter().sum();
        let mut own_l3 = vec![0u32; site.counts[3]];
        for cpu in 0..self.cpus {
            own_l3[usize::from(site.of[3][cpu])] += self.counts[row + cpu];
        }
        for _ in placed as usize..party.slots() {
            let open = party.cpus.iter().map(|&cpu| usize::from(cpu));
            let best = open
                .filter(|&cpu| self.counts[row + cpu] < party.cpu_cap())
                .min_by_key(|&cpu| {
                    let [_, core, l2, l3] = [0, 1, 2, 3].map(|level| site.of[level][cpu]);
                    let own = if party.sign > 0 {
                        own_l3[usize::from(l3)]
                    } else {
                        0
                    };
                    let load = (self.loads[cpu], cores[usize::from(core)]);
                    (load, self.mains[cpu], own, l3, l2, cpu)
                });
            if let Some(cpu) = best {
                self.counts[row + cpu] += 1;
                self.loads[cpu] += 1;
                cores[site.core(cpu)] += 1;
                own_l3[usize::from(site.of[3][cpu])] += 1;
            }
        }
    }

    /// Whether a thread of the party may leave the cpu.
    fn may_leave(&self, party: usize, cpu: usize, may_move: bool) -> bool {
        let at = party * self.cpus + cpu;
        let staying = if may_move { 0 } else { self.settled[at] };
        self.counts[at] > staying
    }

    fn may_enter(&self, site: &Site, party: usize, cpu: usize) -> bool {
        let of = &site.parties[party];
        of.allows[cpu] && self.counts[party * self.cpus + cpu] < of.cpu_cap()
    }

    /// Moves threads along a chain; false, and nothing moved, if a link does not hold.
    fn follow(&mut self, site: &Site, chain: &[Link]) -> bool {
        for (done, link) in chain.iter().enumerate() {
            let (from, to) = (
                link.party * self.cpus + link.from,
                link.party * self.cpus + link.to,
            );
            if self.counts[from] == 0 || !self.may_enter(site, link.party, link.to) {
                for link in &chain[..done] {
                    self.carry(Link {
                        from: link.to,
                        to: link.from,
                        ..*link
                    });
                }
                return false;
            }
            self.carry(*link);
            self.settled[from] = self.settled[from].min(self.counts[from]);
            debug_assert!(self.counts[to] > 0);
        }
        true
    }

    fn carry(&mut self, Link { party, from, to }: Link) {
        self.counts[party * self.cpus + from] -= 1;
        self.counts[party * self.cpus + to] += 1;
        self.loads[from] -= 1;
        self.loads[to] += 1;
    }

    /// A chain from a cpu to one that carries at least 2 less.
    fn chain_of_cpus(&self, site: &Site, may_move: bool) -> Option<Vec<Link>> {
        let usable = (0..self.cpus).filter(|&cpu| site.is_used[cpu]);
        if is_even(usable.map(|cpu| self.loads[cpu])) {
            return None;
        }
        let mut order: Vec<usize> = (0..self.cpus).collect();
        order.sort_by_key(|&cpu| std::cmp::Reverse(self.loads[cpu]));
        let mut walk = Walk::new(1, self.cpus, site.parties.len());
        for &start in &order {
            walk.enter(0, start, None);
            // bound: each cpu is entered once in all
            while let Some(at) = walk.queue.pop_front() {
                let ends =
                    &mut |_: &mut Walk, next: usize| self.loads[next] + 2 <= self.loads[start];
                if let Some(chain) = self.spread(site, &mut walk, at, may_move, ends) {
                    return Some(chain);
                }
            }
        }
        None
    }

    /// A chain from a core to one that carries at least 2 less, which changes the loads of cpus
    /// only by exchanging some.
    fn chain_of_cores(&self, site: &Site, may_move: bool) -> Option<Vec<Link>> {
        let cores = site.core_loads(&self.loads);
        let usable = (0..self.cpus).filter(|&cpu| site.is_used[cpu]);
        if is_even(usable.map(|cpu| cores[site.core(cpu)])) {
            return None;
        }
        let mut members = vec![Vec::new(); cores.len()];
        (0..self.cpus).for_each(|cpu| members[site.core(cpu)].push(cpu));
        let mut levels = self.loads.clone();
        levels.sort_unstable();
        levels.dedup();
        let level = |load: u32| levels.binary_search(&load).unwrap_or(0);
        let mut order: Vec<usize> = (0..cores.len()).collect();
        order.sort_by_key(|&core| std::cmp::Reverse(cores[core]));
        let mut walk = Walk::new(levels.len(), self.cpus, site.parties.len());
        let mut seen = vec![false; cores.len()];
        for &start in &order {
            if std::mem::replace(&mut seen[start], true) {
                continue;
            }
            for &cpu in &members[start] {
                walk.enter(level(self.loads[cpu]), cpu, None);
            }
            // bound: each cpu is entered once for each load that a chain started with
            while let Some(at) = walk.queue.pop_front() {
                let started = at.0;
                let ends = &mut |walk: &mut Walk, next: usize| {
                    let core = site.core(next);
                    let links = self.loads[next] + 1 == levels[started];
                    if !links || std::mem::replace(&mut seen[core], true) {
                        return false;
                    }
                    if cores[core] + 2 <= cores[start] {
                        return true;
                    }
                    for &cpu in &members[core] {
                        walk.hop(level(self.loads[cpu]), cpu, (started, next));
                    }
                    false
                };
                if let Some(chain) = self.spread(site, &mut walk, at, may_move, ends) {
                    return Some(chain);
                }
            }
        }
        None
    }

    /// Enters every cpu that a thread may go to from `cpu`, in the same state; the chain to the
    /// first of them that `ends`.
    fn spread(
        &self,
        site: &Site,
        walk: &mut Walk,
        (state, cpu): (usize, usize),
        may_move: bool,
        ends: &mut impl FnMut(&mut Walk, usize) -> bool,
    ) -> Option<Vec<Link>> {
        for party in 0..site.parties.len() {
            let used = state * site.parties.len() + party;
            if walk.used[used] || !self.may_leave(party, cpu, may_move) {
                continue;
            }
            walk.used[used] = true;
            for &next in &site.parties[party].cpus {
                let next = usize::from(next);
                let link = Link {
                    party,
                    from: cpu,
                    to: next,
                };
                let is_new = self.may_enter(site, party, next)
                    && walk.enter(state, next, Some((state, link)));
                if is_new && ends(walk, next) {
                    return Some(walk.chain(state, next));
                }
            }
        }
        None
    }
}

/// Whether no two loads differ by 2: then no chain has anything to even out.
fn is_even(loads: impl Iterator<Item = u32>) -> bool {
    let (least, most) = loads.fold((u32::MAX, 0), |(a, b), load| (a.min(load), b.max(load)));
    most <= least.saturating_add(1)
}

/// How a cpu was reached.
#[derive(Clone, Copy)]
enum Way {
    Unseen,
    /// A chain starts here.
    Start,
    /// By a link, from a cpu in the state of that number.
    Link(usize, Link),
    /// Within a core: the chain goes on here from another cpu in the state of that number.
    Hop(usize, usize),
}

/// A search over cpus in states.
struct Walk {
    cpus: usize,
    ways: Vec<Way>,
    /// Parties whose open cpus were all entered, by state.
    used: Vec<bool>,
    queue: VecDeque<(usize, usize)>,
}

impl Walk {
    fn new(states: usize, cpus: usize, parties: usize) -> Self {
        Self {
            cpus,
            ways: vec![Way::Unseen; states * cpus],
            used: vec![false; states * parties],
            queue: VecDeque::new(),
        }
    }

    /// Notes how a cpu was reached; false if it was reached before.
    fn enter(&mut self, state: usize, cpu: usize, by: Option<(usize, Link)>) -> bool {
        let way = by.map_or(Way::Start, |(state, link)| Way::Link(state, link));
        self.note(state, cpu, way)
    }

    fn hop(&mut self, state: usize, cpu: usize, (before, from): (usize, usize)) {
        self.note(state, cpu, Way::Hop(before, from));
    }

    fn note(&mut self, state: usize, cpu: usize, way: Way) -> bool {
        let at = &mut self.ways[state * self.cpus + cpu];
        let is_new = matches!(at, Way::Unseen);
        if is_new {
            *at = way;
            self.queue.push_back((state, cpu));
        }
        is_new
    }

    /// The links that lead to a cpu, from the start on.
    fn chain(&self, state: usize, cpu: usize) -> Vec<Link> {
        let (mut state, mut cpu) = (state, cpu);
        let mut chain = Vec::new();
        // bound: ways lead to states that were entered earlier
        loop {
            match self.ways[state * self.cpus + cpu] {
                Way::Link(before, link) => {
                    chain.push(link);
                    (state, cpu) = (before, link.from);
                }
                Way::Hop(before, from) => (state, cpu) = (before, from),
                Way::Start | Way::Unseen => break,
            }
        }
        chain.reverse();
        chain
    }
}
