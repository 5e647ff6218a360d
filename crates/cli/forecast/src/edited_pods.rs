//! Computes how an edit of a deployment moves threads on a node.

use std::collections::{BTreeMap, BTreeSet};

use albacore_placer::{NodeProblem, PlaceableServer, PlacerError};
use albacore_plan::{Enforcement, PlacementMethod, SubjectPolicy};
use albacore_solver::Mapping;
use albacore_topology::CpuId;

use crate::node_view::NodeView;
use crate::place::{is_member, objective_in_force, place, place_separately};
use crate::pod_requirements::PodRequirements;
use crate::report::{NodeDiff, PodDiff, Quality};

/// An edit of a deployment.
pub struct Edit {
    /// A pod of the deployment after the edit.
    pub after: PodRequirements,
    pub restarts: bool,
    /// Whether the rules for planning the threads of running pods change.
    pub is_replanned: bool,
}

impl Edit {
    /// Whether two policies plan running threads by different rules.
    pub fn is_replanned(before: &SubjectPolicy, after: &SubjectPolicy) -> bool {
        let rules = |policy: &SubjectPolicy| {
            let distances = policy.distances;
            (policy.mode, policy.placement, policy.enforcement, distances)
        };
        rules(before) != rules(after)
    }
}

/// Computes the changes on a node; `own_pods` are the pods of the edited deployment.
///
/// # Errors
/// The solver rejects the problem.
pub fn diff_on(
    view: &NodeView,
    edit: &Edit,
    own_pods: &BTreeSet<String>,
) -> Result<NodeDiff, PlacerError> {
    let is_own = |at: usize| own_pods.contains(&view.pods[at].name);
    let indexes = view.servers();
    let before: Vec<PlaceableServer> = indexes.iter().filter_map(|&at| view.server(at)).collect();
    let mut diff = NodeDiff {
        node: view.name.clone(),
        why: None,
        assumptions: Vec::new(),
        objective_before: objective_in_force(&view.problem(before, &[])),
        after: None,
        pods: Vec::new(),
    };
    let mut after: BTreeMap<usize, Mapping> = BTreeMap::new();
    if edit.restarts || edit.is_replanned {
        let mut next = NextPlacement::of(view, edit, &is_own)?;
        if edit.restarts {
            next.simulate_rollout(view, edit, &is_own)?;
        }
        let problem = next.problem(view);
        let placed = place(&problem)?;
        diff.after = placed.certificate.as_ref().map(Quality::of);
        after.extend(next.order.iter().copied().zip(placed.mappings));
        after.extend(next.separate);
    } else {
        let plans = view.pods.iter().enumerate();
        after.extend(plans.filter_map(|(at, pod)| Some((at, pod.plan.as_ref()?.mapping.clone()))));
    }
    let is_written = edit.after.policy.enforcement == Enforcement::Enforce;
    for (at, pod) in view.pods.iter().enumerate() {
        let plan = pod.plan.as_ref();
        let is_other = !is_own(at) || !(edit.restarts || edit.is_replanned);
        let is_seen = if is_other {
            !pod.placement.observed
        } else {
            is_written
        };
        // Members that stay, and other pods, which do not move.
        let new = after
            .get(&at)
            .or(plan.filter(|_| is_other).map(|plan| &plan.mapping));
        let old = plan
            .filter(|_| !pod.placement.observed)
            .map(|plan| &plan.mapping);
        diff.pods.push(PodDiff {
            pod: pod.name.clone(),
            is_of_deployment: is_own(at),
            is_confirmed: plan.is_some_and(|plan| plan.is_confirmed),
            ..PodDiff::between(old, new.filter(|_| is_seen))
        });
    }
    diff.assumptions = assumptions(view, edit, &is_own);
    Ok(diff)
}

/// The placement of a node's pods after an edit.
struct NextPlacement {
    /// The pods that are planned jointly, as indexes of the node's pods.
    order: Vec<usize>,
    servers: Vec<PlaceableServer>,
    /// Mappings of pods that are not planned jointly.
    separate: BTreeMap<usize, Mapping>,
    /// CPUs of fixed threads of the edited pods, before and after the edit.
    fixed_before: Vec<CpuId>,
    fixed_after: Vec<CpuId>,
}

