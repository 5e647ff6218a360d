//! Which pods of this node are placed, and how: pods, deployments and the node's kill switch ->
//! [`DesiredPod`]s. Pure.
//!
//! A pod is placed only if the API server says that it runs on this node, and has either its label
//! and an InferenceDeployment of that name in the pod's namespace, or its annotation. The names
//! that the container or its processes give themselves do not count.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use albacore_api::{
    CountSource, InferenceDeployment, PLACE_ANNOTATION, PlaceAnnotation, policy_of,
    policy_of_annotation, trial_of, validate,
};
use albacore_plan::{Enforcement, ServerKind, SubjectPolicy};
use albacore_trial::TrialSpec;

use crate::opted_in_pod::{OptIn, OptedInPod, PlacedContainer};

/// Namespaces whose pods are never placed, whatever their labels say.
const NEVER_PLACED: [&str; 3] = ["kube-system", "kube-public", "kube-node-lease"];

/// The annotation of a node that restricts the agent.
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
    /// Not understood; treated as `Observe`, because it was meant to restrict the agent.
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

/// What applies to all pods of the node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NodeRules {
    /// The agent's own flag.
    pub(crate) enforcement: Enforcement,
    pub(crate) kill_switch: KillSwitch,
}

impl NodeRules {
    /// The strictest of flag, annotation and the deployment's `asked`.
    fn enforcement(self, asked: Enforcement) -> Enforcement {
        let is_unrestricted = self.kill_switch == KillSwitch::Absent;
        match (self.enforcement, is_unrestricted, asked) {
            (Enforcement::Enforce, true, Enforcement::Enforce) => Enforcement::Enforce,
            _ => Enforcement::Observe,
        }
    }
}

/// A pod and what to do with it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct DesiredPod {
    pub(crate) pod: OptedInPod,
    pub(crate) action: PodAction,
}

/// What to do with a pod.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum PodAction {
    /// Place the processes of this container.
    Place {
        container: String,
        /// How its workers are found; `None`: as its first process tells.
        server_kind: Option<ServerKind>,
        /// How they are placed.
        policy: SubjectPolicy,
        /// The generation of the deployment that the policy is of, or a hash of the annotation.
        generation: i64,
        /// Where the numbers of workers and threads are from.
        counts: CountSources,
        /// The other placements that this one has to be compared with.
        trial: Option<TrialSpec>,
    },
    /// Leave the placement unchanged, if there is one: the deployment is invalid now.
    Keep { reason: String },
    /// Do not place it; give back its masks if it was placed.
    Release { reason: String },
    /// As `Release`, because what it asks is wrong: its owner gets an event.
    Refuse { reason: String },
}

/// Where the numbers of workers and threads of a pod are from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CountSources {
    /// The spec of its deployment has both.
    Deployment,
    /// Its annotation leaves them to these.
    Annotation {
        workers: CountSource,
        threads: CountSource,
        /// Whether both are known now.
        are_known: bool,
    },
}

/// Workers of a pod whose number is not known yet. Where one worker is asked for, a process alone
/// is taken for it; it may be a master that has not forked.
const WORKERS_UNKNOWN: u16 = 2;

/// Threads of a worker while their number is not known.
const THREADS_UNKNOWN: u16 = 1;

impl PodAction {
    pub(crate) fn release(reason: impl Into<String>) -> Self {
        Self::Release {
            reason: reason.into(),
        }
    }
}

/// The desired state of the pods of this node, ordered by name. `deployment_of` gives a pod's
/// InferenceDeployment, if it exists.
pub(crate) fn desired_pods<'a>(
    pods: impl IntoIterator<Item = OptedInPod>,
    deployment_of: impl Fn(&OptedInPod) -> Option<&'a InferenceDeployment>,
    rules: NodeRules,
) -> Vec<DesiredPod> {
    let mut desired: Vec<DesiredPod> = pods
        .into_iter()
        .filter(|pod| !pod.is_over)
        .map(|pod| {
            let action = action(&pod, deployment_of(&pod), rules);
            DesiredPod { pod, action }
        })
        .collect();
    desired.sort_by(|a, b| a.pod.key.cmp(&b.pod.key));
    desired.dedup_by(|a, b| a.pod.uid == b.pod.uid);
    desired
}

/// Why a pod may never be touched, whatever its deployment says; `None` if it may.
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
                Some(Ok(asked)) => asked.contradicts(&deployment.spec),
                None => None,
            };
            match contradiction {
                Some(reason) => PodAction::Refuse { reason },
                None => by_deployment(pod, deployment, rules),
            }
        }
        OptIn::Annotation {
            asked: Err(error), ..
        } => PodAction::Refuse {
            reason: error.to_string(),
        },
        OptIn::Annotation {
            asked: Ok(asked),
            omp_threads,
        } => by_annotation(pod, asked, *omp_threads, rules),
    }
}

/// Why no pod is placed, if the node's annotation says so.
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
            return PodAction::release(format!("the container {name} does not run"));
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
    asked: &PlaceAnnotation,
    omp_threads: Option<u16>,
    rules: NodeRules,
) -> PodAction {
    if let Some(reason) = kill_switch_reason(rules) {
        return PodAction::Release { reason };
    }
    let container = match &pod.container {
        PlacedContainer::Running { id, .. } => id.clone(),
        PlacedContainer::NotRunning { name } => {
            return PodAction::release(format!("the container {name} does not run"));
        }
        PlacedContainer::Missing { reason } => {
            return PodAction::Refuse {
                reason: format!("{PLACE_ANNOTATION}: {reason}"),
            };
        }
    };
    let source = |is_asked: bool, otherwise: CountSource| match is_asked {
        true => CountSource::Annotation,
        false => otherwise,
    };
    let workers = source(asked.workers.is_some(), CountSource::ProcessTree);
    let threads = match omp_threads {
        Some(_) => source(asked.threads.is_some(), CountSource::Environment),
        None => source(asked.threads.is_some(), CountSource::ProcessTree),
    };
    let threads_found = omp_threads.unwrap_or(THREADS_UNKNOWN);
    let mut policy = policy_of_annotation(asked, WORKERS_UNKNOWN, threads_found);
    policy.enforcement = rules.enforcement(policy.enforcement);
    let mut hasher = DefaultHasher::new();
    format!("{asked:?} {omp_threads:?}").hash(&mut hasher);
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
