//! Input of the solver as short texts in the NodePlacement: other programs compute the plan of this
//! node's placer from them.

use albacore_api::{ConditionState, NodePlacementStatus, PodMapping};
use albacore_placer::{SubjectId, SubjectState};
use albacore_plan::mapping_text;
use albacore_topology::limits::TOPOLOGY_TEXT_BYTES_MAX;
use albacore_topology::{encode_run_length, topology_text};

use crate::facts::{NodeFacts, PodFacts};
use crate::limits::MAPPINGS_BYTES_PER_20_PODS;
use crate::status::json_bytes;

/// Type of the condition that the topology of the node is not published.
const TOPOLOGY_OMITTED: &str = "TopologyOmitted";

/// Text of the topology; `None` before it is known and if it is too long.
pub(crate) fn cpu_topology(facts: &NodeFacts) -> Option<String> {
    let text = topology_text(facts.machine.as_ref()?);
    (text.len() <= TOPOLOGY_TEXT_BYTES_MAX).then_some(text)
}

/// Why the topology is not published, if it is not.
pub(crate) fn omitted(facts: &NodeFacts) -> Option<(&'static str, ConditionState)> {
    let bytes = facts.machine.as_ref().map(topology_text)?.len();
    let message = format!(
        "the cpu topology of this node as text has {bytes} bytes, more than \
         {TOPOLOGY_TEXT_BYTES_MAX}: kubectl albacore plan and diff cannot plan for this node"
    );
    let is_omitted = bytes > TOPOLOGY_TEXT_BYTES_MAX;
    is_omitted.then(|| {
        let state = ConditionState::new("True", "TooLong", message);
        (TOPOLOGY_OMITTED, state)
    })
}

/// The CPUs of fixed threads, which plans leave free.
pub(crate) fn fixed_threads(facts: &NodeFacts) -> Option<String> {
    let states = facts.pods.iter().filter_map(placed_state);
    let fixed = states.flat_map(|state| &state.obstacle_cpus);
    let mut cpus: Vec<u32> = fixed.map(|cpu| cpu.0.into()).collect();
    cpus.sort_unstable();
    (!cpus.is_empty()).then(|| encode_run_length(&cpus))
}

/// Omits the mappings if they are too large together; returns the bytes of all plan inputs.
pub(crate) fn limit(status: &mut NodePlacementStatus) -> usize {
    let bytes = |status: &NodePlacementStatus| {
        let with = json_bytes(status);
        let mut without = status.clone();
        remove_mappings(&mut without);
        with - json_bytes(&without)
    };
    let max = MAPPINGS_BYTES_PER_20_PODS * status.pods.len().div_ceil(20).max(1);
    if bytes(status) > max {
        remove_mappings(status);
    }
    bytes(status) + status.cpu_topology.as_ref().map_or(0, String::len)
}

fn remove_mappings(status: &mut NodePlacementStatus) {
    status.fixed_threads = None;
    for pod in &mut status.pods {
        pod.mapping = None;
    }
}

/// The subjects that are planned jointly, in the order of the placer.
pub(crate) fn members(facts: &NodeFacts) -> Vec<SubjectId> {
    let states = facts.pods.iter().filter_map(placed_state);
    let solved = states.filter(|state| state.is_solved && !state.cpuset.is_empty());
    let mut ids: Vec<SubjectId> = solved.map(|state| state.subject).collect();
    ids.sort_unstable();
    ids
}

/// The plan of a pod that is in force.
pub(crate) fn mapping(pod: &PodFacts, members: &[SubjectId]) -> Option<PodMapping> {
    let state = placed_state(pod)?;
    let order = members.iter().position(|id| *id == state.subject);
    let distances = state.policy.distances.to_string();
    Some(PodMapping {
        cpus: mapping_text(state.mapping.as_ref()?),
        mode: state.policy.mode.into(),
        order: order.and_then(|order| i32::try_from(order).ok()),
        distances: (!distances.is_empty()).then_some(distances),
    })
}

fn placed_state(pod: &PodFacts) -> Option<&SubjectState> {
    pod.state.as_ref().filter(|_| pod.is_placed)
}

#[cfg(test)]
mod tests {
    use albacore_topology::parse_topology_text;

    #[test]
    fn the_api_admits_as_long_a_topology_as_its_parser() {
        let max = albacore_api::limits::TOPOLOGY_BYTES_MAX;
        assert_eq!(max, super::TOPOLOGY_TEXT_BYTES_MAX);
        assert!(parse_topology_text(&" ".repeat(max + 1)).is_err());
    }
}
