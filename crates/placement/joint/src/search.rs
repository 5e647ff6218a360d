//! A placement of all threads with its counts, ready for moves.
//!
//! What a move gains is read from two tables that every move keeps up to date: `pull`, for each
//! worker and cpu the distances from there to the worker's threads, and `field`, for each cpu those
//! to all mains. So looking at a move costs O(1), making one O(C). Peers of a worker are alike
//! here: how many of them stay is the overlap of where they are with where they run; their ranks
//! come later. *Worth* is what counts: value minus the cost of moves, then the number of moves, as
//! one number.

use super::rules::Rules;
use super::site::{CORE, NOWHERE, Site};
use super::volume::Volume;

/// One cycle of worth; above any number of threads, so that value comes before the count of moves.
pub(super) const CYCLE: i64 = 1 << 17;

/// A thread: which party's, which worker's among those of all, whether the main, where.
#[derive(Clone, Copy)]
pub(super) struct Thread {
    pub(super) party: u16,
    pub(super) worker: u32,
    pub(super) main: bool,
    pub(super) cpu: u16,
}

#[derive(Clone, Copy)]
pub(super) enum Move {
    /// Two threads exchange their cpus.
    Exchange(usize, usize),
    /// A thread goes to a cpu.
    Shift(usize, usize),
}

pub(super) struct Search<'a> {
    pub(super) site: &'a Site,
    pub(super) rules: &'a Rules,
    /// Cycles that a moved thread costs.
    pub(super) move_cost: i64,
    /// Worker by worker, the main first.
    pub(super) threads: Vec<Thread>,
    /// First thread of each party, and their number at the end.
    pub(super) starts: Vec<usize>,
    /// Distances to the threads of each worker, by cpu.
    pub(super) pull: Vec<u32>,
    /// Threads of each worker, by cpu.
    pub(super) held: Vec<u16>,
    /// Peers of each worker that run there, by cpu.
    homes: Vec<u16>,
    /// Where each worker's main runs.
    main_homes: Vec<u16>,
    /// Where each worker's main is placed.
    main_cpus: Vec<u16>,
    own_mains: Vec<u16>,
    own_peers: Vec<u32>,
    /// Threads and obstacles of each cpu.
    pub(super) loads: Vec<u32>,
    pub(super) core_loads: Vec<u32>,
    mains: Vec<u32>,
    core_mains: Vec<u32>,
    /// Distances to all mains, by cpu.
    field: Vec<i64>,
    /// Threads on each cpu.
    pub(super) on: Vec<Vec<u32>>,
    crowd: u32,
    full_cpus: u32,
    full_cores: u32,
    pub(super) value: i64,
    /// Threads that are where they run.
    pub(super) kept: i64,
    /// What takes back the moves made since it was emptied, the first move first.
    pub(super) trail: Vec<Move>,
}

impl<'a> Search<'a> {
    /// Nobody placed yet; loads are those of the volumes to come.
    pub(super) fn new(site: &'a Site, rules: &'a Rules, volume: &Volume) -> Self {
        let cells = site.workers * site.cpus;
        let rows = site.parties.len() * site.cpus;
        let mut search = Self {
            site,
            rules,
            move_cost: site.move_cost,
            threads: Vec::with_capacity(site.slots),
            starts: vec![0],
            pull: vec![0; cells],
            held: vec![0; cells],
            homes: vec![0; cells],
            main_homes: Vec::with_capacity(site.workers),
            main_cpus: vec![NOWHERE; site.workers],
            own_mains: vec![0; rows],
            own_peers: vec![0; rows],
            loads: volume.loads.clone(),
            core_loads: site.core_loads(&volume.loads),
            mains: vec![0; site.cpus],
            core_mains: vec![0; site.counts[CORE]],
            field: vec![0; site.cpus],
            on: vec![Vec::new(); site.cpus],
            crowd: 0,
            full_cpus: 0,
            full_cores: 0,
            value: 0,
            kept: 0,
            trail: Vec::new(),
        };
        for (index, party) in site.parties.iter().enumerate() {
            for (worker, homes) in party.homes.chunks(party.threads).enumerate() {
                let worker = party.first_worker + worker;
                search.main_homes.push(homes[0]);
                for &home in homes[1..].iter().filter(|&&home| home != NOWHERE) {
                    search.homes[worker * site.cpus + usize::from(home)] += 1;
                }
                search.threads.extend((0..party.threads).map(|rank| Thread {
                    party: index as u16,
                    worker: worker as u32,
                    main: rank == 0,
                    cpu: NOWHERE,
                }));
            }
            search.starts.push(search.threads.len());
        }
        search
    }

