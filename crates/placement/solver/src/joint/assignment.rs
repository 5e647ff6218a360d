//! Assigns the threads of the volumes to workers.
//!
//! **Problem.** Every worker gets one main and T-1 peers, so that each cpu holds its volume.
//! **Approach.** Running threads stay, as far as the volumes have a place for them. Then mains are
//! placed where the other mains are farthest, first on cpus whose volume exceeds the T-1 ranks of
//! peers. Then peers, worker by worker, each on the best cpu for the worker. A worker without an
//! allowed place gets one along an augmenting path: it takes a place of another worker, which
//! takes another. **Proof sketch.** Once mains are placed, with n threads on a cpu of which m are
//! mains, peers are a transportation problem with a supply of T-1 per worker, a demand of n - m per
//! cpu, and at most ceil(T/C) threads of a worker on a cpu; it is feasible because the fractions
//! n/W are a solution (see the head of `assignment` for one deployment), and an incomplete
//! transport has an augmenting path. **Limits.** O(threads x C), and O(W x C) for a path.

use std::collections::VecDeque;

use super::instance::{NO_CPU, Tenant};
use super::search_state::{JointThread, SearchState};
use super::volumes::JointVolumes;

/// Places every thread. If `crowded`, mains go to the cores that `rules` assigned: such a placement
/// keeps mains-per-core but ignores distances.
pub(super) fn assign(search: &mut SearchState<'_>, volume: &JointVolumes, crowded: bool) {
    for index in 0..search.instance.tenants.len() {
        let tenant = &search.instance.tenants[index];
        let mut assignment = TenantAssignment {
            tenant,
            index: index as u16,
            first: search.starts[index],
            mains: tenant.workers as u32,
            cores: crowded.then(|| {
                let cores = search.core_loads.len();
                search.rules.mains_by_core[index * cores..][..cores].to_vec()
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

/// State of the assignment of one tenant.
struct TenantAssignment<'a> {
    tenant: &'a Tenant,
    index: u16,
    first: usize,
    /// Mains that each core still has to get, if prescribed.
    cores: Option<Vec<u32>>,
    /// Mains that still have to be placed.
    mains: u32,
    /// Threads that each cpu still has to get.
    left: Vec<u32>,
    /// The cpus that may still have to get threads.
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

    /// Keeps mains, or else peers, on their current cpus.
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

    /// Mains that a cpu needs because its remaining threads exceed the ranks of peers.
    fn needed(&self, cpu: usize) -> u32 {
        self.left[cpu].saturating_sub(self.tenant.peers_cap())
    }

    /// Whether the remaining mains suffice for the needs of the other cpus if one stays on this
    /// cpu.
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
                    let key = self.main_preference(search, cpu);
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

    /// Preference for a cpu for the next main as one number: need, the rules on mains, distance.
    fn main_preference(&self, search: &SearchState<'_>, cpu: usize) -> i64 {
        let core = search.instance.core(cpu);
        let has_room = match &self.cores {
            Some(cores) => cores[core] > 0,
            None => search.rules.core_mains > search.mains_on_core(cpu),
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
        // sums of distances of mains need at most 56 bits
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
        // as one number: distance within the worker, then places left, then the lowest cpu
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

    /// The worker takes the place of another worker's peer, which takes that of another, until one
    /// takes a free place.
    fn place_by_chain(&mut self, search: &mut SearchState<'_>, thread: usize) {
        let instance = search.instance;
        let mut path = AugmentingPath {
            thread_to: vec![None; instance.cpus],
            queue: VecDeque::new(),
        };
        path.extend(search, self.tenant, thread);
        let mut is_visited = vec![false; instance.workers];
        // bound: each cpu is entered once
        while let Some(cpu) = path.queue.pop_front() {
            if self.left[cpu] > 0 && search.has_ranks(self.index, cpu, 0, 1) {
                return self.apply_path(search, &path, cpu);
            }
            for other in search.threads_on_cpu[cpu].clone() {
                let there = search.threads[other as usize];
                let is_peer = there.tenant == self.index && !there.main;
                if is_peer && !std::mem::replace(&mut is_visited[there.worker as usize], true) {
                    path.extend(search, self.tenant, other as usize);
                }
            }
        }
        // excluded by the proof sketch; otherwise the checker rejects the result
        if let Some(cpu) = (self.tenant.cpus.iter().map(|&cpu| usize::from(cpu)))
            .find(|&cpu| search.has_room(self.index, search.threads[thread].worker, cpu))
        {
            self.place(search, thread, cpu);
        }
    }

    /// Moves every thread on the path that ends at a cpu by one place.
    fn apply_path(&mut self, search: &mut SearchState<'_>, path: &AugmentingPath, end: usize) {
        self.left[end] -= 1;
        let mut to = end;
        // bound: a path visits no cpu twice
        while let Some(thread) = path.thread_to[to] {
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

/// Search for an augmenting path.
struct AugmentingPath {
    /// Per cpu, the thread that would move there.
    thread_to: Vec<Option<usize>>,
    /// Cpus that were entered and not visited yet.
    queue: VecDeque<usize>,
}

impl AugmentingPath {
    /// Enters the cpus that a thread may move to.
    fn extend(&mut self, search: &SearchState<'_>, tenant: &Tenant, thread: usize) {
        let JointThread {
            tenant: index,
            worker,
            ..
        } = search.threads[thread];
        for &cpu in &tenant.cpus {
            let cpu = usize::from(cpu);
            if self.thread_to[cpu].is_none() && search.has_room(index, worker, cpu) {
                self.thread_to[cpu] = Some(thread);
                self.queue.push_back(cpu);
            }
        }
    }
}
