//! Assigns the threads that the volumes foresee to workers.
//!
//! **Problem.** Every worker gets one main and T-1 peers, so that each cpu holds what the volumes
//! say. **Approach.** Threads that run stay, as far as the volumes have a place for them. Then
//! mains go where the other mains are farthest, on cpus whose peers alone would be too many for T-1
//! ranks first. Then peers, worker by worker, each where it is best for the worker. A worker for
//! which nothing is left that it may take gets a place along an augmenting chain: it takes one of
//! another worker's, who takes another. **Proof sketch.** Once mains are placed, with n threads on
//! a cpu of which m are mains, peers are a transportation problem of T-1 from each worker, n - m to
//! each cpu, at most ceil(T/C) threads of a worker on a cpu; it has a solution because the
//! fractions n/W are one (see the head of `assignment` for one deployment), and a transport that is
//! not complete has an augmenting chain. **Limits.** O(threads x C), and O(W x C) for a chain.

use std::collections::VecDeque;

use super::instance::{NO_CPU, Tenant};
use super::search_state::{SearchState, Thread};
use super::volumes::Volumes;

/// Places every thread; mains on the cores where `rules` have placed them if `crowded`: a placement
/// that keeps mains-per-core, but knows nothing of distances.
pub(super) fn assign(search: &mut SearchState<'_>, volume: &Volumes, crowded: bool) {
    for index in 0..search.instance.tenants.len() {
        let tenant = &search.instance.tenants[index];
        let mut assignment = TenantAssignment {
            tenant,
            index: index as u16,
            first: search.starts[index],
            mains: tenant.workers as u32,
            cores: crowded.then(|| {
                let cores = search.core_loads.len();
                search.rules.crowding[index * cores..][..cores].to_vec()
            }),
            left: (0..search.instance.cpus)
                .map(|cpu| volume.count(index, cpu))
                .collect(),
            open: tenant.cpus.clone(),
        };
        assignment.keep(search, true);
        assignment.assign_mains(search);
        assignment.keep(search, false);
        assignment.assign_peers(search);
    }
}

/// What is assigned to one tenant.
struct TenantAssignment<'a> {
    tenant: &'a Tenant,
    index: u16,
    first: usize,
    /// Mains that each core shall still get, if that is prescribed.
    cores: Option<Vec<u32>>,
    /// Mains that still have to be placed.
    mains: u32,
    /// Threads that each cpu still has to get.
    left: Vec<u32>,
    /// The cpus that may have to get some.
    open: Vec<u16>,
}

