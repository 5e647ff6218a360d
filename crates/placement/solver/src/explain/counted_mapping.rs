//! Counts of a mapping on which single changes can be evaluated: the gain of a change, and the
//! rules that it breaks.
//!
//! **Approach.** Counts and gains are those of the local search; a change affects two cpus, so
//! breaches follow from the counts of these two alone. A change breaks a rule if it worsens one of
//! the rule's figures beyond what the rule and the mapping's own relaxation allow. **Limits.** (2)
//! is evaluated as if the peers' ranks were reassigned (`label`): at most ceil(W/C) mains and
//! ceil(W/C) (T-1) peers on a cpu.

use crate::explain::checked_mapping::CheckedMapping;
use crate::explain::rules::{Rule, RuleSet};
use crate::single::allowed::Allowed;
use crate::single::assignment::Assignment;
use crate::single::domains::{CORE, CPU};
use crate::single::local_search::Search;
use crate::{Mapping, Volume};

/// `thread` moves to cpu `to`; `partner`, if any, moves to the previous cpu of `thread`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Change {
    pub(crate) thread: usize,
    pub(crate) to: usize,
    pub(crate) partner: Option<usize>,
}

/// Limits of each figure: the rules, relaxed as far as the mapping relaxes them.
#[derive(Clone)]
struct Limits<'a> {
    checked: &'a CheckedMapping,
    mains: u32,
    peers: u32,
    own: u32,
    cpu: Vec<(u32, u32)>,
    core: (u32, u32),
    core_mains: u32,
    full_cpus: u32,
    full_cores: u32,
}

/// Counts of a mapping, and how far each rule may be broken. Threads are numbered as in
/// [`Mapping::cpus`], cpus are positions of [`Domains`].
#[derive(Clone)]
pub(crate) struct CountedMapping<'a> {
    search: Search<'a>,
    limits: Limits<'a>,
}

impl<'a> CountedMapping<'a> {
    /// Counts a mapping of the problem's threads on the problem's cpus.
    pub(crate) fn of(checked: &'a CheckedMapping, mapping: &Mapping) -> Self {
        let domains = &checked.domains;
        let known = mapping.cpus.iter().filter_map(|&id| domains.position(id));
        let places: Vec<u16> = known.collect();
        let workers = places.chunks(domains.threads);
        let assignment = Assignment {
            mains: workers.clone().map(|worker| worker[0]).collect(),
            peers: workers.map(|worker| worker[1..].to_vec()).collect(),
        };
        Self {
            search: Search::of(domains, &Allowed::strict(domains), &assignment),
            limits: Limits::of(checked),
        }
    }

    pub(crate) fn threads(&self) -> usize {
        self.search.threads()
    }