    /// The cell of a worker and a cpu.
    pub(super) fn cell(&self, worker: u32, cpu: usize) -> usize {
        worker as usize * self.site.cpus + cpu
    }

    /// The cells of a worker.
    pub(super) fn cells(&self, worker: u32) -> std::ops::Range<usize> {
        self.cell(worker, 0)..self.cell(worker + 1, 0)
    }

    /// Peers of a party, by cpu.
    pub(super) fn own_peers(&self, party: u16) -> &[u32] {
        &self.own_peers[self.row(party, 0)..][..self.site.cpus]
    }

    fn row(&self, party: u16, cpu: usize) -> usize {
        usize::from(party) * self.site.cpus + cpu
    }

    /// How far the rules on mains are broken.
    pub(super) fn breach(&self) -> i64 {
        self.rules
            .breach(self.crowd, self.full_cpus, self.full_cores)
    }

    /// Whether mains on a cpu, or on its core, may be why a rule on mains is broken.
    pub(super) fn is_culprit(&self, cpu: usize) -> bool {
        let core = self.site.core(cpu);
        let (load, mains) = (self.core_loads[core], self.core_mains[core]);
        mains > self.rules.core_mains
            || self.rules.is_full_cpu(self.loads[cpu], self.mains[cpu])
            || self.rules.is_full_core(load, mains)
    }

    /// Mains on the most crowded core beyond its limit.
    pub(super) fn crowd(&self) -> u32 {
        let most = self.core_mains.iter().copied().max().unwrap_or(0);
        most.saturating_sub(self.rules.core_mains)
    }

    /// By how much each rule on mains is broken.
    pub(super) fn breaches(&self) -> [u32; 3] {
        let (loads, mains) = (&self.loads, &self.mains);
        self.rules
            .breaches((loads, mains), (&self.core_loads, &self.core_mains))
    }

    /// Distances from a cpu to all mains.
    pub(super) fn field(&self, cpu: usize) -> i64 {
        self.field[cpu]
    }

    /// Mains on the core of a cpu.
    pub(super) fn mains_near(&self, cpu: usize) -> u32 {
        self.core_mains[self.site.core(cpu)]
    }

    /// Puts a thread that has no cpu on one.
    pub(super) fn place(&mut self, thread: usize, to: usize) {
        let Thread {
            party,
            worker,
            main,
            ..
        } = self.threads[thread];
        let cell = self.cell(worker, to);
        self.kept += i64::from(self.is_home(thread, to));
        self.value += self.site.parties[usize::from(party)].sign * i64::from(self.pull[cell]);
        let row = worker as usize * self.site.cpus;
        let distances = self.site.distances(to);
        for (pull, distance) in self.pull[row..].iter_mut().zip(distances) {
            *pull += distance;
        }
        self.held[cell] += 1;
        self.threads[thread].cpu = to as u16;
        self.on[to].push(thread as u32);
        let row = self.row(party, to);
        if main {
            self.main_cpus[worker as usize] = to as u16;
            self.own_mains[row] += 1;
            self.value += self.field[to];
            for (field, &distance) in self.field.iter_mut().zip(distances) {
                *field += i64::from(distance);
            }
            self.count_mains(to, 1);
        } else {
            self.own_peers[row] += 1;
        }
    }

