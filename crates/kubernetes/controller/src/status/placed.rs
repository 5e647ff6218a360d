//! Placement as reported by the agents of the pods' nodes.

use std::collections::BTreeSet;

use albacore_api::{
    ConditionState, EnforcementPolicy, InferenceDeploymentSpec, PlacementPolicy, PodPlacement,
};

use super::DeploymentFacts;
use crate::limits::{SILENCE_TIME_MAX, SILENT_NODES_NAMED_MAX};
use crate::names::AGENT_SILENT;

/// Threads verified on their planned CPU, of all threads; `?` while an agent is silent, `None` if
/// no node reports.
pub(super) fn pinned(facts: &DeploymentFacts<'_>) -> Option<String> {
    let spec = &facts.deployment.spec;
    let pods = i64::try_from(facts.active_pods().count()).unwrap_or(i64::MAX);
    let requested = pods * i64::from(spec.workers) * i64::from(spec.threads);
    if silent_nodes(facts).next().is_some() {
        return Some("?".to_owned());
    }
    placements(facts).next()?;
    // Threads that a CPU quota does not allow to run at once are not pinned.
    let whole = i64::from(spec.workers) * i64::from(spec.threads);
    let not_pinned = placements(facts).map(|(_, p)| whole - i64::from(slots(p, spec)));
    let all = requested - not_pinned.sum::<i64>();
    let verified: i64 = placements(facts).map(|(_, p)| i64::from(p.verified)).sum();
    Some(format!("{verified}/{all}"))
}

/// Threads of a pod that should be pinned to one CPU each.
fn slots(placement: &PodPlacement, spec: &InferenceDeploymentSpec) -> i32 {
    placement.slots(spec.workers, spec.threads)
}

fn placements<'a>(
    facts: &'a DeploymentFacts<'_>,
) -> impl Iterator<Item = (&'a str, &'a PodPlacement)> {
    facts
        .active_pods()
        .filter_map(|pod| Some((pod.name.as_str(), pod.placement.as_ref()?)))
}

fn silent_nodes<'a>(facts: &'a DeploymentFacts<'_>) -> impl Iterator<Item = &'a str> {
    let pods = facts.active_pods();
    pods.filter_map(|pod| pod.silent_node.as_deref())
}

/// The message that names the nodes with silent agents, and the remedy.
fn silent_nodes_message(nodes: &BTreeSet<&str>) -> String {
    let named: Vec<&str> = nodes.iter().copied().take(SILENT_NODES_NAMED_MAX).collect();
    let more = match nodes.len() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let agents = match nodes.len() {
        1 => "the agent of node",
        _ => "the agents of nodes",
    };
    format!(
        "{agents} {}{more} verified nothing for {} s or cannot reach the API server: the placement \
         is unknown; see kubectl get pods -A -o wide -l app.kubernetes.io/component=agent",
        named.join(", "),
        SILENCE_TIME_MAX.as_secs()
    )
}

/// The condition `Placed`.
pub(super) fn placed(facts: &DeploymentFacts<'_>) -> ConditionState {
    let spec = &facts.deployment.spec;
    if spec.placement.policy == PlacementPolicy::None {
        let message = "placement.policy is None: the kernel places the threads";
        return ConditionState::new("True", "PolicyNone", message);
    }
    if facts.is_at_zero() {
        return ConditionState::new("Unknown", "ScaledToZero", "there is no pod to place");
    }
    let silent: BTreeSet<&str> = silent_nodes(facts).collect();
    if !silent.is_empty() {
        return ConditionState::new("Unknown", AGENT_SILENT, silent_nodes_message(&silent));
    }
    let entries: Vec<(&str, &PodPlacement)> = placements(facts).collect();
    let pods = facts.active_pods().count();
    if entries.is_empty() || entries.len() < pods {
        let message = format!(
            "{} of {pods} pods are in the NodePlacement of their node: check that the Albacore \
             agent runs there",
            entries.len()
        );
        return ConditionState::new("Unknown", "NoReport", message);
    }
    if spec.placement.enforcement == EnforcementPolicy::Observe {
        let verified: i32 = entries.iter().map(|(_, p)| p.verified).sum();
        let all: i32 = entries.iter().map(|(_, p)| slots(p, spec)).sum();
        let message = format!(
            "{verified} of {all} threads are on their planned cpu; placement.enforcement Observe \
             writes no mask"
        );
        return ConditionState::new("True", "Observed", message);
    }
    let is_incomplete = |p: &PodPlacement| p.verified < slots(p, spec) || p.reason.is_some();
    match entries.iter().find(|(_, p)| is_incomplete(p)) {
        None => verified(&entries, spec),
        Some((pod, placement)) => not_verified(pod, placement, spec),
    }
}

fn not_verified(
    pod: &str,
    placement: &PodPlacement,
    spec: &InferenceDeploymentSpec,
) -> ConditionState {
    let drift = placement.drift.as_ref();
    let drift = drift.map(|d| format!("drift: {}", d.cause.name()));
    let why = placement.reason.clone().or(drift).unwrap_or_default();
    let (verified, slots) = (placement.verified, slots(placement, spec));
    let mut message = format!("{pod}: {verified} of {slots} threads are on their planned cpu");
    if !why.is_empty() {
        message = format!("{message}; {why}");
    }
    ConditionState::new("False", "NotVerified", message)
}

/// Whether every thread that may run is on its planned CPU. A CPU quota below workers x threads is
/// the user's choice: only as many threads as it allows to run at once are placed.
fn verified(entries: &[(&str, &PodPlacement)], spec: &InferenceDeploymentSpec) -> ConditionState {
    let limited = entries
        .iter()
        .find_map(|(pod, p)| Some((pod, p.quota_threads?)));
    let Some((pod, threads)) = limited else {
        let message = "every thread is on its planned cpu";
        return ConditionState::new("True", "Verified", message);
    };
    let message = format!(
        "every thread that its quota lets run at once is on its planned cpu; {pod}: its cpu limit \
         lets {threads} of {} threads of each worker run; raise resources.limits.cpu to {} or \
         lower spec.threads",
        spec.threads,
        u32::from(spec.workers) * u32::from(spec.threads)
    );
    ConditionState::new("True", "QuotaLimited", message)
}
