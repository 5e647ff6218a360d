//! The output of `albacore plan` and `albacore diff` for a cluster. The JSON is a stable interface.

use albacore_solver::{Certificate, Mapping, Slot};
use albacore_topology::CpuId;
use serde::Serialize;

/// Plans of deployments on nodes.
#[derive(Serialize)]
pub struct PlanReport {
    pub deployments: Vec<DeploymentPlan>,
    /// Sources that could not be read, one sentence each.
    pub unread: Vec<String>,
}

#[derive(Serialize)]
pub struct DeploymentPlan {
    pub namespace: String,
    pub name: String,
    pub workers: u16,
    pub threads: u16,
    pub mode: &'static str,
    /// Notes that apply to every node.
    pub notes: Vec<String>,
    pub nodes: Vec<NodePlan>,
}

#[derive(Serialize)]
pub struct NodePlan {
    pub node: String,
    /// `None` if there is no plan; `why` has the reason.
    pub plan: Option<NewPlan>,
    pub why: Option<String>,
    /// Unverified assumptions of the plan.
    pub assumptions: Vec<String>,
    pub now: Vec<RunningPod>,
}

/// Placement of a new pod.
#[derive(Serialize)]
pub struct NewPlan {
    /// The CPUs that the pod may use.
    pub cpuset: String,
    pub assignments: Vec<ThreadAssignment>,
    pub certificate: Quality,
    /// Pods whose threads are also part of the objective.
    pub together_with: Vec<String>,
    /// Threads of other pods that the plan moves.
    pub moves: Vec<PodMoves>,
}

/// Certificate of a solution.
#[derive(Serialize)]
pub struct Quality {
    pub objective: i64,
    pub bound: i64,
    pub optimal: bool,
    pub proof: &'static str,
    pub relaxed: Vec<RelaxedRule>,
}

#[derive(Serialize)]
pub struct RelaxedRule {
    pub rule: &'static str,
    pub amount: u32,
}

impl Quality {
    pub fn of(certificate: &Certificate) -> Self {
        let relaxed = certificate.relaxed.iter().map(|relaxed| RelaxedRule {
            rule: relaxed.rule,
            amount: relaxed.amount,
        });
        Self {
            objective: certificate.objective,
            bound: certificate.bound,
            optimal: certificate.optimal,
            proof: certificate.proof.name(),
            relaxed: relaxed.collect(),
        }
    }
}

/// The CPU of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Debug)]
pub struct ThreadAssignment {
    pub worker: u16,
    pub rank: u16,
    pub cpu: u16,
}

impl ThreadAssignment {
    fn new(slot: Slot, cpu: CpuId) -> Self {
        Self {
            worker: slot.worker.0,
            rank: slot.rank.0,
            cpu: cpu.0,
        }
    }

    pub fn all(mapping: &Mapping) -> Vec<Self> {
        mapping
            .iter()
            .map(|(slot, cpu)| Self::new(slot, cpu))
            .collect()
    }
}

/// A thread that moves to another CPU.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Debug)]
pub struct ThreadMove {
    pub worker: u16,
    pub rank: u16,
    pub from: u16,
    pub to: u16,
}

#[derive(Serialize)]
pub struct PodMoves {
    pub pod: String,
    pub moves: Vec<ThreadMove>,
}

/// A placed pod of the node.
#[derive(Serialize)]
pub struct RunningPod {
    pub pod: String,
    /// Whether it belongs to the deployment; `None` if the pods of the namespace cannot be read.
    pub is_of_deployment: Option<bool>,
    pub assignments: Vec<ThreadAssignment>,
    /// Whether the agent reports the hash of this plan.
    pub is_confirmed: bool,
}

/// Effect of an edited spec.
#[derive(Serialize)]
pub struct DiffReport {
    pub namespace: String,
    pub name: String,
    /// Whether a thread would move, be added or be removed.
    pub changes: bool,
    /// Edited fields that restart the pods.
    pub restarting_fields: Vec<&'static str>,
    pub notes: Vec<String>,
    pub nodes: Vec<NodeDiff>,
    pub unread: Vec<String>,
}

#[derive(Serialize)]
pub struct NodeDiff {
    pub node: String,
    /// Why the changes are unknown, if they are.
    pub why: Option<String>,
    pub assumptions: Vec<String>,
    /// Joint objective of all pods that are planned jointly; `None` if the plans in force violate
    /// the rules, as in the middle of a change.
    pub objective_before: Option<i64>,
    /// `None` if no pod is planned jointly after the edit.
    pub after: Option<Quality>,
    pub pods: Vec<PodDiff>,
}

#[derive(Serialize)]
pub struct PodDiff {
    pub pod: String,
    pub is_of_deployment: bool,
    pub is_confirmed: bool,
    pub moves: Vec<ThreadMove>,
    /// Threads that have a planned CPU only after the edit.
    pub added: Vec<ThreadAssignment>,
    /// Threads that have a planned CPU only before the edit.
    pub removed: Vec<ThreadAssignment>,
}

impl PodDiff {
    /// The difference of two mappings, slot by slot.
    pub fn between(before: Option<&Mapping>, after: Option<&Mapping>) -> Self {
        let slots = |mapping: Option<&Mapping>| -> Vec<(Slot, CpuId)> {
            mapping
                .map(|mapping| mapping.iter().collect())
                .unwrap_or_default()
        };
        let at = |mapping: Option<&Mapping>, slot: Slot| mapping.and_then(|m| m.cpu(slot));
        let mut diff = Self {
            pod: String::new(),
            is_of_deployment: false,
            is_confirmed: false,
            moves: Vec::new(),
            added: Vec::new(),
            removed: Vec::new(),
        };
        for (slot, to) in slots(after) {
            match at(before, slot) {
                None => diff.added.push(ThreadAssignment::new(slot, to)),
                Some(from) if from != to => diff.moves.push(ThreadMove {
                    worker: slot.worker.0,
                    rank: slot.rank.0,
                    from: from.0,
                    to: to.0,
                }),
                Some(_) => {}
            }
        }
        let gone = slots(before)
            .into_iter()
            .filter(|(slot, _)| at(after, *slot).is_none());
        diff.removed = gone
            .map(|(slot, cpu)| ThreadAssignment::new(slot, cpu))
            .collect();
        diff
    }

    pub fn is_empty(&self) -> bool {
        self.moves.is_empty() && self.added.is_empty() && self.removed.is_empty()
    }
}
