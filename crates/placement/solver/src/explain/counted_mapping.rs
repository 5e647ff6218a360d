//! A mapping as counts on which single changes can be tried: what a change gains, which rules it
//! breaks.
//!
//! **Approach.** Threads per cpu, core, worker and domain are kept as counts; a change touches two
//! cpus, so gain and breaches follow from the counts of these two alone. A rule counts as broken by
//! a change if one of its figures passes what the rule and the mapping's own loosening allow and
//! gets worse. **Limits.** (2) is judged as if the peers' ranks were given anew (`label`): at most
//! ceil(W/C) mains and ceil(W/C) (T-1) peers on a cpu.

use crate::{Mapping, Mode};

use crate::Share;
use crate::explain::domains::{CORE, CPU, Domains, LEVELS};
use crate::explain::rules::{Rule, Rules};

/// `thread` goes to cpu `to`; `partner`, if any, comes to where it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Change {
    pub(crate) thread: usize,
    pub(crate) to: usize,
    pub(crate) partner: Option<usize>,
}

/// How far each figure may go: the rules, loosened as far as the mapping loosens them.
#[derive(Clone, Copy)]
struct Limits {
    mains: u32,
    peers: u32,
    own: u32,
    cpu: (u32, u32),
    core: (u32, u32),
    core_mains: u32,
    full_cpus: u32,
    full_cores: u32,
}

/// A mapping with its counts. Threads are numbered as in [`Mapping::cpus`], cpus as in [`Domains`].
#[derive(Clone)]
pub(crate) struct CountedMapping<'a> {
    domains: &'a Domains,
    limits: Limits,
    /// Cpu of every thread.
    at: Vec<u16>,
    /// Threads of a worker in a domain: `within[level][worker * domains + domain]`.
    within: [Vec<u32>; LEVELS],
    /// Mains in a domain.
    mains: [Vec<u32>; LEVELS],
    /// Threads in a domain.
    volume: [Vec<u32>; LEVELS],
    full_cpus: u32,
    full_cores: u32,
}

impl<'a> CountedMapping<'a> {
    /// CountedMapping a mapping of the problem's threads on the problem's cpus.
    pub(crate) fn of(
        domains: &'a Domains,
        admitted: [u32; Rule::ALL.len()],
        mapping: &Mapping,
    ) -> Self {
        let mut counted = Self {
            domains,
            limits: Limits::of(domains, admitted),
            at: Vec::with_capacity(mapping.cpus.len()),
            within: std::array::from_fn(|l| vec![0; domains.workers * domains.count(l)]),
            mains: std::array::from_fn(|l| vec![0; domains.count(l)]),
            volume: std::array::from_fn(|l| vec![0; domains.count(l)]),
            full_cpus: 0,
            full_cores: 0,
        };
        let known = mapping.cpus.iter().filter_map(|&cpu| domains.index(cpu));
        for (thread, cpu) in known.enumerate() {
            counted.at.push(cpu as u16);
            counted.count(thread, cpu, 1);
        }
        let full = |level| {
            let is_full = |&domain: &usize| counted.is_full(level, domain, (0, 0));
            (0..domains.count(level)).filter(is_full).count() as u32
        };
        (counted.full_cpus, counted.full_cores) = (full(CPU), full(CORE));
        counted
    }

    /// How many threads there are.
    pub(crate) fn threads(&self) -> usize {
        self.at.len()
    }

    /// How many cpus there are.
    pub(crate) fn cpus(&self) -> usize {
        self.domains.cpus()
    }

    /// The cpu of a thread.
    pub(crate) fn cpu(&self, thread: usize) -> usize {
        self.at[thread].into()
    }

    /// False if the change would give the same mapping but for the names of its threads.
    pub(crate) fn is_change(&self, change: Change) -> bool {
        let from = self.cpu(change.thread);
        let alike = |other: usize| {
            self.worker(other) == self.worker(change.thread)
                && self.is_main(other) == self.is_main(change.thread)
        };
        from != change.to && !change.partner.is_some_and(alike)
    }

