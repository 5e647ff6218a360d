//! A placement of all threads with its counts, on which moves can be evaluated.
//!
//! The gain of a move is read from two tables that every move updates: `worker_distance`, for each
//! worker and cpu the distances from there to the worker's threads, and `mains_distance`, for each
//! cpu those to all mains. So evaluating a move costs O(1), making one O(C). Peers of a worker are
//! interchangeable here: the number that stays is the overlap of their cpus with their current
//! ones; ranks are assigned later. The search maximizes the *score*: value minus the cost of
//! moves, then the number of unmoved threads, as one number.

use super::enumerate::RuleExcess;
use super::instance::{CORE, Instance, NO_CPU};
use super::rules::Rules;
use super::volumes::JointVolumes;

/// Score of one cycle; above any number of threads, so that value has priority over the number of
/// moves.
pub(super) const CYCLE: i64 = 1 << 17;

/// A thread: its tenant, its worker among those of all tenants, whether it is the main, and its
/// cpu.
#[derive(Clone, Copy)]
pub(super) struct JointThread {
    pub(super) tenant: u16,
    pub(super) worker: u32,
    pub(super) main: bool,
    pub(super) cpu: u16,
}

#[derive(Clone, Copy)]
pub(super) enum Step {
    /// Two threads exchange their cpus.
    Exchange(usize, usize),
    /// A thread moves to a cpu.
    Shift(usize, usize),
}

pub(super) struct SearchState<'a> {
    pub(super) instance: &'a Instance,
    pub(super) rules: &'a Rules,
    /// Cost of a moved thread in cycles.
    pub(super) move_cost: i64,
    /// Ordered by worker, the main first.
    pub(super) threads: Vec<JointThread>,
    /// First thread of each tenant, and the number of threads at the end.
    pub(super) starts: Vec<usize>,
    /// Sum of distances to the threads of each worker, by cpu.
    pub(super) worker_distance: Vec<u32>,
    /// Threads of each worker, by cpu.
    pub(super) held: Vec<u16>,
    /// Peers of each worker in the mapping in force, by cpu.
    current_cpus: Vec<u16>,
    /// Cpu of each worker's main in the mapping in force.
    current_main_cpus: Vec<u16>,
    /// Cpu of each worker's main in this placement.
    main_cpus: Vec<u16>,
    own_mains: Vec<u16>,
    own_peers: Vec<u32>,
    /// Threads and obstacles on each cpu.
    pub(super) loads: Vec<u32>,
    pub(super) core_loads: Vec<u32>,
    mains: Vec<u32>,
    core_mains: Vec<u32>,
    /// Sum of distances to all mains, by cpu.
    mains_distance: Vec<i64>,
    /// Threads on each cpu.
    pub(super) threads_on_cpu: Vec<Vec<u32>>,
    core_mains_excess: u32,
    slow_mains: u32,
    full_cpus: u32,
    full_cores: u32,
    pub(super) value: i64,
    /// Threads on their cpus in force.
    pub(super) unmoved: i64,
    /// Inverses of the moves made since it was cleared, the first move first.
    pub(super) undo_log: Vec<Step>,
}

impl<'a> SearchState<'a> {
    /// A state without placed threads; loads are those of the volumes.
    pub(super) fn new(instance: &'a Instance, rules: &'a Rules, volume: &JointVolumes) -> Self {
        let cells = instance.workers * instance.cpus;
        let rows = instance.tenants.len() * instance.cpus;
        let mut search = Self {
            instance,
            rules,
            move_cost: instance.move_cost,
            threads: Vec::with_capacity(instance.slots),
            starts: vec![0],
            worker_distance: vec![0; cells],
            held: vec![0; cells],
            current_cpus: vec![0; cells],
            current_main_cpus: Vec::with_capacity(instance.workers),
            main_cpus: vec![NO_CPU; instance.workers],
            own_mains: vec![0; rows],
            own_peers: vec![0; rows],
            loads: volume.loads.clone(),
            core_loads: instance.core_loads(&volume.loads),
            mains: vec![0; instance.cpus],
            core_mains: vec![0; instance.counts[CORE]],
            mains_distance: vec![0; instance.cpus],
            threads_on_cpu: vec![Vec::new(); instance.cpus],
            core_mains_excess: 0,
            slow_mains: 0,
            full_cpus: 0,
            full_cores: 0,
            value: 0,
            unmoved: 0,
            undo_log: Vec::new(),
        };
        for (index, tenant) in instance.tenants.iter().enumerate() {
            for (worker, current_cpus) in tenant.current_cpus.chunks(tenant.threads).enumerate() {
                let worker = tenant.first_worker + worker;
                search.current_main_cpus.push(current_cpus[0]);
                for &current_cpu in current_cpus[1..]
                    .iter()
                    .filter(|&&current_cpu| current_cpu != NO_CPU)
                {
                    search.current_cpus[worker * instance.cpus + usize::from(current_cpu)] += 1;
                }
                search
                    .threads
                    .extend((0..tenant.threads).map(|rank| JointThread {
                        tenant: index as u16,
                        worker: worker as u32,
                        main: rank == 0,
                        cpu: NO_CPU,
                    }));
            }
            search.starts.push(search.threads.len());
        }
        search
    }

