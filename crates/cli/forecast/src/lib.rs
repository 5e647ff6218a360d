//! Predicts what the agents of a cluster would do with a new pod or with an edited deployment, by
//! running the placer's own code on the data that the agents publish. Pure: does no I/O.
#![forbid(unsafe_code)]

mod edited_pods;
mod limits;
mod new_pod;
mod node_view;
mod place;
mod pod_requirements;
mod report;
#[cfg(test)]
mod tests;

pub use edited_pods::{Edit, diff_on};
pub use new_pod::{plan_on, running_pods};
pub use node_view::NodeView;
pub use pod_requirements::PodRequirements;
pub use report::{
    DeploymentPlan, DiffReport, NewPlan, NodeDiff, NodePlan, PlanReport, PodDiff, PodMoves,
    Quality, RelaxedRule, RunningPod, ThreadAssignment, ThreadMove,
};