    /// Takes a thread off its cpu.
    pub(super) fn lift(&mut self, thread: usize) {
        let Thread {
            party,
            worker,
            main,
            cpu,
        } = self.threads[thread];
        let from = usize::from(cpu);
        let distances = self.site.distances(from);
        let row = worker as usize * self.site.cpus;
        for (pull, distance) in self.pull[row..].iter_mut().zip(distances) {
            *pull -= distance;
        }
        let cell = self.cell(worker, from);
        self.held[cell] -= 1;
        self.value -= self.site.parties[usize::from(party)].sign * i64::from(self.pull[cell]);
        self.on[from].retain(|&other| other as usize != thread);
        self.threads[thread].cpu = NOWHERE;
        let row = self.row(party, from);
        if main {
            self.main_cpus[worker as usize] = NOWHERE;
            self.own_mains[row] -= 1;
            for (field, &distance) in self.field.iter_mut().zip(distances) {
                *field -= i64::from(distance);
            }
            self.value -= self.field[from];
            self.count_mains(from, -1);
        } else {
            self.own_peers[row] -= 1;
        }
        self.kept -= i64::from(self.is_home(thread, from));
    }

    /// Whether an unplaced thread would be where it runs on a cpu.
    fn is_home(&self, thread: usize, cpu: usize) -> bool {
        let Thread { worker, main, .. } = self.threads[thread];
        if main {
            return usize::from(self.main_homes[worker as usize]) == cpu;
        }
        self.peers_at(worker, cpu) < self.homes[self.cell(worker, cpu)]
    }

    /// Peers of a worker on a cpu.
    fn peers_at(&self, worker: u32, cpu: usize) -> u16 {
        let has_main = usize::from(self.main_cpus[worker as usize]) == cpu;
        self.held[self.cell(worker, cpu)] - u16::from(has_main)
    }

    fn count_mains(&mut self, cpu: usize, more: i32) {
        let core = self.site.core(cpu);
        self.tally(cpu, core, -1);
        self.mains[cpu] = self.mains[cpu].saturating_add_signed(more);
        self.core_mains[core] = self.core_mains[core].saturating_add_signed(more);
        self.tally(cpu, core, 1);
    }

    fn count_load(&mut self, cpu: usize, more: i32) {
        let core = self.site.core(cpu);
        self.tally(cpu, core, -1);
        self.loads[cpu] = self.loads[cpu].saturating_add_signed(more);
        self.core_loads[core] = self.core_loads[core].saturating_add_signed(more);
        self.tally(cpu, core, 1);
    }

    /// Adds or takes what a cpu and its core contribute to the breaches.
    fn tally(&mut self, cpu: usize, core: usize, sign: i32) {
        let crowd = self.core_mains[core].saturating_sub(self.rules.core_mains) as i32;
        let cpus = self.rules.is_full_cpu(self.loads[cpu], self.mains[cpu]);
        let cores = self
            .rules
            .is_full_core(self.core_loads[core], self.core_mains[core]);
        let add = |sum: &mut u32, more: i32| *sum = sum.saturating_add_signed(sign * more);
        add(&mut self.crowd, crowd);
        add(&mut self.full_cpus, cpus.into());
        add(&mut self.full_cores, cores.into());
    }

    /// Whether a worker may have one more thread on a cpu.
    pub(super) fn has_room(&self, party: u16, worker: u32, cpu: usize) -> bool {
        let of = &self.site.parties[usize::from(party)];
        of.allows[cpu] && self.held[self.cell(worker, cpu)] < of.worker_cap
    }

    /// Whether a party may have so many more mains and peers on a cpu.
    pub(super) fn has_ranks(&self, party: u16, cpu: usize, mains: i32, peers: i32) -> bool {
        let of = &self.site.parties[usize::from(party)];
        let row = self.row(party, cpu);
        i32::from(self.own_mains[row]) + mains <= i32::from(of.rank_cap)
            && self.own_peers[row] as i32 + peers <= of.peers_cap() as i32
    }

    /// What a thread's worker gains if the thread goes to a cpu, moves counted, mains not.
    pub(super) fn worth(&self, thread: usize, to: usize) -> i64 {
        let Thread {
            party, worker, cpu, ..
        } = self.threads[thread];
        let (of, from) = (&self.site.parties[usize::from(party)], usize::from(cpu));
        let pull = |cpu: usize| i64::from(self.pull[self.cell(worker, cpu)]);
        let farther =
            pull(to) - self.site.distance(from, to) - pull(from) + self.site.distance(from, from);
        let stays = if of.is_running {
            self.stays(thread, to)
        } else {
            0
        };
        of.sign * farther * CYCLE + stays * self.stay_worth()
    }

