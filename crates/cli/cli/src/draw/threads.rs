//! The threads of a plan as drawn: name, CPU, and the previous CPU of those that move.

use std::collections::BTreeMap;

use albacore_solver::{Mapping, Slot};
use albacore_topology::CpuId;

use crate::planning::{JointPlan, SinglePlan};

/// A thread to draw.
#[derive(Clone, Copy, Debug)]
pub(super) struct DrawnThread {
    /// Index of its deployment, if there are several.
    pub(super) deployment: Option<usize>,
    pub(super) slot: Slot,
    pub(super) cpu: CpuId,
    /// Its CPU in the plan in force, if it moves.
    pub(super) from: Option<CpuId>,
}

impl DrawnThread {
    pub(super) fn is_main(&self) -> bool {
        self.slot.rank.0 == 0
    }

    /// Formats as `2.0*` or `B2.0*`; with `~` if it moves.
    pub(super) fn name(&self) -> String {
        let deployment = self.deployment.map(short_name).unwrap_or_default();
        let (worker, rank) = (self.slot.worker.0, self.slot.rank.0);
        let main = if self.is_main() { "*" } else { "" };
        let moved = if self.from.is_some() { "~" } else { "" };
        format!("{deployment}{worker}.{rank}{main}{moved}")
    }
}

/// The threads on each cpu, main threads first.
pub(super) type OnCpus = BTreeMap<CpuId, Vec<DrawnThread>>;

/// The threads of a plan of one deployment.
pub(super) fn of_plan(plan: &SinglePlan) -> OnCpus {
    let mut on_cpus = OnCpus::new();
    let current = plan.problem.current.as_ref();
    add_threads(&mut on_cpus, None, &plan.solution.mapping, current);
    on_cpus
}

/// The threads of a plan of several deployments.
pub(super) fn of_joint(plan: &JointPlan) -> OnCpus {
    let mut on_cpus = OnCpus::new();
    let deployments = plan.problem.deployments.iter();
    for (index, (mapping, deployment)) in plan.solution.mappings.iter().zip(deployments).enumerate()
    {
        add_threads(
            &mut on_cpus,
            Some(index),
            mapping,
            deployment.current.as_ref(),
        );
    }
    on_cpus
}

fn add_threads(
    on_cpus: &mut OnCpus,
    deployment: Option<usize>,
    mapping: &Mapping,
    current: Option<&Mapping>,
) {
    for (slot, cpu) in mapping.iter() {
        let before = current.and_then(|current| current.cpu(slot));
        on_cpus.entry(cpu).or_default().push(DrawnThread {
            deployment,
            slot,
            cpu,
            from: before.filter(|&before| before != cpu),
        });
    }
}

/// Short name of a deployment: A, B ... Z, AA, AB ...
pub(super) fn short_name(index: usize) -> String {
    let mut left = index + 1;
    let mut letters = Vec::new();
    // bound: `left` decreases by a factor of 26
    while left > 0 {
        left -= 1;
        letters.push(char::from(b'A' + (left % 26) as u8));
        left /= 26;
    }
    letters.into_iter().rev().collect()
}

#[cfg(test)]
mod tests {
    use super::short_name;

    #[test]
    fn deployments_are_lettered_like_spreadsheet_columns() {
        let first: Vec<String> = [0, 1, 25, 26, 51, 52, 701, 702].map(short_name).to_vec();
        assert_eq!(first, ["A", "B", "Z", "AA", "AZ", "BA", "ZZ", "AAA"]);
    }
}
