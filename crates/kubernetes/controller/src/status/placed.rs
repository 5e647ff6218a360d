//! Placement, as the nodes of the pods tell it.

use std::collections::BTreeSet;

use albacore_api::{Enforcement, InferenceDeploymentSpec, PlacementPolicy, PodPlacement};

use super::Facts;
use crate::limits::{SILENCE_TIME_MAX, SILENT_NODES_TOLD_MAX};
use crate::names::AGENT_SILENT;

/// Threads read back on their planned cpu, of all threads; `?` while an agent is silent, `None`
/// where no node says anything.
pub(super) fn pinned(facts: &Facts<'_>) -> Option<String> {
    let spec = &facts.deployment.spec;
    let pods = i64::try_from(facts.live_pods().count()).unwrap_or(i64::MAX);
    let asked = pods * i64::from(spec.workers) * i64::from(spec.threads);
    if silent_nodes(facts).next().is_some() {
        return Some("?".to_owned());
    }
    placements(facts).next()?;
    // What a quota does not let run at once is not to be pinned.
    let whole = i64::from(spec.workers) * i64::from(spec.threads);
    let spared = placements(facts).map(|(_, p)| whole - i64::from(slots(p, spec)));
    let all = asked - spared.sum::<i64>();
    let verified: i64 = placements(facts).map(|(_, p)| i64::from(p.verified)).sum();
    Some(format!("{verified}/{all}"))
}

/// Threads of a pod that are to be on one cpu each.
fn slots(placement: &PodPlacement, spec: &InferenceDeploymentSpec) -> i32 {
    placement.slots(spec.workers, spec.threads)
}

fn placements<'a>(facts: &'a Facts<'_>) -> impl Iterator<Item = (&'a str, &'a PodPlacement)> {
    facts
        .live_pods()
        .filter_map(|pod| Some((pod.name.as_str(), pod.placement.as_ref()?)))
}

fn silent_nodes<'a>(facts: &'a Facts<'_>) -> impl Iterator<Item = &'a str> {
    let pods = facts.live_pods();
    pods.filter_map(|pod| pod.silent_node.as_deref())
}

/// Which agents are silent, and what to do about it.
fn silence(nodes: &BTreeSet<&str>) -> String {
    let named: Vec<&str> = nodes.iter().copied().take(SILENT_NODES_TOLD_MAX).collect();
    let more = match nodes.len() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let agents = match nodes.len() {
        1 => "the agent of node",
        _ => "the agents of nodes",
    };
    format!(
        "{agents} {}{more} verified nothing for {} s or cannot reach the API server: where threads run is not known; \
         see kubectl get pods -A -o wide -l app.kubernetes.io/component=agent",
        named.join(", "),
        SILENCE_TIME_MAX.as_secs()
    )
}

/// `status`, `reason` and `message` of the condition `Placed`.
pub(super) fn placed(facts: &Facts<'_>) -> (&'static str, &'static str, String) {
    let spec = &facts.deployment.spec;
    if spec.placement.policy == PlacementPolicy::None {
        let message = "the kernel places the threads, as placement.policy None asks";
        return ("True", "PolicyNone", message.to_owned());
    }
    if facts.is_at_zero() {
        return (
            "Unknown",
            "ScaledToZero",
            "there is no pod to place".to_owned(),
        );
    }
    let silent: BTreeSet<&str> = silent_nodes(facts).collect();
    if !silent.is_empty() {
        return ("Unknown", AGENT_SILENT, silence(&silent));
    }
    let told: Vec<(&str, &PodPlacement)> = placements(facts).collect();
    let pods = facts.live_pods().count();
    if told.is_empty() || told.len() < pods {
        let message = format!(
            "{} of {pods} pods are in the NodePlacement of their node; does the Albacore agent run \
             there?",
            told.len()
        );
        return ("Unknown", "NoReport", message);
    }
    if spec.placement.enforcement == Enforcement::Observe {
        let verified: i32 = told.iter().map(|(_, p)| p.verified).sum();
        let all: i32 = told.iter().map(|(_, p)| slots(p, spec)).sum();
        let message = format!(
            "{verified} of {all} threads are on their planned cpu; placement.enforcement Observe \
             writes no mask"
        );
        return ("True", "Observed", message);
    }
    let mut entries = told.iter();
    match entries.find(|(_, p)| p.verified < slots(p, spec) || p.reason.is_some()) {
        None => verified(&told, spec),
        Some((pod, placement)) => {
            let slots = slots(placement, spec);
            let drift = placement
                .drift
                .as_ref()
                .map(|d| format!("drift: {}", d.cause.name()));
            let why = placement.reason.clone().or(drift).unwrap_or_default();
            let verified = placement.verified;
            let message = format!("{pod}: {verified} of {slots} threads are on their planned cpu");
            let why = if why.is_empty() {
                why
            } else {
                format!("; {why}")
            };
            ("False", "NotVerified", format!("{message}{why}"))
        }
    }
}

/// Every thread that may run is where it should be. A quota below W x T is the user's own word: as
/// many threads as it lets run at once are placed, and no agent can place more.
fn verified(
    told: &[(&str, &PodPlacement)],
    spec: &InferenceDeploymentSpec,
) -> (&'static str, &'static str, String) {
    let limited = told
        .iter()
        .find_map(|(pod, p)| Some((pod, p.quota_threads?)));
    match limited {
        None => (
            "True",
            "Verified",
            "every thread is on its planned cpu".to_owned(),
        ),
        Some((pod, threads)) => {
            let message = format!(
                "every thread that its quota lets run at once is on its planned cpu; {pod}: its cpu limit \
                 lets {threads} of {} threads of each worker run; raise resources.limits.cpu to {} or \
                 lower spec.threads",
                spec.threads,
                u32::from(spec.workers) * u32::from(spec.threads)
            );
            ("True", "QuotaLimited", message)
        }
    }
}
