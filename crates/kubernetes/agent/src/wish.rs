//! What should be placed on this node, and how: pods + deployments + the node's switch -> wishes.
//! Pure.
//!
//! A pod is wished for by three things together: its label, an InferenceDeployment of that name in
//! the pod's namespace, and the API server's word that it runs on this node. What the container or
//! its processes call themselves counts for nothing.

use albacore_api::{InferenceDeployment, policy_of, validate};
use albacore_plan::{Enforcement, Policy, Source};

use crate::pods::{Container, PodSeen};
use crate::trial::TrialSpec;
use crate::trials::trial_spec;

/// Namespaces whose pods are never placed, whatever their labels say.
const NEVER_PLACED: [&str; 3] = ["kube-system", "kube-public", "kube-node-lease"];

/// The annotation of a node that holds the agent back.
pub(crate) const NODE_ANNOTATION: &str = "albacore.dev/enforcement";

/// What the node's annotation asks for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(crate) enum Switch {
    /// Nothing: what the flag and the deployments say holds.
    #[default]
    Absent,
    /// To look and not to write.
    Observe,
    /// To give every mask back and to leave the pods alone.
    None,
    /// Something that is not understood; as `Observe`, for it was meant to hold the agent back.
    Unknown,
}

impl Switch {
    /// What the annotation's value means.
    pub(crate) fn of(value: Option<&str>) -> Self {
        match value {
            None => Self::Absent,
            Some("Observe") => Self::Observe,
            Some("None") => Self::None,
            Some(_) => Self::Unknown,
        }
    }
}

/// What holds for all pods of the node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NodeRules {
    /// The agent's own flag.
    pub(crate) enforcement: Enforcement,
    pub(crate) switch: Switch,
}

impl NodeRules {
    /// The stricter of flag, annotation and what a deployment asks.
    fn enforcement(self, asked: Enforcement) -> Enforcement {
        let is_free = self.switch == Switch::Absent;
        match (self.enforcement, is_free, asked) {
            (Enforcement::Enforce, true, Enforcement::Enforce) => Enforcement::Enforce,
            _ => Enforcement::Observe,
        }
    }
}

/// What is wished for one pod.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Wish {
    pub(crate) pod: PodSeen,
    /// What to do with it.
    pub(crate) aim: Aim,
}

/// What to do with a pod.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Aim {
    /// Place the processes of this container so.
    Place {
        container: String,
        /// How its workers are found.
        source: Source,
        /// How they are placed.
        policy: Policy,
        /// The generation of the deployment that says so.
        generation: i64,
        /// Whether the plan has to show that it helps.
        trial: Option<TrialSpec>,
    },
    /// Go on with what was done before, if anything was: the deployment cannot be understood now.
    Keep { reason: String },
    /// Do not place it; what was placed is given back.
    Leave { reason: String },
}

impl Aim {
    fn leave(reason: impl Into<String>) -> Self {
        Self::Leave {
            reason: reason.into(),
        }
    }
}

/// What is wished for the pods of this node, in the order of their names. `deployment_of` gives the
/// InferenceDeployment of a pod, if there is one.
pub(crate) fn decide<'a>(
    pods: impl IntoIterator<Item = PodSeen>,
    deployment_of: impl Fn(&PodSeen) -> Option<&'a InferenceDeployment>,
    rules: NodeRules,
) -> Vec<Wish> {
    let mut wishes: Vec<Wish> = pods
        .into_iter()
        .filter(|pod| !pod.is_over)
        .map(|pod| {
            let aim = aim(&pod, deployment_of(&pod), rules);
            Wish { pod, aim }
        })
        .collect();
    wishes.sort_by(|a, b| a.pod.key.cmp(&b.pod.key));
    // Two objects of one name are one pod and its successor: the API server has the newer one.
    wishes.dedup_by(|a, b| a.pod.uid == b.pod.uid);
    wishes
}

/// Why a pod is never touched, whatever anybody asks; `None` for one that may be.
pub(crate) fn is_off_limits(pod: &PodSeen) -> Option<String> {
    let namespace = pod.key.namespace.as_str();
    if NEVER_PLACED.contains(&namespace) {
        return Some(format!("pods of {namespace} are never placed"));
    }
    let text = "static pods are never placed: the API server does not run them";
    pod.is_static.then(|| text.to_owned())
}

fn aim(pod: &PodSeen, deployment: Option<&InferenceDeployment>, rules: NodeRules) -> Aim {
    if let Some(reason) = is_off_limits(pod) {
        return Aim::Leave { reason };
    }
    let namespace = pod.key.namespace.as_str();
    let Some(deployment) = deployment else {
        let name = &pod.deployment;
        return Aim::leave(format!(
            "there is no InferenceDeployment {namespace}/{name}"
        ));
    };
    if rules.switch == Switch::None {
        return Aim::leave(format!("the node's annotation {NODE_ANNOTATION} is None"));
    }
    if let Some(violation) = validate(deployment).first() {
        return Aim::Keep {
            reason: violation.to_string(),
        };
    }
    let container = match &pod.container {
        Container::Running(id) => id.clone(),
        Container::NotRunning => return Aim::leave("the container server does not run"),
        Container::Absent => return Aim::leave("the pod has no container named server"),
    };
    let mut policy = policy_of(&deployment.spec);
    policy.enforcement = rules.enforcement(policy.enforcement);
    Aim::Place {
        container,
        source: match deployment.spec.is_built_in() {
            true => Source::Named,
            false => Source::PreFork,
        },
        policy,
        generation: deployment.metadata.generation.unwrap_or_default(),
        trial: deployment.spec.placement.trial.as_ref().map(trial_spec),
    }
}

#[cfg(test)]
mod tests;
