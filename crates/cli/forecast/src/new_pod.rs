//! The plan of a new pod on a node with running pods.

use std::collections::BTreeSet;

use albacore_placer::{PlaceableServer, PlacerError};
use albacore_plan::{Enforcement, PlacementMethod};
use albacore_solver::Mapping;
use albacore_topology::CpuSet;

use crate::node_view::NodeView;
use crate::place::{is_member, place, place_separately};
use crate::pod_requirements::PodRequirements;
use crate::report::{NewPlan, NodePlan, PodDiff, PodMoves, Quality, RunningPod, ThreadAssignment};

/// Returns the plan, or the reason why there is none.
///
/// # Errors
/// The solver rejects the problem.
pub fn plan_on(
    view: &NodeView,
    requirements: &PodRequirements,
    own_pods: Option<&BTreeSet<String>>,
) -> Result<NodePlan, PlacerError> {
    let (cpuset, assumption) = view.shared_pool();
    let mut plan = NodePlan {
        node: view.name.clone(),
        plan: None,
        why: None,
        assumptions: assumption.into_iter().collect(),
        now: running_pods(view, own_pods),
    };
    plan.assumptions.extend(exclusivity(view, requirements));
    plan.assumptions
        .extend(view.not_enforcing.as_ref().map(|why| {
            format!("the node's agent writes no mask ({why}): the plan is what it would write")
        }));
    let cpus = view.machine.cpus().len();
    if requirements.requested > cpus as f64 {
        let requested = requirements.requested;
        let why = format!("insufficient cpus: the pod requests {requested}, the node has {cpus}");
        plan.why = Some(why);
        return Ok(plan);
    }
    if cpuset.is_empty() {
        plan.why =
            Some("there are no shared cpus: pods with exclusive cpus have all of them".to_owned());
        return Ok(plan);
    }
    match planned(view, requirements, &cpuset)? {
        Some(new) => plan.plan = Some(new),
        None => {
            let why = "spec.placement.policy is None: the kernel places its threads on all of cpus";
            plan.why = Some(format!("{why} {cpuset}"));
        }
    }
    Ok(plan)
}

fn planned(
    view: &NodeView,
    requirements: &PodRequirements,
    cpuset: &CpuSet,
) -> Result<Option<NewPlan>, PlacerError> {
    let policy = &requirements.policy;
    let indexes = view.servers();
    let mut servers: Vec<PlaceableServer> =
        indexes.iter().filter_map(|&at| view.server(at)).collect();
    let new_containers = [cpuset.clone()];
    if is_member(policy) {
        servers.push(PlaceableServer {
            policy: policy.clone(),
            cpuset: cpuset.clone(),
            current: None,
            is_warm: false,
        });
        let placed = place(&view.problem(servers, &new_containers))?;
        let (Some((mapping, others)), Some(certificate)) =
            (placed.mappings.split_last(), &placed.certificate)
        else {
            return Ok(None);
        };
        return Ok(Some(NewPlan {
            cpuset: cpuset.to_string(),
            assignments: ThreadAssignment::all(mapping),
            certificate: Quality::of(certificate),
            together_with: indexes
                .iter()
                .map(|&at| view.pods[at].name.clone())
                .collect(),
            moves: moves(view, &indexes, others),
        }));
    }
    let Some((mapping, certificate)) = place_separately(&view.machine, policy, cpuset)? else {
        return Ok(None);
    };
    let mut problem = view.problem(servers, &new_containers);
    let is_obstacle = policy.placement == PlacementMethod::RoundRobin;
    if is_obstacle && policy.enforcement == Enforcement::Enforce {
        problem.obstacle_cpus.extend(&mapping.cpus);
    }
    let placed = place(&problem)?;
    Ok(Some(NewPlan {
        cpuset: cpuset.to_string(),
        assignments: ThreadAssignment::all(&mapping),
        certificate: Quality::of(&certificate),
        together_with: Vec::new(),
        moves: moves(view, &indexes, &placed.mappings),
    }))
}

/// Threads of running pods that the plan moves.
fn moves(view: &NodeView, indexes: &[usize], after: &[Mapping]) -> Vec<PodMoves> {
    let pairs = indexes.iter().zip(after);
    let moves = pairs.map(|(&at, after)| {
        let pod = &view.pods[at];
        let before = pod.plan.as_ref().map(|plan| &plan.mapping);
        PodMoves {
            pod: pod.name.clone(),
            moves: PodDiff::between(before, Some(after)).moves,
        }
    });
    moves.filter(|pod| !pod.moves.is_empty()).collect()
}

/// Describes what the kubelet's choice of exclusive CPUs leaves unknown.
fn exclusivity(view: &NodeView, requirements: &PodRequirements) -> Option<String> {
    let cpus = requirements.exclusive?;
    let about = format!(
        "the pod asks for {cpus} whole cpus and is Guaranteed: a kubelet with the static cpu \
         policy gives it {cpus} exclusive ones, which are not known before it runs"
    );
    Some(match view.has_exclusive_pods() {
        true => format!(
            "{about}; this node's kubelet does that, so its plan will differ: shown is the plan on \
             the cpus that are shared now"
        ),
        false => {
            format!("{about}; no pod of this node has exclusive cpus, so shared ones are assumed")
        }
    })
}

/// The placed pods of a node, and whether they belong to the deployment.
pub fn running_pods(view: &NodeView, own_pods: Option<&BTreeSet<String>>) -> Vec<RunningPod> {
    let pods = view.pods.iter().filter_map(|pod| {
        let plan = pod.plan.as_ref()?;
        Some(RunningPod {
            pod: pod.name.clone(),
            is_of_deployment: own_pods.map(|own| own.contains(&pod.name)),
            assignments: ThreadAssignment::all(&plan.mapping),
            is_confirmed: plan.is_confirmed,
        })
    });
    pods.collect()
}
