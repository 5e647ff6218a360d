//! `albacore explain`: the reasons why a deployment is not ready, not placed or misses its
//! objective, with a remedy for each.
//!
//! Problems are read from conditions and reports of the cluster, remedies are defined here. Causes
//! precede consequences: the spec, then pods, models, placement, and the objective.

use albacore_api::{counted, remedy_of};
use serde::Serialize;

use super::report::{
    ConditionReport, DeploymentReport, DeploymentState, PlacementReport, PodReport,
};
use super::text::is_problem_condition;

/// One problem.
#[derive(Serialize, PartialEq, Eq, Debug)]
pub(super) struct Finding {
    /// Name of the deployment, pod or model.
    pub(super) about: String,
    /// The problem, as a sentence.
    pub(super) message: String,
    /// Empty if waiting is sufficient.
    pub(super) remedy: String,
}

pub(super) fn finding(about: &str, message: String, remedy: &str) -> Finding {
    Finding {
        about: about.to_owned(),
        message,
        remedy: remedy.to_owned(),
    }
}

/// All findings of a deployment, causes first; empty if there is no problem.
pub(super) fn findings(of: &DeploymentReport) -> Vec<Finding> {
    let about = format!("{}/{}", of.namespace, of.name);
    let mut found = Vec::new();
    if of.state == DeploymentState::Terminating {
        found.push(finding(&about, "is being deleted".to_owned(), ""));
    }
    if of.conditions.is_empty() {
        let message = "has no status: no controller has seen it".to_owned();
        let remedy = "check that the controller runs and may write status: kubectl get pods -A -l \
                      app.kubernetes.io/name=albacore; kubectl get events";
        found.push(finding(&about, message, remedy));
    }
    // Reconciling reports rejections by the API server; ordinary progress has no remedy.
    for kind in [
        "Stalled",
        "Reconciling",
        "WorkersRespawning",
        "StandbyMissing",
    ] {
        let standing = of.condition(kind).filter(|c| c.status == "True");
        found.extend(
            standing
                .filter(|c| is_cause(c))
                .map(|c| of_condition(&about, c)),
        );
    }
    for pod in &of.pods {
        found.extend(of_pod(pod));
    }
    for model in &of.models {
        if let Some(error) = &model.error {
            let remedy = "replace the file with the correct one, or correct spec.models[].uri; the \
                          model in force stays until then";
            found.push(finding(
                &format!("model {}", model.name),
                error.clone(),
                remedy,
            ));
        }
    }
    let is_said = !found.is_empty();
    for model in of.models.iter().filter(|model| model.is_slo_missed()) {
        let objective = model.slo.as_deref().unwrap_or("its latency");
        let message = format!("misses its objective of {objective}: {}", model.figures());
        found.push(finding(&format!("model {}", model.name), message, ""));
    }
    for condition in &of.conditions {
        let is_wrong = condition.status != "True" && !is_problem_condition(&condition.kind);
        if is_wrong && !(is_said && is_consequence(condition)) {
            found.push(of_condition(&about, condition));
        }
    }
    found
}

/// Whether a condition that is present only with problems requires an action.
fn is_cause(condition: &ConditionReport) -> bool {
    condition.kind != "Reconciling" || remedy_of(&condition.reason).is_some()
}

/// Whether a condition merely follows from a listed cause: pods that do not run neither serve nor
/// load models, and do not report.
fn is_consequence(condition: &ConditionReport) -> bool {
    let ConditionReport { kind, status, .. } = condition;
    let is_of_pods = matches!(kind.as_str(), "Ready" | "Available" | "Progressing");
    is_of_pods || status == "Unknown" || (kind == "ModelLoaded" && condition.reason == "Loading")
}

fn of_condition(about: &str, condition: &ConditionReport) -> Finding {
    let ConditionReport {
        kind,
        status,
        reason,
        message,
    } = condition;
    let remedy = remedy_of(reason);
    // The controller appends the remedy to the message.
    let bare = remedy.and_then(|remedy| message.strip_suffix(remedy)?.strip_suffix("; "));
    let message = bare.unwrap_or(message);
    let message = format!("{kind} is {status} ({reason}): {message}");
    finding(about, message, remedy.unwrap_or(general_remedy(condition)))
}

fn general_remedy(condition: &ConditionReport) -> &'static str {
    match (condition.kind.as_str(), condition.status.as_str()) {
        ("Stalled", _) => "correct what the message names; nothing changes until then",
        ("SLOMet", "False") => {
            "give it more pods (spec.replicas, spec.autoscaling), more workers, or a longer \
             spec.models[].slo.latency"
        }
        ("Placed", _) => "see the pods below; without the node agent nothing is placed",
        _ => "",
    }
}

pub(super) fn of_pod(pod: &PodReport) -> Vec<Finding> {
    let about = format!("pod {}", pod.name);
    let mut found = Vec::new();
    if let Some(problem) = &pod.problem {
        let remedy = pod.reason.as_deref().and_then(remedy_of);
        let remedy = remedy.unwrap_or("see kubectl describe pod; it comes from spec.template");
        found.push(finding(&about, problem.clone(), remedy));
    }
    match &pod.placement {
        Some(placement) => found.extend(of_placement(&about, placement)),
        None if pod.node.is_some() && pod.phase == "Running" => {
            let message = "is not placed: the agent of its node has not reported it".to_owned();
            let remedy = "check that the agent runs on this node";
            found.push(finding(&about, message, remedy));
        }
        None => {}
    }
    found
}

fn of_placement(about: &str, of: &PlacementReport) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(reason) = &of.reason {
        found.push(finding(about, reason.clone(), ""));
    }
    if let Some(threads) = of.quota_threads {
        let message = format!(
            "its cpu limit lets {} of each worker run at once",
            counted(threads, "thread")
        );
        let remedy = "raise resources.limits.cpu to W x T cpus, or lower its threads";
        found.push(finding(about, message, remedy));
    }
    if let (true, Some(at)) = (of.is_unknown(), &of.last_verification) {
        let message = format!("the agent of its node has verified nothing since {at}");
        let remedy = "check that it runs: kubectl get pods -A -o wide -l \
                      app.kubernetes.io/component=agent";
        found.push(finding(about, message, remedy));
    }
    let threads = (
        of.threads_verified,
        of.threads,
        "threads are on their planned cpu",
    );
    let front = (
        of.front_verified,
        of.front.unwrap_or(0),
        "event loops of the front end have their planned mask",
    );
    for (verified, all, what) in [threads, front] {
        let Some(verified) = verified.filter(|&verified| verified < all) else {
            continue;
        };
        let message = format!("{verified} of {all} {what}");
        let remedy = "this is normal for a moment after a respawn; if it persists, the last drift \
                      shows what writes masks";
        found.push(finding(about, message, remedy));
    }
    if of.drift_cause.as_deref() == Some("ForeignWrite") {
        let message = format!("another program changed {}", counted(of.drifts, "mask"));
        let remedy = "unset OMP_PROC_BIND, KMP_AFFINITY and taskset in the pod, or set \
                       spec.placement.policy: None (of an annotated pod remove the annotation)";
        found.push(finding(about, message, remedy));
    }
    if of.isolation == "none" {
        let message =
            "shares its cpus with other processes of the node: pinned threads are not isolated";
        let remedy = "for exclusive cpus set whole cpus in spec.resources, requests equal to \
                      limits, on a node with the static CPU manager policy";
        found.push(finding(about, message.to_owned(), remedy));
    }
    found
}
