//! A problem and a mapping that was checked against it, ready to be counted.

use crate::{Mapping, Problem, check, relaxed_by, validate};

use crate::explain::counted_mapping::{Change, CountedMapping};
use crate::single::domains::Domains;
use crate::{Alternative, ExplainError, Rule};

/// The problem as counts, and how far the mapping loosens each rule.
pub(crate) struct CheckedMapping {
    /// The problem as counted.
    pub(crate) domains: Domains,
    /// By rule, how far the mapping breaks it.
    admitted: [u32; Rule::ALL.len()],
}

impl CheckedMapping {
    /// Checks and counted.
    ///
    /// # Errors
    /// The problem is outside the limits, or the mapping does not place its threads on its cpus.
    pub(crate) fn of(problem: &Problem, mapping: &Mapping) -> Result<Self, ExplainError> {
        validate(problem)?;
        let report = check(problem, mapping).map_err(ExplainError::Mapping)?;
        let amount = |rule: Rule| relaxed_by(&report.relaxed, rule.name());
        Ok(Self {
            domains: Domains::of(problem),
            admitted: Rule::ALL.map(amount),
        })
    }

    /// How far the mapping breaks a rule.
    pub(crate) fn admitted(&self, rule: Rule) -> u32 {
        self.admitted[rule as usize]
    }

    /// The mapping that was checked, as counts on which changes can be tried.
    pub(crate) fn counted(&self, mapping: &Mapping) -> CountedMapping<'_> {
        CountedMapping::of(&self.domains, self.admitted, mapping)
    }

    /// A change by the names of its threads and cpus.
    pub(crate) fn alternative(&self, change: Change, gain: i64) -> Alternative {
        Alternative {
            slot: self.domains.slot(change.thread),
            to: self.domains.ids[change.to],
            partner: change.partner.map(|partner| self.domains.slot(partner)),
            gain,
        }
    }
}
