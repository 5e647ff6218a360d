//! Which pods of this node are placed, and how: pods, deployments and the node's kill switch ->
//! [`DesiredPod`]s. Pure.
//!
//! A pod is placed only if three things agree: its label, an InferenceDeployment of that name in
//! the pod's namespace, and the API server's record that it runs on this node. The names that the
//! container or its processes give themselves do not count.

use albacore_api::{InferenceDeployment, policy_of, trial_of, validate};
use albacore_plan::{Enforcement, ServerKind, SubjectPolicy};
use albacore_trial::TrialSpec;

use crate::labeled_pod::{LabeledPod, ServerContainer};

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
    pub(crate) pod: LabeledPod,
    pub(crate) action: PodAction,
}

/// What to do with a pod.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum PodAction {
    /// Place the processes of this container.
    Place {
        container: String,
        /// How its workers are found.
        server_kind: ServerKind,
        /// How they are placed.
        policy: SubjectPolicy,
        /// The generation of the deployment that the policy is of.
        generation: i64,
        /// The other placements that this one has to be compared with.
        trial: Option<TrialSpec>,
    },
    /// Leave the placement unchanged, if there is one: the deployment is invalid now.
    Keep { reason: String },
    /// Do not place it; give back its masks if it was placed.
    Release { reason: String },
}

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
    pods: impl IntoIterator<Item = LabeledPod>,
    deployment_of: impl Fn(&LabeledPod) -> Option<&'a InferenceDeployment>,
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
pub(crate) fn is_off_limits(pod: &LabeledPod) -> Option<String> {
    let namespace = pod.key.namespace.as_str();
    if NEVER_PLACED.contains(&namespace) {
        return Some(format!("pods of {namespace} are never placed"));
    }
    let text = "static pods are never placed: the API server does not run them";
    pod.is_static.then(|| text.to_owned())
}

fn action(
    pod: &LabeledPod,
    deployment: Option<&InferenceDeployment>,
    rules: NodeRules,
) -> PodAction {
    if let Some(reason) = is_off_limits(pod) {
        return PodAction::Release { reason };
    }
    let namespace = pod.key.namespace.as_str();
    let Some(deployment) = deployment else {
        let name = &pod.deployment;
        return PodAction::release(format!(
            "there is no InferenceDeployment {namespace}/{name}"
        ));
    };
    if rules.kill_switch == KillSwitch::None {
        return PodAction::release(format!("the node's annotation {NODE_ANNOTATION} is None"));
    }
    if let Some(violation) = validate(deployment).first() {
        return PodAction::Keep {
            reason: violation.to_string(),
        };
    }
    let container = match &pod.container {
        ServerContainer::Running(id) => id.clone(),
        ServerContainer::NotRunning => {
            return PodAction::release("the container server does not run");
        }
        ServerContainer::Missing => {
            return PodAction::release("the pod has no container named server");
        }
    };
    let mut policy = policy_of(&deployment.spec);
    policy.enforcement = rules.enforcement(policy.enforcement);
    PodAction::Place {
        container,
        server_kind: match deployment.spec.is_built_in() {
            true => ServerKind::Named,
            false => ServerKind::PreFork,
        },
        policy,
        generation: deployment.metadata.generation.unwrap_or_default(),
        trial: trial_of(&deployment.spec),
    }
}

#[cfg(test)]
mod tests;
