//! Runs the placer's solver on the problem of a node.

use albacore_placer::{
    NodeProblem, PlaceableServer, PlacerError, improve_single, is_joint, place_joint, place_single,
};
use albacore_plan::{Enforcement, PlacementMethod, SubjectPolicy};
use albacore_solver::{
    Certificate, Mapping, Problem, ProblemError, check, report_joint, round_robin,
};
use albacore_topology::{CpuSet, Topology};

/// Mappings of all servers of a node, and the certificate of their joint quality.
#[derive(Clone, Debug)]
pub(crate) struct NodeMappings {
    /// In the order of the servers.
    pub(crate) mappings: Vec<Mapping>,
    /// `None` without servers.
    pub(crate) certificate: Option<Certificate>,
}

/// The plan that the placer makes for all servers.
pub(crate) fn place(node: &NodeProblem<'_>) -> Result<NodeMappings, PlacerError> {
    let problem = node.joint();
    if is_joint(&problem) {
        let solved = place_joint(&problem, &node.cold_deployments())?;
        return Ok(NodeMappings {
            mappings: solved.mappings,
            certificate: Some(solved.certificate),
        });
    }
    let alone = problem
        .deployments
        .first()
        .and_then(|one| problem.single_problem(one));
    let Some(alone) = alone else {
        return Ok(NodeMappings {
            mappings: Vec::new(),
            certificate: None,
        });
    };
    let is_warm = node.servers.iter().any(|server| server.is_warm);
    let (mapping, certificate) = place_alone(&alone, PlacementMethod::Tuna, is_warm)?;
    Ok(NodeMappings {
        mappings: vec![mapping],
        certificate: Some(certificate),
    })
}

/// The same for a server that shares its CPUs with no other, including the longer search that
/// follows a solution without proof.
fn place_alone(
    problem: &Problem,
    method: PlacementMethod,
    is_warm: bool,
) -> Result<(Mapping, Certificate), ProblemError> {
    let mut solution = place_single(method, problem, is_warm)?;
    if method == PlacementMethod::Tuna && !solution.certificate.optimal {
        solution = improve_single(problem, solution, is_warm)?;
    }
    Ok((solution.mapping, solution.certificate))
}

/// The placement by a policy that is not planned jointly: round robin, or a plan that is only
/// observed. `None` if the placement is left to the kernel.
pub(crate) fn place_separately(
    machine: &Topology,
    policy: &SubjectPolicy,
    cpuset: &CpuSet,
) -> Result<Option<(Mapping, Certificate)>, PlacerError> {
    let Ok(topology) = machine.restrict(cpuset) else {
        return Ok(None);
    };
    let problem = Problem {
        workers: policy.workers,
        threads: policy.threads,
        mode: policy.mode,
        topology,
        distances: policy.distances.apply_to(machine.distances()),
        current: None,
    };
    Ok(match policy.placement {
        PlacementMethod::None => None,
        PlacementMethod::RoundRobin => {
            let assigned = round_robin(&problem)?;
            Some((assigned.mapping, assigned.certificate))
        }
        PlacementMethod::Tuna => Some(place_alone(&problem, PlacementMethod::Tuna, false)?),
    })
}

/// Whether it is planned jointly and its masks are written.
pub(crate) fn is_member(policy: &SubjectPolicy) -> bool {
    policy.placement == PlacementMethod::Tuna && policy.enforcement == Enforcement::Enforce
}

/// Objective of the mappings in force; `None` if they violate the rules of the problem, as between
/// an event and the placer's next pass.
pub(crate) fn objective_in_force(node: &NodeProblem<'_>) -> Option<i64> {
    let problem = node.joint();
    let current = |server: &PlaceableServer| server.current.clone();
    let mappings: Option<Vec<Mapping>> = node.servers.iter().map(current).collect();
    let mappings = mappings?;
    if is_joint(&problem) {
        let report = report_joint(&problem, &mappings).ok()?;
        return Some(report.objective);
    }
    let alone = problem.single_problem(problem.deployments.first()?)?;
    let report = check(&alone, mappings.first()?).ok()?;
    Some(report.objective)
}
