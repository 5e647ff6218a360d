//! A problem and a mapping that was checked against it, ready to be counted.

use albacore_mapping::{Mapping, Problem, check, validate};

use crate::board::{Board, Change};
use crate::domains::Domains;
use crate::{Alternative, ExplainError, Rule};

/// The problem as counts, and how far the mapping loosens each rule.
pub(crate) struct Frame {
    /// The problem as counts.
    pub(crate) domains: Domains,
    /// By rule, how far the mapping breaks it.
    admitted: [u32; Rule::ALL.len()],
}

impl Frame {
    /// Checks and counts.
    ///
    /// # Errors
    /// The problem is outside the limits, or the mapping does not place its threads on its cpus.
    pub(crate) fn of(problem: &Problem, mapping: &Mapping) -> Result<Self, ExplainError> {
        validate(problem)?;
        let report = check(problem, mapping).map_err(ExplainError::Mapping)?;
        let amount = |rule: Rule| {
            let found = report.relaxed.iter().find(|r| r.rule == rule.name());
            found.map_or(0, |relaxed| relaxed.amount)
        };
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
    pub(crate) fn board(&self, mapping: &Mapping) -> Board<'_> {
        Board::of(&self.domains, self.admitted, mapping)
    }

    /// A change by the names of its threads and cpus.
    pub(crate) fn alternative(&self, change: Change, gain: i64) -> Alternative {
        Alternative {
            slot: self.domains.slot(change.thread),
            to: self.domains.id(change.to),
            partner: change.partner.map(|partner| self.domains.slot(partner)),
            gain,
        }
    }
}