impl NextPlacement {
    fn of(
        view: &NodeView,
        edit: &Edit,
        is_own: &dyn Fn(usize) -> bool,
    ) -> Result<Self, PlacerError> {
        let indexes = view.servers();
        // Restarted pods are new subjects of the placer, which are last in its order; so are pods
        // that were not planned jointly before.
        let stays = |at: &usize| !is_own(*at) || (!edit.restarts && indexes.contains(at));
        let own = (0..view.pods.len()).filter(|&at| is_own(at));
        let mut next = Self {
            order: Vec::new(),
            servers: Vec::new(),
            separate: BTreeMap::new(),
            fixed_before: Vec::new(),
            fixed_after: Vec::new(),
        };
        let policy_of = |at: usize| {
            let plan = view.pods[at].plan.as_ref().filter(|_| !edit.restarts);
            let in_force = plan.map(|plan| plan.policy.threads);
            SubjectPolicy {
                threads: in_force.unwrap_or(edit.after.policy.threads),
                ..edit.after.policy.clone()
            }
        };
        let in_order = indexes.iter().copied().filter(stays);
        let late = own.filter(|at| !stays(at));
        for at in in_order.chain(late) {
            let Some(pod) = view.pods.get(at) else {
                continue;
            };
            let plan = pod.plan.as_ref();
            if !is_own(at) {
                next.order.push(at);
                next.servers.extend(view.server(at));
                continue;
            }
            let is_obstacle = !indexes.contains(&at) && !pod.placement.observed;
            if let Some(plan) = plan.filter(|_| is_obstacle) {
                next.fixed_before.extend(&plan.mapping.cpus);
            }
            let policy = policy_of(at);
            if is_member(&policy) {
                next.order.push(at);
                next.servers.push(PlaceableServer {
                    policy,
                    cpuset: pod.cpuset.clone(),
                    current: plan
                        .filter(|_| !edit.restarts)
                        .map(|plan| plan.mapping.clone()),
                    is_warm: !edit.restarts,
                });
            } else if let Some((mapping, _)) =
                place_separately(&view.machine, &policy, &pod.cpuset)?
            {
                let is_written = policy.enforcement == Enforcement::Enforce;
                if policy.placement == PlacementMethod::RoundRobin && is_written {
                    next.fixed_after.extend(&mapping.cpus);
                }
                next.separate.insert(at, mapping);
            }
        }
        Ok(next)
    }

    /// Simulates a rollout: running pods are planned by the edited deployment until they end, and
    /// new pods start before that. The resulting mappings are the starting point of the final plan.
    fn simulate_rollout(
        &mut self,
        view: &NodeView,
        edit: &Edit,
        is_own: &dyn Fn(usize) -> bool,
    ) -> Result<(), PlacerError> {
        let is_kept = |at: &usize| !is_own(*at) || is_member(&edit.after.policy);
        let running: Vec<usize> = view.servers().into_iter().filter(is_kept).collect();
        let mut servers: Vec<PlaceableServer> = Vec::new();
        for &at in &running {
            let Some(mut server) = view.server(at) else {
                continue;
            };
            if is_own(at) {
                server.policy = edit.after.policy.clone();
            }
            servers.push(server);
        }
        plan_jointly(&mut servers, view)?;
        let is_new = |at: &usize| is_own(*at);
        let (others, new): (Vec<_>, Vec<_>) = self
            .order
            .iter()
            .copied()
            .zip(self.servers.drain(..))
            .partition(|(at, _)| !is_new(at));
        servers.extend(new.into_iter().map(|(_, server)| server));
        plan_jointly(&mut servers, view)?;
        let new = servers.split_off(running.len());
        let of = |at: usize| running.iter().position(|other| *other == at);
        let stay = others.into_iter().map(|(at, server)| PlaceableServer {
            current: of(at).and_then(|at| servers.get(at)?.current.clone()),
            ..server
        });
        self.servers = stay.chain(new).collect();
        Ok(())
    }

    fn problem<'a>(&self, view: &'a NodeView) -> NodeProblem<'a> {
        let mut problem = view.problem(self.servers.clone(), &[]);
        for cpu in &self.fixed_before {
            if let Some(at) = problem.obstacle_cpus.iter().position(|fixed| fixed == cpu) {
                problem.obstacle_cpus.swap_remove(at);
            }
        }
        problem.obstacle_cpus.extend(&self.fixed_after);
        problem
    }
}

/// Plans servers jointly, starting from their current mappings.
fn plan_jointly(servers: &mut [PlaceableServer], view: &NodeView) -> Result<(), PlacerError> {
    let placed = place(&view.problem(servers.to_vec(), &[]))?;
    for (server, mapping) in servers.iter_mut().zip(placed.mappings) {
        server.current = Some(mapping);
    }
    Ok(())
}

fn assumptions(view: &NodeView, edit: &Edit, is_own: &dyn Fn(usize) -> bool) -> Vec<String> {
    let mut assumptions = Vec::new();
    if edit.restarts {
        assumptions.push(
            "each pod that restarts gets the same node and the same cpus, before the old one ends: \
             the scheduler and the kubelet decide"
                .to_owned(),
        );
    }
    let own = (0..view.pods.len()).filter(|&at| is_own(at));
    let unconfirmed = own.filter_map(|at| view.pods[at].plan.as_ref());
    if unconfirmed.into_iter().any(|plan| !plan.is_confirmed) {
        assumptions.push(
            "the mapping in the report is the plan in force, although the hash of the agent's plan \
             differs: threads are missing, or the plan is being changed"
                .to_owned(),
        );
    }
    assumptions.extend(view.not_enforcing.as_ref().map(|why| {
        format!("the node's agent writes no mask ({why}): the plan is what it would write")
    }));
    assumptions
}
