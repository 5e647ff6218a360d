//! Local search: improves an assignment by moving threads.
//!
//! **Problem.** A construction worker by worker leaves the last workers only what the others did
//! not take. **Approach.** Two moves: *exchange* the cpus of two threads (volumes stay; if one of
//! them is a main, the mains move) and *shift* a thread to another cpu (an extra thread moves). A
//! move is made if it keeps every rule as far as the construction kept it and increases the value.
//! **Proof sketch.** The value is a bounded integer that increases with each move, so the search
//! terminates; every intermediate state satisfies the conditions of `assignment` and
//! `rank_coloring`. **Limits.** A pass evaluates O((WT)^2) exchanges; the caller's budget is
//! checked between threads, and a search that is cut short leaves a valid assignment.

use crate::limits::{MOVE_STEPS, PERTURBATION_TRIES_MAX};
use crate::single::allowed::Allowed;
use crate::single::assignment::Assignment;
use crate::single::domains::{CORE, CPU, Domains, LEVELS, pairs};
use crate::{Mode, WorkBudget};

/// A thread: its worker, whether it is the main, its cpu.
#[derive(Clone, Copy)]
pub(crate) struct Thread {
    pub(crate) worker: u16,
    pub(crate) main: bool,
    pub(crate) cpu: u16,
}

/// An assignment with its counts, on which moves can be evaluated.
#[derive(Clone)]
pub(crate) struct Search<'a> {
    pub(crate) domains: &'a Domains,
    pub(crate) allowed: Allowed,
    pub(crate) threads: Vec<Thread>,
    /// Threads of a worker in a domain: `within[level][worker * domains + domain]`.
    pub(crate) within: [Vec<u16>; LEVELS],
    /// Mains in a domain.
    pub(crate) mains: [Vec<u32>; LEVELS],
    /// Threads on each cpu.
    pub(crate) volume: Vec<u32>,
    pub(crate) core_volume: Vec<u32>,
    /// Indices of the threads on each cpu.
    pub(crate) on_cpu: Vec<Vec<u16>>,
    pub(crate) full_main_cpus: u32,
    pub(crate) full_main_cores: u32,
    /// Sign of closeness within a worker in the objective: +1 compact, -1 scatter.
    pub(crate) sign: i64,
}

impl<'a> Search<'a> {
    pub(crate) fn of(domains: &'a Domains, allowed: &Allowed, assignment: &Assignment) -> Self {
        let mut search = Self {
            domains,
            allowed: *allowed,
            threads: Vec::with_capacity(domains.workers * domains.threads),
            within: std::array::from_fn(|l| vec![0; domains.workers * domains.count(l)]),
            mains: std::array::from_fn(|l| vec![0; domains.count(l)]),
            volume: vec![0; domains.cpus],
            core_volume: vec![0; domains.count(CORE)],
            on_cpu: vec![Vec::new(); domains.cpus],
            full_main_cpus: 0,
            full_main_cores: 0,
            sign: if domains.mode == Mode::Compact { 1 } else { -1 },
        };
        for (worker, (&main, peers)) in assignment.mains.iter().zip(&assignment.peers).enumerate() {
            let worker = worker as u16;
            search.add_thread(Thread {
                worker,
                main: true,
                cpu: main,
            });
            for &cpu in peers {
                search.add_thread(Thread {
                    worker,
                    main: false,
                    cpu,
                });
            }
        }
        search.full_main_cpus = (0..domains.cpus)
            .filter(|&cpu| search.is_full(cpu, 0, 0))
            .count() as u32;
        search.full_main_cores = (0..domains.count(CORE))
            .filter(|&core| search.is_full_core(core, 0, 0))
            .count() as u32;
        search
    }

    fn add_thread(&mut self, thread: Thread) {
        let cpu = usize::from(thread.cpu);
        for level in 0..LEVELS {
            let at = self.index(level, thread.worker, cpu);
            self.within[level][at] += 1;
            self.mains[level][self.domains.domain(level, cpu)] += u32::from(thread.main);
        }
        self.volume[cpu] += 1;
        self.core_volume[self.domains.core(cpu)] += 1;
        self.on_cpu[cpu].push(self.threads.len() as u16);
        self.threads.push(thread);
    }

    /// The current assignment.
    pub(crate) fn assignment(&self) -> Assignment {
        let mut assignment = Assignment {
            mains: vec![0; self.domains.workers],
            peers: vec![Vec::new(); self.domains.workers],
        };
        for thread in &self.threads {
            let worker = usize::from(thread.worker);
            if thread.main {
                assignment.mains[worker] = thread.cpu;
            } else {
                assignment.peers[worker].push(thread.cpu);
            }
        }
        assignment
            .peers
            .iter_mut()
            .for_each(|peers| peers.sort_unstable());
        assignment
    }

