//! A problem with a mapping that was checked against it, prepared for counting.

use albacore_mapping::cpu_volumes;

use crate::{Mapping, Problem, check, relaxed_by, validate};

use crate::explain::counted_mapping::{Change, CountedMapping};
use crate::single::domains::Domains;
use crate::{Alternative, ExplainError, Rule};

/// The problem as domains, and how far the mapping relaxes each rule.
pub(crate) struct CheckedMapping {
    pub(crate) domains: Domains,
    /// Per rule, how far the mapping breaks it.
    admitted: [u32; Rule::ALL.len()],
    /// Fewest and most threads of each cpu by rule (8), by position.
    cpu_volumes: Vec<(u32, u32)>,
    /// Whether each cpu is slower than the fastest, by position.
    is_slow: Vec<bool>,
    /// Limit on the mains of a core: its share or, where cores differ in speed, the smallest limit
    /// with which all mains can be placed. The checker counts mains beyond it.
    pub(crate) core_mains: u32,
}

impl CheckedMapping {
    /// Checks the mapping and counts how far it breaks each rule.
    ///
    /// # Errors
    /// The problem is outside the limits, or the mapping does not place its threads on its cpus.
    pub(crate) fn of(problem: &Problem, mapping: &Mapping) -> Result<Self, ExplainError> {
        validate(problem)?;
        let report = check(problem, mapping).map_err(ExplainError::Mapping)?;
        let amount = |rule: Rule| relaxed_by(&report.relaxed, rule.name());
        let domains = Domains::of(problem);
        let cpus = problem.topology.cpus();
        let fastest = cpus.iter().map(|cpu| cpu.capacity).max();
        let is_slow = |&at: &usize| Some(cpus[at].capacity) < fastest;
        let volumes = cpu_volumes(problem);
        let most = most_mains(problem, mapping) - amount(Rule::MainsPerCore);
        let index = |id: &_| cpus.partition_point(|cpu| cpu.id < *id);
        let order: Vec<usize> = domains.ids.iter().map(index).collect();
        Ok(Self {
            admitted: Rule::ALL.map(amount),
            cpu_volumes: order.iter().map(|&at| volumes[at]).collect(),
            is_slow: order.iter().map(is_slow).collect(),
            core_mains: domains.rules.core_mains.max(most),
            domains,
        })
    }

    /// How far the mapping breaks a rule.
    pub(crate) fn admitted(&self, rule: Rule) -> u32 {
        self.admitted[rule as usize]
    }

    /// Counts of the checked mapping, on which changes can be evaluated.
    pub(crate) fn counted(&self, mapping: &Mapping) -> CountedMapping<'_> {
        CountedMapping::of(self, mapping)
    }

    /// Whether all cores are equally fast.
    pub(crate) fn is_uniform(&self) -> bool {
        !self.is_slow.contains(&true)
    }

    pub(crate) fn is_slow(&self, cpu: usize) -> bool {
        self.is_slow[cpu]
    }

    /// Fewest and most threads of each cpu, relaxed as far as the mapping relaxes them.
    pub(crate) fn cpu_limits(&self) -> Vec<(u32, u32)> {
        let more = self.admitted(Rule::CpuVolume);
        let loosened = |&(least, most): &(u32, u32)| (least.saturating_sub(more), most + more);
        self.cpu_volumes.iter().map(loosened).collect()
    }

    /// Fewest and most threads of a core, relaxed likewise.
    pub(crate) fn core_limits(&self) -> (u32, u32) {
        if !self.is_uniform() {
            return (0, u32::MAX);
        }
        let (least, most) = self.domains.rules.core_volume;
        let more = self.admitted(Rule::CoreVolume);
        (least.saturating_sub(more), most + more)
    }

    /// The change with the slots of its threads and the ids of its cpus.
    pub(crate) fn alternative(&self, change: Change, gain: i64) -> Alternative {
        Alternative {
            slot: self.domains.slot(change.thread),
            to: self.domains.ids[change.to],
            partner: change.partner.map(|partner| self.domains.slot(partner)),
            gain,
        }
    }
}

/// The most mains on a core.
fn most_mains(problem: &Problem, mapping: &Mapping) -> u32 {
    let mains = mapping.cpus.iter().step_by(mapping.threads.into());
    let core = |&id: &_| problem.topology.cpu(id).map(|cpu| cpu.core);
    let cores: Vec<_> = mains.map(core).collect();
    let count = |core| cores.iter().filter(|&other| other == core).count() as u32;
    cores.iter().map(count).max().unwrap_or(0)
}