impl TenantAssignment<'_> {
    fn place(&mut self, search: &mut SearchState<'_>, thread: usize, cpu: usize) {
        search.place(thread, cpu);
        self.left[cpu] = self.left[cpu].saturating_sub(1);
        if search.threads[thread].main {
            self.mains = self.mains.saturating_sub(1);
            if let Some(cores) = &mut self.cores {
                let left = &mut cores[search.instance.core(cpu)];
                *left = left.saturating_sub(1);
            }
        }
    }

    /// Mains, or else peers, stay where they run.
    fn keep(&mut self, search: &mut SearchState<'_>, mains: bool) {
        if !self.tenant.is_running {
            return;
        }
        for (slot, &current_cpu) in self.tenant.current_cpus.iter().enumerate() {
            let (thread, is_main) = (self.first + slot, slot % self.tenant.threads == 0);
            let cpu = usize::from(current_cpu);
            let is_open = is_main == mains
                && current_cpu != NO_CPU
                && self.left[cpu] > 0
                && search.has_room(self.index, search.threads[thread].worker, cpu)
                && search.has_ranks(self.index, cpu, is_main.into(), (!is_main).into())
                && (!is_main || self.may_keep_main(cpu));
            if is_open {
                self.place(search, thread, cpu);
            }
        }
    }

    /// Mains that a cpu needs, because its threads are too many for the ranks of peers.
    fn needed(&self, cpu: usize) -> u32 {
        self.left[cpu].saturating_sub(self.tenant.peers_cap())
    }

    /// Whether the mains that are left suffice for the other cpus' needs if one stays on this one.
    fn may_keep_main(&self, cpu: usize) -> bool {
        let all: u32 = self
            .tenant
            .cpus
            .iter()
            .map(|&cpu| self.needed(cpu.into()))
            .sum();
        self.mains > all || self.needed(cpu) > 0
    }

    fn assign_mains(&mut self, search: &mut SearchState<'_>) {
        for worker in 0..self.tenant.workers {
            let thread = self.first + worker * self.tenant.threads;
            if search.threads[thread].cpu != NO_CPU {
                continue;
            }
            let left = &self.left;
            self.open.retain(|&cpu| left[usize::from(cpu)] > 0);
            let mut best = (i64::MIN, None);
            for cpu in self.open.iter().map(|&cpu| usize::from(cpu)) {
                if search.has_ranks(self.index, cpu, 1, 0) {
                    let key = self.main_worth(search, cpu);
                    if key > best.0 {
                        best = (key, Some(cpu));
                    }
                }
            }
            if let Some(cpu) = best.1 {
                self.place(search, thread, cpu);
            }
        }
    }

    /// How much a cpu wants the next main, as one number: need of it, the rules on mains, distance.
    fn main_worth(&self, search: &SearchState<'_>, cpu: usize) -> i64 {
        let core = search.instance.core(cpu);
        let has_room = match &self.cores {
            Some(cores) => cores[core] > 0,
            None => search.rules.core_mains > search.mains_near(cpu),
        };
        let is_light = !search.rules.is_full_cpu(search.loads[cpu], 1);
        let is_light_core = !search.rules.is_full_core(search.core_loads[core], 1);
        let is_fast = !search.instance.is_slow[cpu];
        let bits = [
            self.needed(cpu) > 0,
            has_room,
            is_fast,
            is_light,
            is_light_core,
        ];
        let fits = bits
            .into_iter()
            .fold(0, |all, bit| 2 * all + i64::from(bit));
        // no sum of distances of mains needs more bits
        (fits << 56) + search.mains_distance(cpu)
    }

    fn assign_peers(&mut self, search: &mut SearchState<'_>) {
        for worker in 0..self.tenant.workers {
            let main = self.first + worker * self.tenant.threads;
            for thread in main + 1..main + self.tenant.threads {
                if search.threads[thread].cpu != NO_CPU {
                    continue;
                }
                match self.best_for_peer(search, thread) {
                    Some(cpu) => self.place(search, thread, cpu),
                    None => self.place_by_chain(search, thread),
                }
            }
        }
    }

    fn best_for_peer(&mut self, search: &SearchState<'_>, thread: usize) -> Option<usize> {
        let left = &self.left;
        self.open.retain(|&cpu| left[usize::from(cpu)] > 0);
        let cells = search.cells(search.threads[thread].worker);
        let (worker_distance, held) = (&search.worker_distance[cells.clone()], &search.held[cells]);
        let peers = search.own_peers(self.index);
        let (worker_cap, peers_cap) = (self.tenant.worker_cap, self.tenant.peers_cap());
        let open = self.open.iter().map(|&cpu| usize::from(cpu));
        // as one number: pull before places left before the lowest cpu
        let mut best = (i64::MIN, None);
        for cpu in open {
            let worker_distance = (self.tenant.sign * i64::from(worker_distance[cpu])) << 18;
            let key = worker_distance + i64::from(left[cpu]);
            let is_open = held[cpu] < worker_cap && peers[cpu] < peers_cap;
            if is_open && key > best.0 {
                best = (key, Some(cpu));
            }
        }
        best.1
    }

    /// The worker takes a peer's place from another worker, who takes one from another, until one
    /// takes a place that is left.
    fn place_by_chain(&mut self, search: &mut SearchState<'_>, thread: usize) {
        let instance = search.instance;
        let mut chain = Chain {
            by: vec![None; instance.cpus],
            queue: VecDeque::new(),
        };
        chain.extend(search, self.tenant, thread);
        let mut asked = vec![false; instance.workers];
        // bound: each cpu is entered once
        while let Some(cpu) = chain.queue.pop_front() {
            if self.left[cpu] > 0 && search.has_ranks(self.index, cpu, 0, 1) {
                return self.follow(search, &chain, cpu);
            }
            for other in search.on[cpu].clone() {
                let there = search.threads[other as usize];
                let is_peer = there.tenant == self.index && !there.main;
                if is_peer && !std::mem::replace(&mut asked[there.worker as usize], true) {
                    chain.extend(search, self.tenant, other as usize);
                }
            }
        }
        // no chain: the proof sketch says that this is not so; the checker would refuse the rest
        if let Some(cpu) = (self.tenant.cpus.iter().map(|&cpu| usize::from(cpu)))
            .find(|&cpu| search.has_room(self.index, search.threads[thread].worker, cpu))
        {
            self.place(search, thread, cpu);
        }
    }

    /// Moves every thread on the chain that ends at a cpu one place on.
    fn follow(&mut self, search: &mut SearchState<'_>, chain: &Chain, end: usize) {
        self.left[end] -= 1;
        let mut to = end;
        // bound: a chain visits no cpu twice
        while let Some(thread) = chain.by[to] {
            let from = search.threads[thread].cpu;
            if from != NO_CPU {
                search.unplace(thread);
            }
            search.place(thread, to);
            if from == NO_CPU {
                return;
            }
            to = usize::from(from);
        }
    }
}

/// Who would come to each cpu.
struct Chain {
    /// The thread that would come.
    by: Vec<Option<usize>>,
    /// Cpus that were entered and not visited yet.
    queue: VecDeque<usize>,
}

impl Chain {
    /// Enters the cpus that a thread may go to.
    fn extend(&mut self, search: &SearchState<'_>, tenant: &Tenant, thread: usize) {
        let Thread {
            tenant: index,
            worker,
            ..
        } = search.threads[thread];
        for &cpu in &tenant.cpus {
            let cpu = usize::from(cpu);
            if self.by[cpu].is_none() && search.has_room(index, worker, cpu) {
                self.by[cpu] = Some(thread);
                self.queue.push_back(cpu);
            }
        }
    }
}
