//! Explains one thread: the alternative of every other cpu.

use crate::{Mapping, Problem, Slot};
use albacore_topology::{Cpu, CpuId, Level, Topology};

use crate::ExplainError;
use crate::explain::checked_mapping::CheckedMapping;
use crate::explain::counted_mapping::Change;
use crate::explain::rules::{Rule, RuleSet};
use crate::explain::single_changes::changes_of;

/// Another cpu for the thread, with the best change that moves it there: one that keeps every rule
/// or, if there is none, one that breaks the fewest rules.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AlternativeCpu {
    pub cpu: CpuId,
    /// The innermost level that it shares with the thread's own cpu.
    pub nearness: Level,
    /// The thread that would move in return; `None` if no other thread moves.
    pub partner: Option<Slot>,
    /// Gain of the objective; negative if the change costs.
    pub gain: i64,
    /// The rules that forbid the change; empty if it is allowed.
    pub forbidden: Vec<Rule>,
}

/// Explanation of the cpu of one thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ThreadExplanation {
    pub slot: Slot,
    pub cpu: CpuId,
    /// Sum of its distances to the other mains, clock cycles; 0 for a peer.
    pub to_mains: i64,
    /// Sum of its distances to the other threads of its worker, clock cycles.
    pub to_worker: i64,
    /// Every other cpu, in ascending order of id.
    pub places: Vec<AlternativeCpu>,
}

/// Evaluates one thread on each of the other cpus: the cost, and the rules that forbid it.
///
/// # Errors
/// The problem is outside the limits, or the mapping does not fit it or has no such thread.
pub fn explain_thread(
    problem: &Problem,
    mapping: &Mapping,
    slot: Slot,
) -> Result<ThreadExplanation, ExplainError> {
    let checked = CheckedMapping::of(problem, mapping)?;
    let no_thread = || ExplainError::NoThread {
        slot,
        workers_last: problem.workers - 1,
        ranks_last: problem.threads - 1,
    };
    let here = mapping
        .cpu(slot)
        .and_then(|id| problem.topology.cpu(id))
        .ok_or_else(no_thread)?;
    let counted = checked.counted(mapping);
    let thread =
        usize::from(slot.worker.0) * usize::from(problem.threads) + usize::from(slot.rank.0);
    let mut best: Vec<Option<(Change, RuleSet, i64)>> = vec![None; counted.cpus().len()];
    for change in changes_of(&counted, thread) {
        let (broken, gain) = (counted.broken(change), counted.gain(change));
        let best = &mut best[change.to];
        let is_better = best.is_none_or(|(_, least, most)| {
            (broken.len(), std::cmp::Reverse(gain)) < (least.len(), std::cmp::Reverse(most))
        });
        if is_better {
            *best = Some((change, broken, gain));
        }
    }
    let place = |(change, broken, gain): (Change, RuleSet, i64)| {
        let cpu = checked.domains.ids[change.to];
        Some(AlternativeCpu {
            cpu,
            nearness: Level::of(here, problem.topology.cpu(cpu)?),
            partner: change.partner.map(|p| checked.domains.slot(p)),
            gain,
            forbidden: broken.iter().collect(),
        })
    };
    let mut places: Vec<AlternativeCpu> = best.into_iter().flatten().filter_map(place).collect();
    places.sort_by_key(|place| place.cpu);
    let others = |keep: &dyn Fn(Slot) -> bool| {
        let others = mapping
            .iter()
            .filter(|&(other, _)| other != slot && keep(other))
            .filter_map(|(_, id)| problem.topology.cpu(id));
        sum_of_distances(problem, here, others)
    };
    let to_mains = if slot.rank.0 == 0 {
        others(&|other| other.rank.0 == 0)
    } else {
        0
    };
    Ok(ThreadExplanation {
        slot,
        cpu: here.id,
        to_mains,
        to_worker: others(&|other| other.worker == slot.worker),
        places,
    })
}

/// Sum of the distances from one cpu to others.
fn sum_of_distances<'a>(
    problem: &Problem,
    from: &Cpu,
    others: impl Iterator<Item = &'a Cpu>,
) -> i64 {
    others
        .map(|other| i64::from(Topology::distance(from, other, &problem.distances)))
        .sum()
}
