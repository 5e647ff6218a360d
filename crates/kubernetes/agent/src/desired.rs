//! Computes the desired placement of this node's pods from pods, deployments and the node's kill
//! switch. Pure functions that return [`DesiredPod`]s.
//!
//! A pod is placed only if the API server reports that it runs on this node, and if it has either
//! the annotation, or the label together with an InferenceDeployment of that name in the pod's
//! namespace. Names that the container or its processes give themselves are ignored.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use albacore_api::{
    CountSource, InferenceDeployment, PLACE_ANNOTATION, PlaceAnnotation, policy_of,
    policy_of_annotation, trial_of, validate,
};
use albacore_plan::{Enforcement, ServerKind, SubjectPolicy};
use albacore_trial::TrialSpec;

use crate::opted_in_pod::{OptIn, OptedInPod, PlacedContainer};

/// Namespaces whose pods are never placed, regardless of their labels.
const NEVER_PLACED: [&str; 3] = ["kube-system", "kube-public", "kube-node-lease"];

/// Annotation of the node object that restricts the agent.
pub(crate) const NODE_ANNOTATION: &str = "albacore.dev/enforcement";

/// The value of the node's annotation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(crate) enum KillSwitch {
    /// No restriction beyond the flag and the deployments.
    #[default]
    Absent,
    /// Write no mask.
    Observe,
    /// Give every mask back and leave the pods alone.
    None,
    /// Unknown value; treated as `Observe`, because it was meant to restrict the agent.
    Invalid,
}

impl KillSwitch {
    /// Parses the annotation's value.
    pub(crate) fn of(value: Option<&str>) -> Self {
        match value {
            None => Self::Absent,
            Some("Observe") => Self::Observe,
            Some("None") => Self::None,
            Some(_) => Self::Invalid,
        }
    }
}

/// Rules that apply to all pods of the node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NodeRules {
    /// Enforcement set by the agent's command line.
    pub(crate) enforcement: Enforcement,
    pub(crate) kill_switch: KillSwitch,
}

impl NodeRules {
    /// Returns the strictest of the command line, the node's annotation and `requested`, the
    /// enforcement in the deployment.
    fn enforcement(self, requested: Enforcement) -> Enforcement {
        let is_unrestricted = self.kill_switch == KillSwitch::Absent;
        match (self.enforcement, is_unrestricted, requested) {
            (Enforcement::Enforce, true, Enforcement::Enforce) => Enforcement::Enforce,
            _ => Enforcement::Observe,
        }
    }
}

/// A pod and the action to take for it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct DesiredPod {
    pub(crate) pod: OptedInPod,
    pub(crate) action: PodAction,
}

/// Action to take for a pod.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum PodAction {
    /// Place the processes of this container.
    Place {
        container: String,
        /// How workers are detected; `None` derives it from the container's first process.
        server_kind: Option<ServerKind>,
        /// Policy by which they are placed.
        policy: SubjectPolicy,
        /// Generation of the deployment that the policy was derived from, or a hash of the
        /// annotation.
        generation: i64,
        /// Sources of the worker and thread counts.
        counts: CountSources,
        /// Alternative placements to compare with this one.
        trial: Option<TrialSpec>,
    },
    /// Keep an existing placement unchanged, because the deployment is currently invalid.
    Keep { reason: String },
    /// Do not place it; give back its masks if it was placed.
    Release { reason: String },
    /// Like `Release`, because the request is invalid; the pod's owner gets an event.
    Refuse { reason: String },
}

/// Sources of a pod's worker and thread counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CountSources {
    /// Both are in the spec of the deployment.
    Deployment,
    /// The annotation sets or omits each of them.
    Annotation {
        workers: CountSource,
        threads: CountSource,
        /// Whether both counts are known.
        are_known: bool,
    },
}

/// Workers assumed for a pod whose worker count is not known yet. With 1, a single process would be
/// taken for the worker, although it may be a master that has not forked yet.
const WORKERS_UNKNOWN: u16 = 2;

/// Threads per worker assumed until the count is known.
const THREADS_UNKNOWN: u16 = 1;

impl PodAction {
    pub(crate) fn release(reason: impl Into<String>) -> Self {
        Self::Release {
            reason: reason.into(),
        }
    }
}

/// Returns the desired state of this node's pods, ordered by name. `deployment_of` returns a pod's
/// InferenceDeployment, if it exists.
pub(crate) fn desired_pods<'a>(
    pods: impl IntoIterator<Item = OptedInPod>,
    deployment_of: impl Fn(&OptedInPod) -> Option<&'a InferenceDeployment>,
    rules: NodeRules,
) -> Vec<DesiredPod> {
    let mut desired: Vec<DesiredPod> = pods
        .into_iter()
        .filter(|pod| !pod.has_ended)
        .map(|pod| {
            let action = action(&pod, deployment_of(&pod), rules);
            DesiredPod { pod, action }
        })
        .collect();
    desired.sort_by(|a, b| a.pod.key.cmp(&b.pod.key));
    desired.dedup_by(|a, b| a.pod.uid == b.pod.uid);
    desired
}