    /// Objective of the assignment.
    pub(crate) fn objective(&self) -> i64 {
        let sum = |of: [i64; LEVELS]| of.iter().sum();
        self.domains
            .objective(sum(self.closeness_of_mains()), sum(self.closeness()))
    }

    /// Closeness within workers, level by level.
    pub(crate) fn closeness(&self) -> [i64; LEVELS] {
        std::array::from_fn(|level| {
            let counts = self.within[level].iter();
            self.domains.gain[level] * counts.map(|&x| pairs(x.into())).sum::<i64>()
        })
    }

    /// Closeness of the mains, level by level.
    pub(crate) fn closeness_of_mains(&self) -> [i64; LEVELS] {
        std::array::from_fn(|level| {
            let counts = self.mains[level].iter();
            self.domains.gain[level] * counts.map(|&x| pairs(x)).sum::<i64>()
        })
    }
    /// Makes improving moves until there is none, `goal` is reached, `rounds` threads have been
    /// visited, or the budget is spent.
    pub(crate) fn climb(&mut self, goal: i64, rounds: usize, budget: &mut WorkBudget) {
        let mut value = self.objective();
        let mut idle = 0;
        let count = self.threads.len();
        let mut first = 0;
        let steps = MOVE_STEPS * (count + self.domains.cpus);
        let mut visited = 0;
        // bound: of any `count` consecutive rounds, one gains at least 1
        while idle < count && value < goal && visited < rounds && !budget.spend(steps) {
            visited += 1;
            let gained = self.first_improving_move(first);
            value += gained;
            idle = if gained > 0 { 0 } else { idle + 1 };
            first = (first + 1) % count;
        }
    }

    /// Whether the assignment keeps the limits of every cpu, core and worker.
    pub(crate) fn is_valid(&self) -> bool {
        let cpus = (0..self.domains.cpus).all(|cpu| self.is_feasible_move(cpu, cpu, 0, 0));
        let counts = |worker: usize| {
            let own = self.domains.count(CPU);
            let row = &self.within[CPU][worker * own..][..own];
            row.iter()
                .all(|&x| u32::from(x) <= self.domains.rules.worker_cap)
                && row.iter().map(|&x| usize::from(x)).sum::<usize>() == self.domains.threads
        };
        let cores = (0..self.domains.count(CORE)).all(|core| self.core_violation(core, 0, 0) == 0);
        cpus && cores && (0..self.domains.workers).all(counts)
    }

    pub(crate) fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Makes a random feasible move regardless of its gain; `below(n)` chooses a number below n.
    pub(crate) fn random_feasible_move(&mut self, below: &mut dyn FnMut(usize) -> usize) {
        for _ in 0..PERTURBATION_TRIES_MAX {
            let first = below(self.threads.len());
            let kind = below(4);
            if kind == 0 {
                let (a, b) = (below(self.domains.cpus), below(self.domains.cpus));
                if a != b && self.swap_cpus(a, b) {
                    return;
                }
            } else if kind == 1 {
                let second = below(self.threads.len());
                let (a, b) = (self.threads[first], self.threads[second]);
                let idle = a.cpu == b.cpu || (a.worker == b.worker && a.main == b.main);
                if !idle && self.may_exchange(first, second) {
                    return self.exchange(first, second);
                }
            } else {
                let to = below(self.domains.cpus);
                if to != usize::from(self.threads[first].cpu) && self.may_shift(first, to) {
                    return self.shift(first, to);
                }
            }
        }
    }

    /// Exchanges all threads of two cpus, if the rules allow it.
    fn swap_cpus(&mut self, a: usize, b: usize) -> bool {
        let more = |of: &[u32]| of[a] as i32 - of[b] as i32;
        let (threads, mains) = (more(&self.volume), more(&self.mains[CPU]));
        if !self.is_feasible_move(a, b, threads, mains) {
            return false;
        }
        self.update_counts(a, b, threads, mains);
        for thread in 0..self.threads.len() {
            let cpu = usize::from(self.threads[thread].cpu);
            if cpu == a {
                self.relocate(thread, b);
            } else if cpu == b {
                self.relocate(thread, a);
            }
        }
        true
    }

    /// A thread of the assignment.
    pub(crate) fn thread(&self, index: usize) -> Thread {
        self.threads[index]
    }

    /// Gain of a thread's worker if the thread moves, for each cpu.
    pub(crate) fn own_gains(&self, thread: usize) -> Vec<i64> {
        let gain = |to: usize| self.own_gain(thread, to);
        (0..self.domains.cpus).map(gain).collect()
    }