    /// What the objective gains.
    pub(crate) fn gain(&self, change: Change) -> i64 {
        let (from, to) = (self.cpu(change.thread), change.to);
        let sign = if self.domains.mode == Mode::Compact {
            1
        } else {
            -1
        };
        let worker = self.worker(change.thread);
        let within = match change.partner {
            Some(other) if self.worker(other) == worker => 0,
            Some(other) => {
                self.closer(Some(worker), from, to)
                    + self.closer(Some(self.worker(other)), to, from)
            }
            None => self.closer(Some(worker), from, to),
        };
        let mains = match self.mains_of(change) {
            1 => self.closer(None, from, to),
            -1 => self.closer(None, to, from),
            _ => 0,
        };
        sign * within - mains
    }

    /// Which rules the change breaks, or breaks further.
    pub(crate) fn broken(&self, change: Change) -> Rules {
        let (from, to) = (self.cpu(change.thread), change.to);
        let mains = self.mains_of(change);
        let threads = i32::from(change.partner.is_none());
        let limits = &self.limits;
        let mut rules = Rules::default();
        let worker = self.worker(change.thread);
        if change.partner.is_none_or(|p| self.worker(p) != worker) {
            rules.note(Rule::OwnThreads, self.is_crowded(worker, to));
            let crowded = |p: usize| self.is_crowded(self.worker(p), from);
            rules.note(Rule::OwnThreads, change.partner.is_some_and(crowded));
        }
        for (cpu, n, m) in [(from, -threads, -mains), (to, threads, mains)] {
            let (volume, held) = (self.volume[CPU][cpu], self.mains[CPU][cpu]);
            let more =
                |count: u32, by: i32, most: u32| by > 0 && count.saturating_add_signed(by) > most;
            let ranks = more(held, m, limits.mains) || more(volume - held, n - m, limits.peers);
            rules.note(Rule::EqualRanks, ranks);
            rules.note(Rule::CpuVolume, leaves(volume, n, limits.cpu));
        }
        let (a, b) = (self.domains.core(from), self.domains.core(to));
        if a != b {
            for (core, n, m) in [(a, -threads, -mains), (b, threads, mains)] {
                let held = self.mains[CORE][core].saturating_add_signed(m);
                rules.note(Rule::MainsPerCore, m > 0 && held > limits.core_mains);
                let volume = self.volume[CORE][core];
                rules.note(Rule::CoreVolume, leaves(volume, n, limits.core));
            }
        }
        let (cpus, cores) = self.full_after(change);
        let more = |after: u32, before: u32, most: u32| after > before && after > most;
        rules.note(Rule::FullCpus, more(cpus, self.full_cpus, limits.full_cpus));
        rules.note(
            Rule::FullCores,
            more(cores, self.full_cores, limits.full_cores),
        );
        rules
    }

    pub(crate) fn make(&mut self, change: Change) {
        let from = self.cpu(change.thread);
        (self.full_cpus, self.full_cores) = self.full_after(change);
        self.relocate(change.thread, change.to);
        if let Some(partner) = change.partner {
            self.relocate(partner, from);
        }
    }

    /// How the threads are shared out over cpus.
    pub(crate) fn share_of_cpus(&self) -> Share {
        share(
            self.domains,
            CPU,
            self.domains.rules.cpu_volume,
            &self.volume[CPU],
        )
    }

    /// How the threads are shared out over cores.
    pub(crate) fn share_of_cores(&self) -> Share {
        share(
            self.domains,
            CORE,
            self.domains.rules.core_volume,
            &self.volume[CORE],
        )
    }

    fn worker(&self, thread: usize) -> usize {
        thread / self.domains.threads
    }

    fn is_main(&self, thread: usize) -> bool {
        thread.is_multiple_of(self.domains.threads)
    }

    /// How many mains `change.to` gains: -1, 0 or 1.
    fn mains_of(&self, change: Change) -> i32 {
        let comes = i32::from(self.is_main(change.thread));
        comes - i32::from(change.partner.is_some_and(|p| self.is_main(p)))
    }

    /// Closeness that a worker, or the mains, gain if one goes from `from` to `to`.
    fn closer(&self, worker: Option<usize>, from: usize, to: usize) -> i64 {
        let mut sum = 0;
        for level in 0..LEVELS {
            let (a, b) = (
                self.domains.domain(level, from),
                self.domains.domain(level, to),
            );
            if a == b {
                break;
            }
            let (here, there) = match worker {
                Some(worker) => {
                    let row = &self.within[level][worker * self.domains.count(level)..];
                    (row[a], row[b])
                }
                None => (self.mains[level][a], self.mains[level][b]),
            };
            sum += self.domains.gain[level] * (i64::from(there) - i64::from(here) + 1);
        }
        sum
    }

