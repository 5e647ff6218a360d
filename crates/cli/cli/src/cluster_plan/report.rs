//! What `albacore plan` and `albacore diff` say of a cluster. Their JSON is a contract.

use albacore_solver::{Certificate, Mapping, Slot};
use albacore_topology::CpuId;
use serde::Serialize;

/// Plans of deployments on nodes.
#[derive(Serialize)]
pub(super) struct PlanReport {
    pub(super) deployments: Vec<DeploymentPlan>,
    /// What could not be read, one sentence each.
    pub(super) unread: Vec<String>,
}

#[derive(Serialize)]
pub(super) struct DeploymentPlan {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) workers: u16,
    pub(super) threads: u16,
    pub(super) mode: &'static str,
    /// What holds for every node.
    pub(super) notes: Vec<String>,
    pub(super) nodes: Vec<NodePlan>,
}

#[derive(Serialize)]
pub(super) struct NodePlan {
    pub(super) node: String,
    /// `None` where `why` says why there is no plan.
    pub(super) plan: Option<NewPlan>,
    pub(super) why: Option<String>,
    /// What the plan rests on that is not known.
    pub(super) assumptions: Vec<String>,
    pub(super) now: Vec<RunningPod>,
}

/// What a new pod gets.
#[derive(Serialize)]
pub(super) struct NewPlan {
    /// The cpus that it may use.
    pub(super) cpuset: String,
    pub(super) assignments: Vec<Assignment>,
    pub(super) certificate: Quality,
    /// Pods whose threads count in the objective, beside the new one's.
    pub(super) together_with: Vec<String>,
    /// Threads of other pods that move.
    pub(super) moves: Vec<PodMoves>,
}

/// A certificate.
#[derive(Serialize)]
pub(super) struct Quality {
    pub(super) objective: i64,
    pub(super) bound: i64,
    pub(super) optimal: bool,
    pub(super) proof: &'static str,
    pub(super) relaxed: Vec<RelaxedRule>,
}

#[derive(Serialize)]
pub(super) struct RelaxedRule {
    pub(super) rule: &'static str,
    pub(super) amount: u32,
}

impl Quality {
    pub(super) fn of(certificate: &Certificate) -> Self {
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

/// The cpu of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Debug)]
pub(super) struct Assignment {
    pub(super) worker: u16,
    pub(super) rank: u16,
    pub(super) cpu: u16,
}

impl Assignment {
    fn new(slot: Slot, cpu: CpuId) -> Self {
        Self {
            worker: slot.worker.0,
            rank: slot.rank.0,
            cpu: cpu.0,
        }
    }

    pub(super) fn all(mapping: &Mapping) -> Vec<Self> {
        mapping
            .iter()
            .map(|(slot, cpu)| Self::new(slot, cpu))
            .collect()
    }
}

/// A thread that goes to another cpu.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Debug)]
pub(super) struct ThreadMove {
    pub(super) worker: u16,
    pub(super) rank: u16,
    pub(super) from: u16,
    pub(super) to: u16,
}

#[derive(Serialize)]
pub(super) struct PodMoves {
    pub(super) pod: String,
    pub(super) moves: Vec<ThreadMove>,
}

/// A pod that is placed on the node.
#[derive(Serialize)]
pub(super) struct RunningPod {
    pub(super) pod: String,
    /// Whether it is one of the deployment; `None` if the pods of the namespace cannot be read.
    pub(super) is_of_deployment: Option<bool>,
    pub(super) assignments: Vec<Assignment>,
    /// Whether the agent reports the hash of this plan.
    pub(super) is_confirmed: bool,
}

/// What another spec changes.
#[derive(Serialize)]
pub(super) struct DiffReport {
    pub(super) namespace: String,
    pub(super) name: String,
    /// Whether a thread would move, come or go.
    pub(super) changes: bool,
    /// Edited fields that start the pods anew.
    pub(super) restarting_fields: Vec<&'static str>,
    pub(super) notes: Vec<String>,
    pub(super) nodes: Vec<NodeDiff>,
    pub(super) unread: Vec<String>,
}

#[derive(Serialize)]
pub(super) struct NodeDiff {
    pub(super) node: String,
    /// Why it is not known what would change, if it is not.
    pub(super) why: Option<String>,
    pub(super) assumptions: Vec<String>,
    /// Of all pods that are planned together; `None` if the plans in force do not keep the rules,
    /// as in the middle of a change.
    pub(super) objective_before: Option<i64>,
    /// `None` if no pod is planned together with others then.
    pub(super) after: Option<Quality>,
    pub(super) pods: Vec<PodDiff>,
}

#[derive(Serialize)]
pub(super) struct PodDiff {
    pub(super) pod: String,
    pub(super) is_of_deployment: bool,
    pub(super) is_confirmed: bool,
    pub(super) moves: Vec<ThreadMove>,
    /// Threads that have a planned cpu only then.
    pub(super) comes: Vec<Assignment>,
    /// Threads that have one only now.
    pub(super) goes: Vec<Assignment>,
}

impl PodDiff {
    /// The difference of two mappings, slot by slot.
    pub(super) fn between(before: Option<&Mapping>, after: Option<&Mapping>) -> Self {
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
            comes: Vec::new(),
            goes: Vec::new(),
        };
        for (slot, to) in slots(after) {
            match at(before, slot) {
                None => diff.comes.push(Assignment::new(slot, to)),
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
        diff.goes = gone.map(|(slot, cpu)| Assignment::new(slot, cpu)).collect();
        diff
    }

    pub(super) fn is_empty(&self) -> bool {
        self.moves.is_empty() && self.comes.is_empty() && self.goes.is_empty()
    }
}