    /// The same for one cpu.
    pub(crate) fn own_gain(&self, thread: usize, to: usize) -> i64 {
        let Thread { worker, cpu, .. } = self.threads[thread];
        self.sign * self.closeness_gain(worker, cpu.into(), to)
    }

    /// Makes the first improving move of `first`; returns its gain.
    fn first_improving_move(&mut self, first: usize) -> i64 {
        let own = self.own_gains(first);
        for second in 0..self.threads.len() {
            let to = usize::from(self.threads[second].cpu);
            let gain = self.exchange_gain(first, second, own[to]);
            if gain > 0 && self.may_exchange(first, second) {
                self.exchange(first, second);
                return gain;
            }
        }
        if self.domains.rules.cpu_volume.0 == self.domains.rules.cpu_volume.1 {
            return 0;
        }
        for (cpu, &own) in own.iter().enumerate() {
            let gain = self.shift_gain(first, cpu, own);
            if gain > 0 && self.may_shift(first, cpu) {
                self.shift(first, cpu);
                return gain;
            }
        }
        0
    }

    fn index(&self, level: usize, worker: u16, cpu: usize) -> usize {
        usize::from(worker) * self.domains.count(level) + self.domains.domain(level, cpu)
    }

    /// Closeness that a worker gains if one of its threads moves from `from` to `to`.
    pub(crate) fn closeness_gain(&self, worker: u16, from: usize, to: usize) -> i64 {
        let mut sum = 0;
        for level in 0..self.domains.levels {
            let (a, b) = (
                self.domains.domain(level, from),
                self.domains.domain(level, to),
            );
            if a == b {
                break;
            }
            let base = usize::from(worker) * self.domains.count(level);
            let (here, there) = (self.within[level][base + a], self.within[level][base + b]);
            sum += self.domains.gain[level] * (i64::from(there) - i64::from(here) + 1);
        }
        sum
    }

    /// Closeness that the mains gain if one of them moves from `from` to `to`.
    pub(crate) fn mains_closeness_gain(&self, from: usize, to: usize) -> i64 {
        let mut sum = 0;
        for level in 0..self.domains.levels {
            let (a, b) = (
                self.domains.domain(level, from),
                self.domains.domain(level, to),
            );
            if a == b {
                break;
            }
            let (here, there) = (self.mains[level][a], self.mains[level][b]);
            sum += self.domains.gain[level] * (i64::from(there) - i64::from(here) + 1);
        }
        sum
    }

    /// Gain of exchanging two threads; `own` is the gain of the first one's worker.
    pub(crate) fn exchange_gain(&self, first: usize, second: usize, own: i64) -> i64 {
        let (a, b) = (self.threads[first], self.threads[second]);
        let (from, to) = (usize::from(a.cpu), usize::from(b.cpu));
        if from == to || (a.worker == b.worker && a.main == b.main) {
            return 0;
        }
        let mut gain = 0;
        if a.worker != b.worker {
            gain += own + self.sign * self.closeness_gain(b.worker, to, from);
        }
        if a.main && !b.main {
            gain -= self.mains_closeness_gain(from, to);
        } else if b.main && !a.main {
            gain -= self.mains_closeness_gain(to, from);
        }
        gain
    }

    pub(crate) fn may_exchange(&self, first: usize, second: usize) -> bool {
        let (a, b) = (self.threads[first], self.threads[second]);
        let (from, to) = (usize::from(a.cpu), usize::from(b.cpu));
        if a.worker != b.worker && !(self.has_room(a.worker, to) && self.has_room(b.worker, from)) {
            return false;
        }
        match (a.main, b.main) {
            (true, false) => self.is_feasible_move(from, to, 0, 1),
            (false, true) => self.is_feasible_move(to, from, 0, 1),
            _ => true,
        }
    }

    pub(crate) fn has_room(&self, worker: u16, cpu: usize) -> bool {
        self.worker_threads_on_cpu(worker, cpu) < self.domains.rules.worker_cap
    }

    /// Threads of a worker on a cpu.
    pub(crate) fn worker_threads_on_cpu(&self, worker: u16, cpu: usize) -> u32 {
        self.within[CPU][self.index(CPU, worker, cpu)].into()
    }

    pub(crate) fn shift_gain(&self, thread: usize, to: usize, own: i64) -> i64 {
        let thread = self.threads[thread];
        let from = usize::from(thread.cpu);
        if from == to {
            return 0;
        }
        let mains = if thread.main {
            self.mains_closeness_gain(from, to)
        } else {
            0
        };
        own - mains
    }