    /// The cpus in the order of their ids.
    pub(crate) fn cpus(&self) -> &'a [u16] {
        &self.search.domains.by_id
    }

    /// The cpu of a thread.
    pub(crate) fn cpu(&self, thread: usize) -> usize {
        self.search.thread(thread).cpu.into()
    }

    /// False if the resulting mapping differs at most in the names of equivalent threads.
    pub(crate) fn is_change(&self, change: Change) -> bool {
        let own = self.search.thread(change.thread);
        let alike = |other: usize| {
            let other = self.search.thread(other);
            other.worker == own.worker && other.main == own.main
        };
        usize::from(own.cpu) != change.to && !change.partner.is_some_and(alike)
    }

    /// Gain of the objective.
    pub(crate) fn gain(&self, change: Change) -> i64 {
        let own = self.search.own_gain(change.thread, change.to);
        match change.partner {
            Some(partner) => self.search.exchange_gain(change.thread, partner, own),
            None => self.search.shift_gain(change.thread, change.to, own),
        }
    }

    /// Rules that the change breaks, or breaks further.
    pub(crate) fn broken(&self, change: Change) -> RuleSet {
        let (search, limits) = (&self.search, &self.limits);
        let (from, to) = (self.cpu(change.thread), change.to);
        let mains = self.mains_of(change);
        let threads = i32::from(change.partner.is_none());
        let mut rules = RuleSet::default();
        let worker = search.thread(change.thread).worker;
        if (change.partner).is_none_or(|p| search.thread(p).worker != worker) {
            rules.insert_if(Rule::OwnThreads, self.is_crowded(worker, to));
            let crowded = |p: usize| self.is_crowded(search.thread(p).worker, from);
            rules.insert_if(Rule::OwnThreads, change.partner.is_some_and(crowded));
        }
        for (cpu, n, m) in [(from, -threads, -mains), (to, threads, mains)] {
            let (volume, held) = (search.volume[cpu], search.mains[CPU][cpu]);
            let more =
                |count: u32, by: i32, most: u32| by > 0 && count.saturating_add_signed(by) > most;
            let ranks = more(held, m, limits.mains) || more(volume - held, n - m, limits.peers);
            rules.insert_if(Rule::EqualRanks, ranks);
            rules.insert_if(Rule::CpuVolume, leaves(volume, n, limits.cpu[cpu]));
        }
        let slow = |cpu: usize| i32::from(limits.checked.is_slow(cpu));
        rules.insert_if(Rule::FastMains, mains * (slow(to) - slow(from)) > 0);
        let (a, b) = (search.domains.core(from), search.domains.core(to));
        if a != b {
            for (core, n, m) in [(a, -threads, -mains), (b, threads, mains)] {
                let held = search.mains[CORE][core].saturating_add_signed(m);
                rules.insert_if(Rule::MainsPerCore, m > 0 && held > limits.core_mains);
                let volume = search.core_volume[core];
                rules.insert_if(Rule::CoreVolume, leaves(volume, n, limits.core));
            }
        }
        let (cpus, cores) = search.full_after(from, to, threads, mains);
        let more = |after: u32, before: u32, most: u32| after > before && after > most;
        rules.insert_if(
            Rule::FullCpus,
            more(cpus, search.full_main_cpus, limits.full_cpus),
        );
        rules.insert_if(
            Rule::FullCores,
            more(cores, search.full_main_cores, limits.full_cores),
        );
        rules
    }

    pub(crate) fn apply(&mut self, change: Change) {
        match change.partner {
            Some(partner) => self.search.exchange(change.thread, partner),
            None => self.search.shift(change.thread, change.to),
        }
    }

    /// Distribution of the threads over cpus.
    pub(crate) fn share_of_cpus(&self) -> Volume {
        let rule = self.search.domains.rules.cpu_volume;
        self.share(rule, &self.search.volume)
    }

    /// Distribution of the threads over cores.
    pub(crate) fn share_of_cores(&self) -> Volume {
        self.share(
            self.search.domains.rules.core_volume,
            &self.search.core_volume,
        )
    }

    /// Where cores differ in speed, no limit applies to all units: `least` and `most` are then the
    /// fewest and most threads held.
    fn share(&self, rule: (u32, u32), volume: &[u32]) -> Volume {
        let units = volume.len() as u32;
        let rest = self.threads() as u32 % units;
        let held = (
            volume.iter().copied().min().unwrap_or(0),
            volume.iter().copied().max().unwrap_or(0),
        );
        let is_uniform = self.limits.checked.is_uniform();
        let (least, most) = if is_uniform { rule } else { held };
        let fullest = volume.iter().filter(|&&held| held == most).count() as u32;
        Volume {
            units,
            least,
            most,
            at_most: match (is_uniform, rest) {
                (true, 0) => units,
                (true, rest) => rest,
                (false, _) => fullest,
            },
            held,
        }
    }

    /// Change in the number of mains on `change.to`: -1, 0 or 1.
    fn mains_of(&self, change: Change) -> i32 {
        let is_main = |thread: usize| i32::from(self.search.thread(thread).main);
        is_main(change.thread) - change.partner.map_or(0, is_main)
    }

    /// Whether the worker has as many threads on the cpu as allowed.
    fn is_crowded(&self, worker: u16, cpu: usize) -> bool {
        self.search.worker_threads_on_cpu(worker, cpu) >= self.limits.own
    }
}

impl<'a> Limits<'a> {
    fn of(checked: &'a CheckedMapping) -> Self {
        let domains = &checked.domains;
        let more = |rule: Rule| checked.admitted(rule);
        let full = |most: Option<u32>, rule| {
            let most = most.filter(|_| checked.is_uniform());
            most.map_or(u32::MAX, |most| most + more(rule))
        };
        let ranks = domains.rules.rank_cap + more(Rule::EqualRanks);
        Self {
            mains: ranks,
            peers: ranks * (domains.threads as u32 - 1),
            own: domains.rules.worker_cap + more(Rule::OwnThreads),
            checked,
            cpu: checked.cpu_limits(),
            core: checked.core_limits(),
            core_mains: checked.core_mains + more(Rule::MainsPerCore),
            full_cpus: full(domains.rules.full_main_cpus, Rule::FullCpus),
            full_cores: full(domains.rules.full_main_cores, Rule::FullCores),
        }
    }
}

/// Whether a volume leaves its limits on the side to which it moves.
fn leaves(volume: u32, by: i32, (least, most): (u32, u32)) -> bool {
    let then = volume.saturating_add_signed(by);
    (by > 0 && then > most) || (by < 0 && then < least)
}