/// Why a pod must never be touched, regardless of its deployment; `None` if it may be placed.
pub(crate) fn is_off_limits(pod: &OptedInPod) -> Option<String> {
    let namespace = pod.key.namespace.as_str();
    if NEVER_PLACED.contains(&namespace) {
        return Some(format!("pods of {namespace} are never placed"));
    }
    let text = "static pods are never placed: the API server does not run them";
    pod.is_static.then(|| text.to_owned())
}

fn action(
    pod: &OptedInPod,
    deployment: Option<&InferenceDeployment>,
    rules: NodeRules,
) -> PodAction {
    if let Some(reason) = is_off_limits(pod) {
        return PodAction::Release { reason };
    }
    match &pod.opt_in {
        OptIn::Deployment { name, annotation } => {
            let namespace = &pod.key.namespace;
            let Some(deployment) = deployment else {
                return PodAction::release(format!(
                    "there is no InferenceDeployment {namespace}/{name}"
                ));
            };
            let contradiction = match annotation {
                Some(Err(error)) => Some(error.to_string()),
                Some(Ok(annotation)) => annotation.contradicts(&deployment.spec),
                None => None,
            };
            match contradiction {
                Some(reason) => PodAction::Refuse { reason },
                None => by_deployment(pod, deployment, rules),
            }
        }
        OptIn::Annotation {
            annotation: Err(error),
            ..
        } => PodAction::Refuse {
            reason: error.to_string(),
        },
        OptIn::Annotation {
            annotation: Ok(annotation),
            omp_threads,
        } => by_annotation(pod, annotation, *omp_threads, rules),
    }
}

/// Why no pod is placed, if the node's annotation disables placement.
fn kill_switch_reason(rules: NodeRules) -> Option<String> {
    let is_off = rules.kill_switch == KillSwitch::None;
    is_off.then(|| format!("the node's annotation {NODE_ANNOTATION} is None"))
}

fn by_deployment(
    pod: &OptedInPod,
    deployment: &InferenceDeployment,
    rules: NodeRules,
) -> PodAction {
    if let Some(reason) = kill_switch_reason(rules) {
        return PodAction::Release { reason };
    }
    if let Some(violation) = validate(deployment).first() {
        return PodAction::Keep {
            reason: violation.to_string(),
        };
    }
    let container = match &pod.container {
        PlacedContainer::Running { id, .. } => id.clone(),
        PlacedContainer::NotRunning { name } => {
            return PodAction::release(format!("container {name} is not running"));
        }
        PlacedContainer::Missing { reason } => return PodAction::release(reason),
    };
    let mut policy = policy_of(&deployment.spec);
    policy.enforcement = rules.enforcement(policy.enforcement);
    PodAction::Place {
        container,
        server_kind: Some(match deployment.spec.is_built_in() {
            true => ServerKind::Named,
            false => ServerKind::PreFork,
        }),
        policy,
        generation: deployment.metadata.generation.unwrap_or_default(),
        counts: CountSources::Deployment,
        trial: trial_of(&deployment.spec),
    }
}

fn by_annotation(
    pod: &OptedInPod,
    annotation: &PlaceAnnotation,
    omp_threads: Option<u16>,
    rules: NodeRules,
) -> PodAction {
    if let Some(reason) = kill_switch_reason(rules) {
        return PodAction::Release { reason };
    }
    let container = match &pod.container {
        PlacedContainer::Running { id, .. } => id.clone(),
        PlacedContainer::NotRunning { name } => {
            return PodAction::release(format!("container {name} is not running"));
        }
        PlacedContainer::Missing { reason } => {
            return PodAction::Refuse {
                reason: format!("{PLACE_ANNOTATION}: {reason}"),
            };
        }
    };
    let source = |is_requested: bool, otherwise: CountSource| match is_requested {
        true => CountSource::Annotation,
        false => otherwise,
    };
    let workers = source(annotation.workers.is_some(), CountSource::ProcessTree);
    let threads = match omp_threads {
        Some(_) => source(annotation.threads.is_some(), CountSource::Environment),
        None => source(annotation.threads.is_some(), CountSource::ProcessTree),
    };
    let threads_found = omp_threads.unwrap_or(THREADS_UNKNOWN);
    let mut policy = policy_of_annotation(annotation, WORKERS_UNKNOWN, threads_found);
    policy.enforcement = rules.enforcement(policy.enforcement);
    let mut hasher = DefaultHasher::new();
    format!("{annotation:?} {omp_threads:?}").hash(&mut hasher);
    PodAction::Place {
        container,
        server_kind: None,
        policy,
        generation: hasher.finish().cast_signed(),
        counts: CountSources::Annotation {
            workers,
            threads,
            are_known: ![workers, threads].contains(&CountSource::ProcessTree),
        },
        trial: None,
    }
}

#[cfg(test)]
mod tests;
