//! Enumerates every assignment of tiny problems.
//!
//! **Problem.** Prove that a value is optimal, or find a better one. **Approach.** If there are at
//! most [`ENUMERATION_WAYS_MAX`] ways to give every worker a main and peers, all assignments are
//! evaluated that keep the rules, relaxed as far as the construction had to (`relaxation`). Workers
//! are interchangeable, and so are the peers of a worker: to break symmetry, mains are placed in
//! ascending order, and so are the peers of a worker. **Proof sketch.** Every mapping that keeps
//! the rules is such an assignment of equal value, and `rank_coloring` turns each of them into a
//! mapping. **Limits.** If cut short by the budget, it proves nothing. The relaxation is that of
//! the construction, not proven smallest.

#[cfg(test)]
mod tests;

use crate::Mode;
use crate::WorkBudget;
use crate::limits::{ENUMERATION_STEPS, ENUMERATION_WAYS_MAX};
use crate::single::allowed::Allowed;
use crate::single::assignment::Assignment;
use crate::single::domains::{CPU, Domains, LEVELS};
use crate::single::local_search::Search;
use crate::single::spread::{Counts, zero_counts};

/// The best assignment, if it is better than `known`. `None` if there are too many ways, or the
/// budget was spent before all were evaluated.
pub(crate) fn enumerate<'a>(
    known: &Search<'a>,
    budget: &mut WorkBudget,
) -> Option<Option<Search<'a>>> {
    let domains = known.domains;
    if ways(domains) > ENUMERATION_WAYS_MAX {
        return None;
    }
    let mut enumeration = Enumeration {
        domains,
        allowed: known.allowed,
        budget,
        steps: 0,
        assignment: Assignment {
            mains: Vec::new(),
            peers: Vec::new(),
        },
        within: zero_counts(domains),
        mains: zero_counts(domains),
        volume: vec![0; domains.cpus],
        value: domains.objective(0, 0),
        best_value: known.objective(),
        best: None,
    };
    enumeration.place_worker()?;
    Some(enumeration.best)
}

/// Number of ways to place mains and peers without any rule.
fn ways(domains: &Domains) -> usize {
    // multisets of T-1 peers on C cpus, times C mains
    let peers = (1..domains.threads).fold(1usize, |ways, peer| {
        ways.saturating_mul(domains.cpus + peer - 1) / peer
    });
    let of_worker = peers.saturating_mul(domains.cpus);
    of_worker.saturating_pow(domains.workers as u32)
}

struct Enumeration<'a, 'b> {
    domains: &'a Domains,
    allowed: Allowed,
    budget: &'b mut WorkBudget,
    steps: usize,
    /// The threads placed so far.
    assignment: Assignment,
    /// Threads of the last worker in each domain.
    within: Counts,
    /// Mains in each domain.
    mains: Counts,
    /// Threads on each cpu.
    volume: Vec<u32>,
    value: i64,
    best_value: i64,
    best: Option<Search<'a>>,
}

impl Enumeration<'_, '_> {
    /// Branches on the next worker; `None` if the budget is spent.
    fn place_worker(&mut self) -> Option<()> {
        if self.assignment.mains.len() == self.domains.workers {
            self.compare();
            return Some(());
        }
        let before = std::mem::replace(&mut self.within, zero_counts(self.domains));
        let first = self.assignment.mains.last().copied().unwrap_or(0);
        for cpu in first..self.domains.cpus as u16 {
            if self.mains[CPU][usize::from(cpu)] < self.domains.rules.rank_cap
                && self.add(cpu.into(), true)
            {
                self.assignment.mains.push(cpu);
                self.assignment.peers.push(Vec::new());
                self.place_peer(0)?;
                self.assignment.peers.pop();
                self.assignment.mains.pop();
                self.remove(cpu.into(), true);
            }
        }
        self.within = before;
        Some(())
    }

    /// Branches on the next peer of the last worker, on no cpu before `first`.
    fn place_peer(&mut self, first: u16) -> Option<()> {
        self.steps += 1;
        if self.steps.is_multiple_of(ENUMERATION_STEPS) && self.budget.spend(20 * ENUMERATION_STEPS)
        {
            return None;
        }
        let last = self.assignment.peers.len() - 1;
        if self.assignment.peers[last].len() + 1 == self.domains.threads {
            return self.place_worker();
        }
        for cpu in first..self.domains.cpus as u16 {
            if self.add(cpu.into(), false) {
                self.assignment.peers[last].push(cpu);
                self.place_peer(cpu)?;
                self.assignment.peers[last].pop();
                self.remove(cpu.into(), false);
            }
        }
        Some(())
    }

    /// Counts one more thread of the last worker on a cpu; false if (3) or (8) forbid it.
    fn add(&mut self, cpu: usize, is_main: bool) -> bool {
        let rules = &self.domains.rules;
        if self.volume[cpu] == rules.cpu_volume.1 || self.within[CPU][cpu] == rules.worker_cap {
            return false;
        }
        self.volume[cpu] += 1;
        self.value += self.placement_gain(cpu, is_main);
        for level in 0..LEVELS {
            let domain = self.domains.domain(level, cpu);
            self.within[level][domain] += 1;
            self.mains[level][domain] += u32::from(is_main);
        }
        true
    }

    /// Removes a thread of the last worker from a cpu.
    fn remove(&mut self, cpu: usize, is_main: bool) {
        for level in 0..LEVELS {
            let domain = self.domains.domain(level, cpu);
            self.within[level][domain] -= 1;
            self.mains[level][domain] -= u32::from(is_main);
        }
        self.value -= self.placement_gain(cpu, is_main);
        self.volume[cpu] -= 1;
    }

    /// Contribution of one more thread of the last worker on a cpu to the value.
    fn placement_gain(&self, cpu: usize, is_main: bool) -> i64 {
        let closeness = |counts: &Counts| -> i64 {
            let level = |level: usize| {
                let held = counts[level][self.domains.domain(level, cpu)];
                self.domains.gain[level] * i64::from(held)
            };
            (0..LEVELS).map(level).sum()
        };
        let within = match self.domains.mode {
            Mode::Scatter => -closeness(&self.within),
            Mode::Compact => closeness(&self.within),
        };
        within - if is_main { closeness(&self.mains) } else { 0 }
    }

    /// Keeps the assignment if it is better than all before and keeps the rules.
    fn compare(&mut self) {
        if self.value > self.best_value {
            let search = Search::of(self.domains, &self.allowed, &self.assignment);
            if search.is_valid() {
                self.best_value = self.value;
                self.best = Some(search);
            }
        }
    }
}