    /// Has the worker as many threads on the cpu as it may?
    fn is_crowded(&self, worker: usize, cpu: usize) -> bool {
        self.within[CPU][worker * self.domains.cpus() + cpu] >= self.limits.own
    }

    /// Would a cpu or core, with so many more threads and mains, hold the most threads and a main?
    fn is_full(&self, level: usize, domain: usize, (threads, mains): (i32, i32)) -> bool {
        let most = if level == CPU {
            self.domains.rules.cpu_volume.1
        } else {
            self.domains.rules.core_volume.1
        };
        self.volume[level][domain].saturating_add_signed(threads) >= most
            && self.mains[level][domain].saturating_add_signed(mains) > 0
    }

    /// How many cpus and cores would hold the most threads and a main.
    fn full_after(&self, change: Change) -> (u32, u32) {
        let from = self.cpu(change.thread);
        let (n, m) = (i32::from(change.partner.is_none()), self.mains_of(change));
        let after = |level: usize, now: u32| {
            let a = self.domains.domain(level, from);
            let b = self.domains.domain(level, change.to);
            if a == b {
                return now;
            }
            let both = |a: bool, b: bool| u32::from(a) + u32::from(b);
            let before = both(
                self.is_full(level, a, (0, 0)),
                self.is_full(level, b, (0, 0)),
            );
            let then = both(
                self.is_full(level, a, (-n, -m)),
                self.is_full(level, b, (n, m)),
            );
            now + then - before
        };
        (after(CPU, self.full_cpus), after(CORE, self.full_cores))
    }

    fn relocate(&mut self, thread: usize, to: usize) {
        let from = self.cpu(thread);
        self.count(thread, from, -1);
        self.count(thread, to, 1);
        self.at[thread] = to as u16;
    }

    fn count(&mut self, thread: usize, cpu: usize, by: i32) {
        let (worker, is_main) = (self.worker(thread), self.is_main(thread));
        for level in 0..LEVELS {
            let domain = self.domains.domain(level, cpu);
            let own = worker * self.domains.count(level) + domain;
            let add = |sum: &mut u32| *sum = sum.saturating_add_signed(by);
            add(&mut self.within[level][own]);
            add(&mut self.volume[level][domain]);
            if is_main {
                add(&mut self.mains[level][domain]);
            }
        }
    }
}

impl Limits {
    fn of(domains: &Domains, admitted: [u32; Rule::ALL.len()]) -> Self {
        let more = |rule: Rule| admitted[rule as usize];
        let around =
            |(least, most): (u32, u32), rule| (least.saturating_sub(more(rule)), most + more(rule));
        let full = |most: Option<u32>, rule| most.map_or(u32::MAX, |most| most + more(rule));
        let ranks = domains.rules.rank_cap + more(Rule::EqualRanks);
        Self {
            mains: ranks,
            peers: ranks * (domains.threads as u32 - 1),
            own: domains.rules.worker_cap + more(Rule::OwnThreads),
            cpu: around(domains.rules.cpu_volume, Rule::CpuVolume),
            core: around(domains.rules.core_volume, Rule::CoreVolume),
            core_mains: domains.rules.core_mains + more(Rule::MainsPerCore),
            full_cpus: full(domains.rules.full_mains, Rule::FullCpus),
            full_cores: full(domains.rules.full_core_mains, Rule::FullCores),
        }
    }
}

/// Does a volume leave its limits, on the side that it moves to?
fn leaves(volume: u32, by: i32, (least, most): (u32, u32)) -> bool {
    let then = volume.saturating_add_signed(by);
    (by > 0 && then > most) || (by < 0 && then < least)
}

fn share(domains: &Domains, level: usize, (least, most): (u32, u32), volume: &[u32]) -> Share {
    let units = domains.count(level) as u32;
    let rest = (domains.workers * domains.threads) as u32 % units;
    Share {
        units,
        least,
        most,
        at_most: if rest == 0 { units } else { rest },
        held: (
            volume.iter().copied().min().unwrap_or(0),
            volume.iter().copied().max().unwrap_or(0),
        ),
    }
}
