//! Which worker gets which of the threads that the volumes foresee.
//!
//! **Problem.** Every worker gets one main and T-1 peers, so that each cpu holds what the volumes
//! say. **Approach.** Threads that run stay, as far as the volumes have a place for them. Then mains
//! go where the other mains are farthest, on cpus whose peers alone would be too many for T-1 ranks
//! first. Then peers, worker by worker, each where it is best for the worker. A worker for which
//! nothing is left that it may take gets a place along a chain: it takes one of another worker's,
//! who takes another. **Proof sketch.** Once mains are placed, with n threads on a cpu of which m are
//! mains, peers are a transport of T-1 from each worker, n - m to each cpu, at most ceil(T/C)
//! threads of a worker on a cpu; it has a solution because the fractions n/W are one (see the head of
//! the `deal` for one deployment), and a transport that is not complete has an augmenting chain.
//! **Limits.** O(threads x C), and O(W x C) for a chain.

use std::collections::VecDeque;

use super::search::Search;
use super::site::{NOWHERE, Party};
use super::volume::Volume;

/// Places every thread.
pub(super) fn deal(search: &mut Search<'_>, volume: &Volume) {
    for index in 0..search.site.parties.len() {
        let party = &search.site.parties[index];
        let mut hand = Hand {
            party,
            index: index as u16,
            first: search.starts[index],
            left: (0..search.site.cpus)
                .map(|cpu| volume.count(index, cpu))
                .collect(),
        };
        hand.keep(search);
        hand.deal_mains(search);
        hand.deal_peers(search);
    }
}

/// What is dealt to one party.
struct Hand<'a> {
    party: &'a Party,
    index: u16,
    /// Its first thread.
    first: usize,
    /// Threads that each cpu still has to get.
    left: Vec<u32>,
}