    pub(crate) fn may_shift(&self, thread: usize, to: usize) -> bool {
        let thread = self.threads[thread];
        self.has_room(thread.worker, to)
            && self.is_feasible_move(thread.cpu.into(), to, 1, i32::from(thread.main))
    }

    /// Whether `threads` threads, `mains` of them mains, may move from one cpu to another.
    fn is_feasible_move(&self, from: usize, to: usize, threads: i32, mains: i32) -> bool {
        let full = self.full_after(from, to, threads, mains);
        self.cpus_hold(from, to, threads, mains)
            && self.core_is_feasible(from, to, -threads, -mains)
            && self.core_is_feasible(to, from, threads, mains)
            && full.0 <= self.allowed.full_main_cpus
            && full.1 <= self.allowed.full_main_cores
    }

    /// Whether the core of `cpu` may gain so much from the core of `other`.
    fn core_is_feasible(&self, cpu: usize, other: usize, threads: i32, mains: i32) -> bool {
        let core = self.domains.core(cpu);
        core == self.domains.core(other) || self.core_violation(core, threads, mains) == 0
    }

    /// Numbers of cpus and of cores that would be full and hold a main.
    pub(crate) fn full_after(&self, from: usize, to: usize, n: i32, m: i32) -> (u32, u32) {
        let both = |a: bool, b: bool| u32::from(a) + u32::from(b);
        let before = both(self.is_full(from, 0, 0), self.is_full(to, 0, 0));
        let after = both(self.is_full(from, -n, -m), self.is_full(to, n, m));
        let full = self.full_main_cpus + after - before;
        let (a, b) = (self.domains.core(from), self.domains.core(to));
        if a == b {
            return (full, self.full_main_cores);
        }
        let before = both(self.is_full_core(a, 0, 0), self.is_full_core(b, 0, 0));
        let after = both(self.is_full_core(a, -n, -m), self.is_full_core(b, n, m));
        (full, self.full_main_cores + after - before)
    }

    /// Whether the cpu would hold ceil(WT/C) threads and a main, with so many more of both.
    pub(crate) fn is_full(&self, cpu: usize, threads: i32, mains: i32) -> bool {
        self.volume[cpu].saturating_add_signed(threads) >= self.domains.rules.cpu_volume.1
            && self.mains[CPU][cpu].saturating_add_signed(mains) > 0
    }

    pub(crate) fn is_full_core(&self, core: usize, threads: i32, mains: i32) -> bool {
        self.core_volume[core].saturating_add_signed(threads) >= self.domains.rules.core_volume.1
            && self.mains[CORE][core].saturating_add_signed(mains) > 0
    }

    pub(crate) fn exchange(&mut self, first: usize, second: usize) {
        let (a, b) = (self.threads[first], self.threads[second]);
        let (from, to) = (usize::from(a.cpu), usize::from(b.cpu));
        match (a.main, b.main) {
            (true, false) => self.update_counts(from, to, 0, 1),
            (false, true) => self.update_counts(to, from, 0, 1),
            _ => {}
        }
        self.relocate(first, to);
        self.relocate(second, from);
    }

    pub(crate) fn shift(&mut self, thread: usize, to: usize) {
        let Thread { main, cpu, .. } = self.threads[thread];
        self.update_counts(cpu.into(), to, 1, i32::from(main));
        self.relocate(thread, to);
    }

    /// Updates the worker's counts for a move.
    fn relocate(&mut self, thread: usize, to: usize) {
        let Thread { worker, cpu, .. } = self.threads[thread];
        for level in 0..self.domains.levels {
            let (here, there) = (
                self.index(level, worker, cpu.into()),
                self.index(level, worker, to),
            );
            self.within[level][here] -= 1;
            self.within[level][there] += 1;
        }
        let here = &mut self.on_cpu[usize::from(cpu)];
        if let Some(at) = here.iter().position(|&other| usize::from(other) == thread) {
            here.swap_remove(at);
        }
        self.on_cpu[to].push(thread as u16);
        self.threads[thread].cpu = to as u16;
    }

    /// Updates the counts of cpus and cores for a move.
    fn update_counts(&mut self, from: usize, to: usize, threads: i32, mains: i32) {
        (self.full_main_cpus, self.full_main_cores) = self.full_after(from, to, threads, mains);
        for (cpu, threads, mains) in [(from, -threads, -mains), (to, threads, mains)] {
            let add = |sum: &mut u32, more: i32| *sum = sum.saturating_add_signed(more);
            add(&mut self.volume[cpu], threads);
            add(&mut self.core_volume[self.domains.core(cpu)], threads);
            for level in 0..self.domains.levels {
                add(
                    &mut self.mains[level][self.domains.domain(level, cpu)],
                    mains,
                );
            }
        }
    }
}