    /// Index of the cell of a worker and a cpu.
    pub(super) fn cell(&self, worker: u32, cpu: usize) -> usize {
        worker as usize * self.instance.cpus + cpu
    }

    /// The cells of a worker.
    pub(super) fn cells(&self, worker: u32) -> std::ops::Range<usize> {
        self.cell(worker, 0)..self.cell(worker + 1, 0)
    }

    /// Peers of a tenant, by cpu.
    pub(super) fn own_peers(&self, tenant: u16) -> &[u32] {
        &self.own_peers[self.row(tenant, 0)..][..self.instance.cpus]
    }

    fn row(&self, tenant: u16, cpu: usize) -> usize {
        usize::from(tenant) * self.instance.cpus + cpu
    }

    /// Violation of the rules on mains.
    pub(super) fn violation(&self) -> i64 {
        self.rules.violation([
            self.core_mains_excess,
            self.slow_mains,
            self.full_cpus,
            self.full_cores,
        ])
    }

    /// Whether mains on a cpu, or on its core, may contribute to the violation.
    pub(super) fn may_violate(&self, cpu: usize) -> bool {
        let core = self.instance.core(cpu);
        let (load, mains) = (self.core_loads[core], self.core_mains[core]);
        mains > self.rules.core_mains
            || (self.instance.is_slow[cpu] && self.mains[cpu] > 0)
            || self.rules.is_full_cpu(self.loads[cpu], self.mains[cpu])
            || self.rules.is_full_core(load, mains)
    }

    /// Mains on the most crowded core beyond its limit.
    pub(super) fn core_mains_excess(&self) -> u32 {
        let most = self.core_mains.iter().copied().max().unwrap_or(0);
        most.saturating_sub(self.rules.core_mains)
    }

    /// Excess over each rule on mains.
    pub(super) fn excess(&self) -> RuleExcess {
        let (loads, mains) = (&self.loads, &self.mains);
        let cores = (&self.core_loads[..], &self.core_mains[..]);
        self.rules.excess(self.instance, (loads, mains), cores)
    }

    /// Sum of distances from a cpu to all mains.
    pub(super) fn mains_distance(&self, cpu: usize) -> i64 {
        self.mains_distance[cpu]
    }

    /// Mains on the core of a cpu.
    pub(super) fn mains_on_core(&self, cpu: usize) -> u32 {
        self.core_mains[self.instance.core(cpu)]
    }

    /// Places a thread that has no cpu.
    pub(super) fn place(&mut self, thread: usize, to: usize) {
        let JointThread {
            tenant,
            worker,
            main,
            ..
        } = self.threads[thread];
        let cell = self.cell(worker, to);
        self.unmoved += i64::from(self.is_current(thread, to));
        self.value +=
            self.instance.tenants[usize::from(tenant)].sign * i64::from(self.worker_distance[cell]);
        let row = worker as usize * self.instance.cpus;
        let distances = self.instance.distances(to);
        for (worker_distance, distance) in self.worker_distance[row..].iter_mut().zip(distances) {
            *worker_distance += distance;
        }
        self.held[cell] += 1;
        self.threads[thread].cpu = to as u16;
        self.threads_on_cpu[to].push(thread as u32);
        let row = self.row(tenant, to);
        if main {
            self.main_cpus[worker as usize] = to as u16;
            self.own_mains[row] += 1;
            self.value += self.mains_distance[to];
            for (mains_distance, &distance) in self.mains_distance.iter_mut().zip(distances) {
                *mains_distance += i64::from(distance);
            }
            self.count_mains(to, 1);
        } else {
            self.own_peers[row] += 1;
        }
    }