    /// What it is worth that a thread stays.
    pub(super) fn stay_worth(&self) -> i64 {
        self.move_cost * CYCLE + 1
    }

    /// How many more threads are where they run if a thread goes to a cpu.
    pub(super) fn stays(&self, thread: usize, to: usize) -> i64 {
        let Thread {
            worker, main, cpu, ..
        } = self.threads[thread];
        let from = usize::from(cpu);
        if main {
            let home = usize::from(self.main_homes[worker as usize]);
            return i64::from(home == to) - i64::from(home == from);
        }
        let comes = self.peers_at(worker, to) < self.homes[self.cell(worker, to)];
        let leaves = self.peers_at(worker, from) <= self.homes[self.cell(worker, from)];
        i64::from(comes) - i64::from(leaves)
    }

    /// What the mains gain if one of them goes from a cpu to another.
    pub(super) fn mains_worth(&self, from: usize, to: usize) -> i64 {
        let at = |cpu: usize| self.site.distance(from, cpu);
        (self.field[to] - at(to) - self.field[from] + at(from)) * CYCLE
    }

    /// How the breaches change if so many mains and threads go from a cpu to another.
    pub(super) fn breach_change(&self, from: usize, to: usize, mains: i32, load: i32) -> i64 {
        let (a, b) = (self.site.core(from), self.site.core(to));
        let (mut crowd, mut full_cpus, mut full_cores) = (
            self.crowd as i32,
            self.full_cpus as i32,
            self.full_cores as i32,
        );
        for (cpu, sign) in [(from, -1), (to, 1)] {
            let after = |sum: u32, more: i32| sum.saturating_add_signed(sign * more);
            let (n, m) = (self.loads[cpu], self.mains[cpu]);
            full_cpus += i32::from(self.rules.is_full_cpu(after(n, load), after(m, mains)))
                - i32::from(self.rules.is_full_cpu(n, m));
            if a == b {
                continue;
            }
            let core = self.site.core(cpu);
            let (n, m) = (self.core_loads[core], self.core_mains[core]);
            let (n2, m2) = (after(n, load), after(m, mains));
            let limit = self.rules.core_mains;
            crowd += m2.saturating_sub(limit) as i32 - m.saturating_sub(limit) as i32;
            full_cores += i32::from(self.rules.is_full_core(n2, m2))
                - i32::from(self.rules.is_full_core(n, m));
        }
        let after = [crowd, full_cpus, full_cores].map(|count| count.max(0) as u32);
        self.rules.breach(after[0], after[1], after[2]) - self.breach()
    }

    /// What counts, of all: value less cost of moves, then threads that stay.
    pub(super) fn worth_of_all(&self) -> i64 {
        self.value * CYCLE + self.kept * self.stay_worth()
    }

    /// The threads of a thread's worker, the main first.
    pub(super) fn mates(&self, thread: usize) -> std::ops::Range<usize> {
        let party = usize::from(self.threads[thread].party);
        let (start, threads) = (self.starts[party], self.site.parties[party].threads);
        let first = thread - (thread - start) % threads;
        first..first + threads
    }

    /// Takes back all moves on the trail, and gives them.
    pub(super) fn undo(&mut self) -> Vec<Move> {
        let trail = std::mem::take(&mut self.trail);
        for &step in trail.iter().rev() {
            match step {
                Move::Exchange(first, second) => self.exchange(first, second),
                Move::Shift(thread, from) => self.shift(thread, from),
            }
        }
        self.trail.clear();
        trail
    }

    /// Exchanges the cpus of two threads.
    pub(super) fn exchange(&mut self, first: usize, second: usize) {
        self.trail.push(Move::Exchange(first, second));
        let [a, b] = [first, second].map(|thread| usize::from(self.threads[thread].cpu));
        self.lift(first);
        self.lift(second);
        self.place(first, b);
        self.place(second, a);
    }

    /// Moves a thread to a cpu, with its load.
    pub(super) fn shift(&mut self, thread: usize, to: usize) {
        let from = usize::from(self.threads[thread].cpu);
        self.trail.push(Move::Shift(thread, from));
        self.lift(thread);
        self.count_load(from, -1);
        self.count_load(to, 1);
        self.place(thread, to);
    }
}
