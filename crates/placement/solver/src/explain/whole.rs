//! Explains the whole mapping: its groups, all its alternatives, and the binding rules.

use crate::{Mapping, Mode, Problem, WorkBudget};

use crate::explain::checked_mapping::CheckedMapping;
use crate::explain::counted_mapping::Change;
use crate::explain::groups::Groups;
use crate::explain::single_changes::{ChangeSummary, climb_without, try_all};
use crate::{BindingConstraint, CoreSharing, ExplainError, Explanation, Rule, SpeedClass};

/// Explains `mapping`, as far as `budget` allows.
///
/// # Errors
/// The problem is outside the limits, or the mapping does not place its threads on its cpus.
pub fn explain(
    problem: &Problem,
    mapping: &Mapping,
    budget: &mut WorkBudget,
) -> Result<Explanation, ExplainError> {
    let checked = CheckedMapping::of(problem, mapping)?;
    let counted = checked.counted(mapping);
    let groups = Groups::of(problem, mapping, &checked);
    let ChangeSummary {
        gains,
        equal,
        better,
        runner_up,
        mut complete,
    } = try_all(&counted, budget);
    // a gain that is possible anyway is not due to a rule
    let anyway = match better {
        Some(_) => climb_without(&counted, None, budget),
        None => 0,
    };
    let mut binding = Vec::new();
    for rule in Rule::ALL.into_iter().filter(|&rule| gains[rule as usize]) {
        let gain = climb_without(&counted, Some(rule), budget);
        // a climb that was cut short still has a gain; without any gain it never started
        complete &= gain > 0;
        if gain > anyway {
            let gain = gain - anyway;
            binding.push(BindingConstraint { rule, gain });
        }
    }
    binding.sort_by_key(|b| std::cmp::Reverse(b.gain));
    let alternative = |found: Option<(Change, i64)>| {
        found.map(|(change, gain)| checked.alternative(change, gain))
    };
    let sign = within_sign(problem.mode);
    let (mains, workers) = (groups.mains, groups.workers);
    Ok(Explanation {
        objective: mains.cycles + sign * workers.iter().map(|w| w.cycles).sum::<i64>(),
        cpus: counted.share_of_cpus(),
        cores: counted.share_of_cores(),
        speeds: SpeedClass::of(problem, mapping),
        sharing: CoreSharing::of(problem, mapping),
        mains_per_core: checked.core_mains,
        parts: mains.alone + sign * workers.iter().map(|w| w.alone).sum::<i64>(),
        mains,
        workers,
        binding,
        equal,
        better: alternative(better),
        runner_up: alternative(runner_up),
        complete,
    })
}

/// Sign of the distances within a worker in the objective: +1 scatter, -1 compact.
fn within_sign(mode: Mode) -> i64 {
    match mode {
        Mode::Scatter => 1,
        Mode::Compact => -1,
    }
}