    /// Removes a thread from its cpu.
    pub(super) fn unplace(&mut self, thread: usize) {
        let JointThread {
            tenant,
            worker,
            main,
            cpu,
        } = self.threads[thread];
        let from = usize::from(cpu);
        let distances = self.instance.distances(from);
        let row = worker as usize * self.instance.cpus;
        for (worker_distance, distance) in self.worker_distance[row..].iter_mut().zip(distances) {
            *worker_distance -= distance;
        }
        let cell = self.cell(worker, from);
        self.held[cell] -= 1;
        self.value -=
            self.instance.tenants[usize::from(tenant)].sign * i64::from(self.worker_distance[cell]);
        self.threads_on_cpu[from].retain(|&other| other as usize != thread);
        self.threads[thread].cpu = NO_CPU;
        let row = self.row(tenant, from);
        if main {
            self.main_cpus[worker as usize] = NO_CPU;
            self.own_mains[row] -= 1;
            for (mains_distance, &distance) in self.mains_distance.iter_mut().zip(distances) {
                *mains_distance -= i64::from(distance);
            }
            self.value -= self.mains_distance[from];
            self.count_mains(from, -1);
        } else {
            self.own_peers[row] -= 1;
        }
        self.unmoved -= i64::from(self.is_current(thread, from));
    }

    /// Whether an unplaced thread would count as unmoved on a cpu.
    fn is_current(&self, thread: usize, cpu: usize) -> bool {
        let JointThread { worker, main, .. } = self.threads[thread];
        if main {
            return usize::from(self.current_main_cpus[worker as usize]) == cpu;
        }
        self.peers_at(worker, cpu) < self.current_cpus[self.cell(worker, cpu)]
    }

    /// Peers of a worker on a cpu.
    fn peers_at(&self, worker: u32, cpu: usize) -> u16 {
        let has_main = usize::from(self.main_cpus[worker as usize]) == cpu;
        self.held[self.cell(worker, cpu)] - u16::from(has_main)
    }

    fn count_mains(&mut self, cpu: usize, more: i32) {
        let core = self.instance.core(cpu);
        self.update_violation_counts(cpu, core, -1);
        self.mains[cpu] = self.mains[cpu].saturating_add_signed(more);
        if self.instance.is_slow[cpu] {
            self.slow_mains = self.slow_mains.saturating_add_signed(more);
        }
        self.core_mains[core] = self.core_mains[core].saturating_add_signed(more);
        self.update_violation_counts(cpu, core, 1);
    }

    fn count_load(&mut self, cpu: usize, more: i32) {
        let core = self.instance.core(cpu);
        self.update_violation_counts(cpu, core, -1);
        self.loads[cpu] = self.loads[cpu].saturating_add_signed(more);
        self.core_loads[core] = self.core_loads[core].saturating_add_signed(more);
        self.update_violation_counts(cpu, core, 1);
    }

    /// Adds or subtracts the contribution of a cpu and its core to the violation.
    fn update_violation_counts(&mut self, cpu: usize, core: usize, sign: i32) {
        let crowding = self.core_mains[core].saturating_sub(self.rules.core_mains) as i32;
        let cpus = self.rules.is_full_cpu(self.loads[cpu], self.mains[cpu]);
        let cores = self
            .rules
            .is_full_core(self.core_loads[core], self.core_mains[core]);
        let add = |sum: &mut u32, more: i32| *sum = sum.saturating_add_signed(sign * more);
        add(&mut self.core_mains_excess, crowding);
        add(&mut self.full_cpus, cpus.into());
        add(&mut self.full_cores, cores.into());
    }

    /// Whether a worker may have one more thread on a cpu.
    pub(super) fn has_room(&self, tenant: u16, worker: u32, cpu: usize) -> bool {
        let of = &self.instance.tenants[usize::from(tenant)];
        of.allows[cpu] && self.held[self.cell(worker, cpu)] < of.worker_cap
    }

    /// Whether a tenant may have so many more mains and peers on a cpu.
    pub(super) fn has_ranks(&self, tenant: u16, cpu: usize, mains: i32, peers: i32) -> bool {
        let of = &self.instance.tenants[usize::from(tenant)];
        let row = self.row(tenant, cpu);
        i32::from(self.own_mains[row]) + mains <= i32::from(of.rank_cap)
            && self.own_peers[row] as i32 + peers <= of.peers_cap() as i32
    }

    /// Gain of a thread's worker if the thread moves to a cpu, including moves, excluding mains.
    pub(super) fn move_gain(&self, thread: usize, to: usize) -> i64 {
        let JointThread {
            tenant,
            worker,
            cpu,
            ..
        } = self.threads[thread];
        let (of, from) = (
            &self.instance.tenants[usize::from(tenant)],
            usize::from(cpu),
        );
        let worker_distance = |cpu: usize| i64::from(self.worker_distance[self.cell(worker, cpu)]);
        let farther =
            worker_distance(to) - self.instance.distance(from, to) - worker_distance(from)
                + self.instance.distance(from, from);
        let unmoved = if of.is_running {
            self.unmoved_change(thread, to)
        } else {
            0
        };
        of.sign * farther * CYCLE + unmoved * self.unmoved_bonus()
    }

