//! Moves that may violate rules at a penalty, and the repair of violations.
//!
//! **Problem.** Where mains, volumes and full cpus constrain each other, no single feasible move
//! leads from one good assignment to the next. **Approach.** The rules on cores and on full cpus
//! may be violated by a countable amount; the caller charges a penalty for it
//! (`simulated_annealing`) or undoes it (`repair`). **Proof sketch.** (3), (8) and the conditions
//! on ranks hold in every state; `violation` is 0 if and only if all other rules hold as well.
//! **Limits.** `repair` is greedy and can fail; it ends after [`REPAIR_EVALUATIONS_MAX`].

use crate::WorkBudget;
use crate::limits::{REPAIR_EVALUATIONS_MAX, REPAIR_STEPS};
use crate::single::domains::{CORE, CPU};
use crate::single::local_search::{Search, Thread};

/// Acceptance rule of moves: the gain, minus the penalty of each violation, is at least `floor`.
#[derive(Clone, Copy)]
pub(crate) struct Acceptance {
    pub(crate) penalty: i64,
    pub(crate) floor: i64,
}

/// Change of value and violation by a move.
pub(crate) struct MoveEffect {
    pub(crate) gain: i64,
    pub(crate) violation: i64,
}

impl Search<'_> {
    /// Moves mains off full cpus and cores, at the least cost, until no more than allowed are left;
    /// returns whether that succeeded within [`REPAIR_EVALUATIONS_MAX`] and the budget.
    pub(crate) fn repair(&mut self, budget: &mut WorkBudget) -> bool {
        let target = self.allowed;
        let mut total = 0;
        // bound: every round takes a main off a full cpu or core
        for _ in 0..2 * self.domains.workers {
            if self.full_main_cpus <= target.full_main_cpus
                && self.full_main_cores <= target.full_main_cores
            {
                break;
            }
            let misplaced = self.full_main_cpus.max(self.full_main_cores) as usize;
            let evaluations = misplaced * (self.threads.len() + self.domains.cpus);
            total += evaluations;
            if total > REPAIR_EVALUATIONS_MAX || budget.spend(REPAIR_STEPS * evaluations) {
                break;
            }
            let below = |now: u32, most: u32| if now > most { now - 1 } else { most };
            self.allowed.full_main_cpus = below(self.full_main_cpus, target.full_main_cpus);
            self.allowed.full_main_cores = below(self.full_main_cores, target.full_main_cores);
            if !self.move_main_off_full_unit() {
                // one of the two limits at a time
                self.allowed.full_main_cores = self.full_main_cores.max(target.full_main_cores);
                if !self.move_main_off_full_unit() {
                    break;
                }
            }
        }
        self.allowed = target;
        self.full_main_cpus <= target.full_main_cpus
            && self.full_main_cores <= target.full_main_cores
    }

    /// Makes the best feasible move of a main that is on a full cpu or core.
    fn move_main_off_full_unit(&mut self) -> bool {
        let mut best: Option<(i64, usize, Result<usize, usize>)> = None;
        for first in 0..self.threads.len() {
            let Thread { main, cpu, .. } = self.threads[first];
            let cpu = usize::from(cpu);
            let full = self.is_full(cpu, 0, 0) || self.is_full_core(self.domains.core(cpu), 0, 0);
            if !main || !full {
                continue;
            }
            let own = self.own_gains(first);
            for second in 0..self.threads.len() {
                let there = self.threads[second];
                if there.main || usize::from(there.cpu) == cpu {
                    continue;
                }
                let gain = self.exchange_gain(first, second, own[usize::from(there.cpu)]);
                if best.as_ref().is_none_or(|best| gain > best.0)
                    && self.may_exchange(first, second)
                {
                    best = Some((gain, first, Ok(second)));
                }
            }
            for (to, &own) in own.iter().enumerate() {
                let gain = self.shift_gain(first, to, own);
                let better = to != cpu && best.as_ref().is_none_or(|best| gain > best.0);
                if better && self.may_shift(first, to) {
                    best = Some((gain, first, Err(to)));
                }
            }
        }
        match best {
            Some((_, first, Ok(second))) => self.exchange(first, second),
            Some((_, first, Err(to))) => self.shift(first, to),
            None => return false,
        }
        true
    }

    /// The cpu of every thread.
    pub(crate) fn places(&self) -> Vec<u16> {
        self.threads.iter().map(|thread| thread.cpu).collect()
    }

    /// Overwrites an earlier result of [`Search::places`] with the cpu of every thread.
    pub(crate) fn copy_places(&self, places: &mut [u16]) {
        for (place, thread) in places.iter_mut().zip(&self.threads) {
            *place = thread.cpu;
        }
    }

    /// Restores earlier places.
    pub(crate) fn restore(&mut self, places: &[u16]) {
        let mut assignment = self.assignment();
        assignment.peers.iter_mut().for_each(Vec::clear);
        for (thread, &cpu) in self.threads.iter().zip(places) {
            let worker = usize::from(thread.worker);
            if thread.main {
                assignment.mains[worker] = cpu;
            } else {
                assignment.peers[worker].push(cpu);
            }
        }
        *self = Self::of(self.domains, &self.allowed, &assignment);
    }

    /// Threads on a cpu.
    pub(crate) fn on_cpu(&self, cpu: usize) -> &[u16] {
        &self.on_cpu[cpu]
    }

    /// Exchanges two threads if the acceptance rule allows it.
    pub(crate) fn try_exchange(
        &mut self,
        first: usize,
        second: usize,
        accept: Acceptance,
    ) -> Option<MoveEffect> {
        let Acceptance { penalty, floor } = accept;
        let (a, b) = (self.threads[first], self.threads[second]);
        let (from, to) = (usize::from(a.cpu), usize::from(b.cpu));
        if from == to || (a.worker == b.worker && a.main == b.main) {
            return None;
        }
        let mut gain = 0;
        if a.worker != b.worker {
            if !(self.has_room(a.worker, to) && self.has_room(b.worker, from)) {
                return None;
            }
            let both =
                self.closeness_gain(a.worker, from, to) + self.closeness_gain(b.worker, to, from);
            gain += self.sign * both;
        }
        let mut violation = 0;
        if a.main != b.main {
            let (from, to) = if a.main { (from, to) } else { (to, from) };
            gain -= self.mains_closeness_gain(from, to);
            if gain < floor - 2 * penalty || !self.cpus_hold(from, to, 0, 1) {
                return None;
            }
            violation = self.violation_after(from, to, 0, 1);
        }
        if gain - penalty * violation < floor {
            return None;
        }
        self.exchange(first, second);
        Some(MoveEffect { gain, violation })
    }

    /// Shifts a thread if the acceptance rule allows it.
    pub(crate) fn try_shift(
        &mut self,
        thread: usize,
        to: usize,
        accept: Acceptance,
    ) -> Option<MoveEffect> {
        let Acceptance { penalty, floor } = accept;
        let Thread { worker, main, cpu } = self.threads[thread];
        let from = usize::from(cpu);
        if !self.has_room(worker, to) || !self.cpus_hold(from, to, 1, i32::from(main)) {
            return None;
        }
        let mut gain = self.sign * self.closeness_gain(worker, from, to);
        if main {
            gain -= self.mains_closeness_gain(from, to);
        }
        let violation = self.violation_after(from, to, 1, i32::from(main));
        if gain - penalty * violation < floor {
            return None;
        }
        self.shift(thread, to);
        Some(MoveEffect { gain, violation })
    }

    /// Violation of the rules on cores and on full cpus, as one number.
    pub(crate) fn violation(&self) -> i64 {
        let cores: i64 = (0..self.domains.count(CORE))
            .map(|core| self.core_violation(core, 0, 0))
            .sum();
        cores + self.full_violation((self.full_main_cpus, self.full_main_cores))
    }

    fn full_violation(&self, (cpus, cores): (u32, u32)) -> i64 {
        let above = |now: u32, most: u32| i64::from(now.saturating_sub(most));
        above(cpus, self.allowed.full_main_cpus) + above(cores, self.allowed.full_main_cores)
    }

    pub(crate) fn core_violation(&self, core: usize, threads: i32, mains: i32) -> i64 {
        let (lower, upper) = self.allowed.core_volume;
        let n = self.core_volume[core].saturating_add_signed(threads);
        let m = self.mains[CORE][core].saturating_add_signed(mains);
        let off = lower.saturating_sub(n).max(n.saturating_sub(upper));
        i64::from(off + m.saturating_sub(self.allowed.core_mains))
    }

    /// Change of the violation if so many threads and mains move from a cpu to another.
    fn violation_after(&self, from: usize, to: usize, n: i32, m: i32) -> i64 {
        let full = self.full_after(from, to, n, m);
        let mut more = self.full_violation(full)
            - self.full_violation((self.full_main_cpus, self.full_main_cores));
        let (a, b) = (self.domains.core(from), self.domains.core(to));
        if a != b {
            more += self.core_violation(a, -n, -m) - self.core_violation(a, 0, 0);
            more += self.core_violation(b, n, m) - self.core_violation(b, 0, 0);
        }
        more
    }

    /// Whether both cpus keep (8) and the conditions on ranks.
    pub(crate) fn cpus_hold(&self, from: usize, to: usize, threads: i32, mains: i32) -> bool {
        self.cpu_holds(from, -threads, -mains) && self.cpu_holds(to, threads, mains)
    }

    fn cpu_holds(&self, cpu: usize, threads: i32, mains: i32) -> bool {
        let (lower, upper) = self.domains.rules.cpu_volume;
        let peers = self.domains.rules.rank_cap * (self.domains.threads as u32 - 1);
        let n = self.volume[cpu].saturating_add_signed(threads);
        let m = self.mains[CPU][cpu].saturating_add_signed(mains);
        let ranks = m <= self.domains.rules.rank_cap && m <= n && n - m <= peers;
        (lower..=upper).contains(&n) && ranks
    }
}
