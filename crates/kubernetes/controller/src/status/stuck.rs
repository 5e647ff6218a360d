//! Selects the unready pod that conditions name, and formats its problem.

use std::collections::BTreeMap;

use albacore_api::PodProblem;

use super::DeploymentFacts;
use crate::observed::ObservedPod;
use crate::rejected_write::with_remedy;

/// The problem that prevents pods from being created or from serving.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct StuckPods {
    /// Valid as the reason of a condition.
    pub(super) reason: String,
    /// The pod, its container, and the message of the scheduler or the kubelet.
    message: String,
}

impl StuckPods {
    /// The message with its remedy.
    pub(super) fn message(&self) -> String {
        with_remedy(&self.message, &self.reason)
    }

    /// `message` followed by the reason and the problem.
    pub(super) fn append_to(&self, message: &str) -> String {
        with_remedy(&format!("{message}; {}", self.message), &self.reason)
    }
}

/// The problem that prevents the pods from serving. The most frequent reason is reported, then the
/// first by name; of its pods the first by name. Thus equal facts produce equal texts.
pub(super) fn stuck(facts: &DeploymentFacts<'_>) -> Option<StuckPods> {
    let workload = facts.workload?;
    if workload.is_fully_available() {
        return None;
    }
    if let Some(failing) = workload
        .replica_failure_condition
        .as_ref()
        .filter(|failing| failing.status == "True")
    {
        return Some(StuckPods {
            reason: "PodsRefused".to_owned(),
            message: format!("cannot create more pods: {}", failing.message),
        });
    }
    let unready: Vec<&ObservedPod> = facts.active_pods().filter(|pod| !pod.is_ready).collect();
    // Failed pods remain in addition to their replacements.
    let failed = facts.pods.iter().filter(|pod| pod.is_inactive);
    let (named, problem) =
        most_frequent(unready.iter().copied()).or_else(|| most_frequent(failed))?;
    let mut message = format!("pod {}: {problem}", named.name);
    let others = unready.iter().filter(|pod| pod.name != named.name).count();
    if others > 0 {
        message.push_str(&format!("; other pods that are not ready: {others}"));
    }
    Some(StuckPods {
        reason: to_condition_reason(&problem.reason),
        message,
    })
}

fn most_frequent<'a>(
    pods: impl Iterator<Item = &'a ObservedPod>,
) -> Option<(&'a ObservedPod, &'a PodProblem)> {
    let mut groups: BTreeMap<&str, Vec<(&ObservedPod, &PodProblem)>> = BTreeMap::new();
    for pod in pods {
        if let Some(problem) = &pod.problem {
            groups
                .entry(&problem.reason)
                .or_default()
                .push((pod, problem));
        }
    }
    let largest = groups.values().map(Vec::len).max()?;
    let group = groups.into_values().find(|group| group.len() == largest)?;
    group.into_iter().min_by_key(|(pod, _)| &pod.name)
}

/// Converts the reason to the format that the API server accepts: a letter, then letters and
/// digits.
fn to_condition_reason(reason: &str) -> String {
    let fits = reason.starts_with(|c: char| c.is_ascii_alphabetic())
        && reason.chars().all(|c| c.is_ascii_alphanumeric())
        && reason.len() <= 64;
    match fits {
        true => reason.to_owned(),
        false => "PodNotReady".to_owned(),
    }
}