    /// Worth of an unmoved thread.
    pub(super) fn unmoved_bonus(&self) -> i64 {
        self.move_cost * CYCLE + 1
    }

    /// Change in the number of unmoved threads if a thread moves to a cpu.
    pub(super) fn unmoved_change(&self, thread: usize, to: usize) -> i64 {
        let JointThread {
            worker, main, cpu, ..
        } = self.threads[thread];
        let from = usize::from(cpu);
        if main {
            let current_cpu = usize::from(self.current_main_cpus[worker as usize]);
            return i64::from(current_cpu == to) - i64::from(current_cpu == from);
        }
        let comes = self.peers_at(worker, to) < self.current_cpus[self.cell(worker, to)];
        let leaves = self.peers_at(worker, from) <= self.current_cpus[self.cell(worker, from)];
        i64::from(comes) - i64::from(leaves)
    }

    /// Gain of the mains if one of them moves from a cpu to another.
    pub(super) fn mains_gain(&self, from: usize, to: usize) -> i64 {
        let at = |cpu: usize| self.instance.distance(from, cpu);
        (self.mains_distance[to] - at(to) - self.mains_distance[from] + at(from)) * CYCLE
    }

    /// Change of the violation if so many mains and threads move from a cpu to another.
    pub(super) fn violation_change(&self, from: usize, to: usize, mains: i32, load: i32) -> i64 {
        let (a, b) = (self.instance.core(from), self.instance.core(to));
        let (mut crowding, mut full_cpus, mut full_cores) = (
            self.core_mains_excess as i32,
            self.full_cpus as i32,
            self.full_cores as i32,
        );
        let slow = |cpu: usize| i32::from(self.instance.is_slow[cpu]);
        let slow_mains = self.slow_mains as i32 + mains * (slow(to) - slow(from));
        for (cpu, sign) in [(from, -1), (to, 1)] {
            let after = |sum: u32, more: i32| sum.saturating_add_signed(sign * more);
            let (n, m) = (self.loads[cpu], self.mains[cpu]);
            full_cpus += i32::from(self.rules.is_full_cpu(after(n, load), after(m, mains)))
                - i32::from(self.rules.is_full_cpu(n, m));
            if a == b {
                continue;
            }
            let core = self.instance.core(cpu);
            let (n, m) = (self.core_loads[core], self.core_mains[core]);
            let (n2, m2) = (after(n, load), after(m, mains));
            let limit = self.rules.core_mains;
            crowding += m2.saturating_sub(limit) as i32 - m.saturating_sub(limit) as i32;
            full_cores += i32::from(self.rules.is_full_core(n2, m2))
                - i32::from(self.rules.is_full_core(n, m));
        }
        let after = [crowding, slow_mains, full_cpus, full_cores];
        let after = after.map(|count| count.max(0) as u32);
        self.rules.violation(after) - self.violation()
    }

    /// Score: value minus cost of moves, then unmoved threads.
    pub(super) fn score(&self) -> i64 {
        self.value * CYCLE + self.unmoved * self.unmoved_bonus()
    }

    /// The threads of a thread's worker, the main first.
    pub(super) fn worker_threads(&self, thread: usize) -> std::ops::Range<usize> {
        let tenant = usize::from(self.threads[thread].tenant);
        let (start, threads) = (self.starts[tenant], self.instance.tenants[tenant].threads);
        let first = thread - (thread - start) % threads;
        first..first + threads
    }

    /// Undoes all moves of the undo log and returns them.
    pub(super) fn undo(&mut self) -> Vec<Step> {
        let undo_log = std::mem::take(&mut self.undo_log);
        for &step in undo_log.iter().rev() {
            match step {
                Step::Exchange(first, second) => self.exchange(first, second),
                Step::Shift(thread, from) => self.shift(thread, from),
            }
        }
        self.undo_log.clear();
        undo_log
    }

    /// Exchanges the cpus of two threads.
    pub(super) fn exchange(&mut self, first: usize, second: usize) {
        self.undo_log.push(Step::Exchange(first, second));
        let [a, b] = [first, second].map(|thread| usize::from(self.threads[thread].cpu));
        self.unplace(first);
        self.unplace(second);
        self.place(first, b);
        self.place(second, a);
    }

    /// Moves a thread to a cpu, with its load.
    pub(super) fn shift(&mut self, thread: usize, to: usize) {
        let from = usize::from(self.threads[thread].cpu);
        self.undo_log.push(Step::Shift(thread, from));
        self.unplace(thread);
        self.count_load(from, -1);
        self.count_load(to, 1);
        self.place(thread, to);
    }
}
