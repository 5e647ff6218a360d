//! Placement, as the nodes of the pods tell it.

use albacore_api::{Enforcement, PlacementPolicy, PodPlacement};

use super::Facts;

/// Threads read back on their planned cpu, of all threads; `None` where no node says anything.
pub(super) fn pinned(facts: &Facts<'_>) -> Option<String> {
    let spec = &facts.deployment.spec;
    let pods = i64::try_from(facts.live_pods().count()).unwrap_or(i64::MAX);
    let all = pods * i64::from(spec.workers) * i64::from(spec.threads);
    placements(facts).next()?;
    let verified: i64 = placements(facts).map(|(_, p)| i64::from(p.verified)).sum();
    Some(format!("{verified}/{all}"))
}

fn placements<'a>(facts: &'a Facts<'_>) -> impl Iterator<Item = (&'a str, &'a PodPlacement)> {
    facts
        .live_pods()
        .filter_map(|pod| Some((pod.name.as_str(), pod.placement.as_ref()?)))
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
    let slots = i32::from(spec.workers) * i32::from(spec.threads);
    if spec.placement.enforcement == Enforcement::Observe {
        let verified: i32 = told.iter().map(|(_, p)| p.verified).sum();
        let pods = i32::try_from(pods).unwrap_or(i32::MAX);
        let message = format!(
            "{verified} of {} threads are on their planned cpu; placement.enforcement Observe \
             writes no mask",
            slots.saturating_mul(pods)
        );
        return ("True", "Observed", message);
    }
    let first = told
        .iter()
        .find(|(_, p)| p.verified < slots || p.reason.is_some());
    match first {
        None => (
            "True",
            "Verified",
            "every thread is on its planned cpu".to_owned(),
        ),
        Some((pod, placement)) => {
            let drift = placement
                .drift
                .as_ref()
                .map(|d| format!("drift: {}", d.cause));
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
