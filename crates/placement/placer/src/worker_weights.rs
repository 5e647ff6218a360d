//! Assigns the cpus with the least contention to the busiest workers, when weights change.
//!
//! Rules and objective do not distinguish workers, so workers can exchange their cpus in any
//! mapping ([`WorkerOrder`]). This moves running threads, so an exchange must gain at least
//! [`EXCHANGE_GAIN_MIN`], and workers stay on the NUMA nodes of their memory.

use std::collections::BTreeMap;
use std::time::Instant;

use albacore_solver::{
    ExchangeRule, Mapping, MappingUtilization, Obstacle, UTILIZATION_MAX, WorkerOrder,
};

use crate::SubjectId;
use crate::limits::EXCHANGE_GAIN_MIN;
use crate::report::Report;
use crate::subject::{PassContext, Subject};

/// Reorders the workers of subjects with new weights; `obstacles` are those of the joint problem of
/// all subjects.
pub(crate) fn reorder_workers(
    subjects: &mut BTreeMap<SubjectId, Subject>,
    obstacles: &[Obstacle],
    context: &mut PassContext<'_>,
) {
    if !subjects.values().any(Subject::has_new_weights) {
        return;
    }
    let start = Instant::now();
    let ordered = order(subjects, obstacles, context);
    let took = start.elapsed();
    for subject in subjects.values_mut() {
        if !subject.take_new_weights() {
            continue;
        }
        let mapping = ordered.get(&subject.id());
        (context.report)(&Report::WeightsChanged {
            subject: subject.id(),
            hot: subject.hot_threads().unwrap_or(0),
            other_hot: subject.other_hot_threads(),
            is_reordered: mapping.is_some(),
        });
        if let Some(mapping) = mapping {
            subject.solver.reorder(mapping.clone());
            subject.schedule.request();
            subject.report_planned(took, context);
        }
    }
}

/// The mappings of subjects with new weights that gain from reordering their workers.
fn order(
    subjects: &BTreeMap<SubjectId, Subject>,
    obstacles: &[Obstacle],
    context: &PassContext<'_>,
) -> BTreeMap<SubjectId, Mapping> {
    let mut background = BTreeMap::new();
    for obstacle in obstacles {
        *background.entry(obstacle.cpu).or_insert(0) +=
            obstacle.weight * u32::from(UTILIZATION_MAX);
    }
    let solved = || subjects.values().filter(|subject| subject.is_solved());
    subjects
        .values()
        .for_each(|subject| subject.add_background(&mut background));
    let busy: Vec<Vec<u8>> = solved().map(Subject::busy_threads).collect();
    let mut ids = Vec::new();
    let mut placed = Vec::new();
    for (subject, busy) in solved().zip(&busy) {
        if let Some((_, mapping)) = subject.solver.pair() {
            ids.push((subject.id(), subject.has_new_weights()));
            placed.push(MappingUtilization { mapping, busy });
        }
    }
    let rule = ExchangeRule {
        gain_min: EXCHANGE_GAIN_MIN,
        stays_in_nodes: context.machine.node_count() > 1,
    };
    let mut order = WorkerOrder::new(context.machine, placed, &background);
    let with_new = ids.iter().enumerate().filter(|(_, (_, is_new))| *is_new);
    with_new
        .filter_map(|(index, &(id, _))| Some((id, order.order(index, rule)?)))
        .collect()
}