impl Hand<'_> {
    fn place(&mut self, search: &mut Search<'_>, thread: usize, cpu: usize) {
        search.place(thread, cpu);
        self.left[cpu] = self.left[cpu].saturating_sub(1);
    }

    /// Threads stay where they run.
    fn keep(&mut self, search: &mut Search<'_>) {
        if !self.party.is_running {
            return;
        }
        for (slot, &home) in self.party.homes.iter().enumerate() {
            let (thread, is_main) = (self.first + slot, slot % self.party.threads == 0);
            let cpu = usize::from(home);
            let is_open = home != NOWHERE
                && self.left[cpu] > 0
                && search.has_room(self.index, search.threads[thread].worker, cpu)
                && search.has_ranks(self.index, cpu, is_main.into(), (!is_main).into());
            if is_open {
                self.place(search, thread, cpu);
            }
        }
    }

    fn deal_mains(&mut self, search: &mut Search<'_>) {
        let peers = self.party.peers_cap();
        for worker in 0..self.party.workers {
            let thread = self.first + worker * self.party.threads;
            if search.threads[thread].cpu != NOWHERE {
                continue;
            }
            let id = search.threads[thread].worker;
            let open = self
                .party
                .cpus
                .iter()
                .map(|&cpu| usize::from(cpu))
                .filter(|&cpu| {
                    self.left[cpu] > 0
                        && search.has_room(self.index, id, cpu)
                        && search.has_ranks(self.index, cpu, 1, 0)
                });
            let best = open.max_by_key(|&cpu| {
                // what is left but one peer short of ranks has to be a main's
                let needed = !search.has_ranks(self.index, cpu, 0, self.left[cpu] as i32);
                let room = search.rules.core_mains > search.mains_near(cpu);
                let pull = self.party.sign * i64::from(search.pull[search.cell(id, cpu)]);
                (
                    needed && peers > 0,
                    room,
                    search.field(cpu) + pull,
                    usize::MAX - cpu,
                )
            });
            if let Some(cpu) = best {
                self.place(search, thread, cpu);
            } else {
                self.main_by_exchange(search, thread);
            }
        }
    }

    /// A main for which nothing is left beside its worker's peers takes a peer's place.
    fn main_by_exchange(&mut self, search: &mut Search<'_>, thread: usize) {
        let row = thread..thread + self.party.threads;
        let mut peers = row.skip(1).filter(|&peer| {
            let cpu = usize::from(search.threads[peer].cpu);
            search.threads[peer].cpu != NOWHERE && search.has_ranks(self.index, cpu, 1, -1)
        });
        if let Some(peer) = peers.next() {
            let cpu = usize::from(search.threads[peer].cpu);
            search.lift(peer);
            search.place(thread, cpu);
        }
    }

    fn deal_peers(&mut self, search: &mut Search<'_>) {
        for worker in 0..self.party.workers {
            let main = self.first + worker * self.party.threads;
            // mains that found no place take what a chain frees, then peers
            for thread in main..main + self.party.threads {
                if search.threads[thread].cpu != NOWHERE {
                    continue;
                }
                match self.best_for_peer(search, thread) {
                    Some(cpu) => self.place(search, thread, cpu),
                    None => self.place_by_chain(search, thread),
                }
            }
        }
    }

    fn best_for_peer(&self, search: &Search<'_>, thread: usize) -> Option<usize> {
        let id = search.threads[thread].worker;
        let is_main = search.threads[thread].main;
        let open = self
            .party
            .cpus
            .iter()
            .map(|&cpu| usize::from(cpu))
            .filter(|&cpu| {
                self.left[cpu] > 0
                    && search.has_room(self.index, id, cpu)
                    && search.has_ranks(self.index, cpu, is_main.into(), (!is_main).into())
            });
        open.max_by_key(|&cpu| {
            let pull = self.party.sign * i64::from(search.pull[search.cell(id, cpu)]);
            (pull, self.left[cpu], usize::MAX - cpu)
        })
    }

    /// The worker takes a peer's place from another worker, who takes one from another, until one
    /// takes a place that is left.
    fn place_by_chain(&mut self, search: &mut Search<'_>, thread: usize) {
        let site = search.site;
        let is_main = search.threads[thread].main;
        let mut came: Vec<Option<u32>> = vec![None; site.cpus];
        let mut by: Vec<Option<usize>> = vec![None; site.cpus];
        let mut queue = VecDeque::new();
        let enter = |search: &Search<'_>,
                     moving: usize,
                     queue: &mut VecDeque<usize>,
                     by: &mut Vec<Option<usize>>| {
            let id = search.threads[moving].worker;
            for &cpu in &self.party.cpus {
                let cpu = usize::from(cpu);
                if by[cpu].is_none() && search.has_room(self.index, id, cpu) {
                    by[cpu] = Some(moving);
                    queue.push_back(cpu);
                }
            }
        };
        enter(search, thread, &mut queue, &mut by);
        let mut asked = vec![false; self.party.workers];
        // bound: each cpu is entered once
        while let Some(cpu) = queue.pop_front() {
            let goes_main = by[cpu] == Some(thread) && is_main;
            let fits = search.has_ranks(self.index, cpu, goes_main.into(), (!goes_main).into());
            if self.left[cpu] > 0 && fits {
                self.follow(search, (&by, &came), cpu);
                return;
            }
            for other in search.on[cpu].clone() {
                let there = search.threads[other as usize];
                let local =
                    there.worker as usize - self.party.first_worker.min(there.worker as usize);
                let moves = there.party == self.index && there.main == goes_main;
                if moves && !std::mem::replace(&mut asked[local], true) {
                    for &next in &self.party.cpus {
                        let next = usize::from(next);
                        let open =
                            by[next].is_none() && search.has_room(self.index, there.worker, next);
                        if open {
                            by[next] = Some(other as usize);
                            came[next] = Some(cpu as u32);
                            queue.push_back(next);
                        }
                    }
                }
            }
        }
        // no chain: the proof sketch says that this is not so; the checker would refuse the rest
        if let Some(cpu) = (self.party.cpus.iter().map(|&cpu| usize::from(cpu)))
            .find(|&cpu| search.has_room(self.index, search.threads[thread].worker, cpu))
        {
            self.place(search, thread, cpu);
        }
    }

    /// Moves everybody on the chain that ends at a cpu one place on.
    fn follow(
        &mut self,
        search: &mut Search<'_>,
        (by, came): (&[Option<usize>], &[Option<u32>]),
        end: usize,
    ) {
        self.left[end] -= 1;
        let mut to = end;
        // bound: a chain visits no cpu twice
        while let Some(thread) = by[to] {
            if search.threads[thread].cpu == NOWHERE {
                search.place(thread, to);
                return;
            }
            search.lift(thread);
            search.place(thread, to);
            match came[to] {
                Some(before) => to = before as usize,
                None => return,
            }
        }
    }
}
