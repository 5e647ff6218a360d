//! The plan of several deployments that share a machine, solved as one problem.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use albacore_api::{policy_of, read_deployment};
use albacore_plan::PlacementMethod;
use albacore_solver::{
    Deployment, JointError, JointProblem, JointSolution, Mapping, Move, Obstacle, Problem,
    Solution, WorkBudget, check_joint, difference, solve_joint,
};
use albacore_topology::{CpuSet, DistanceOverrides, Topology};

use super::distances::{PlanDistances, plan_distances};
use super::single::{SinglePlan, explained_plan};
use super::{current_plan, failed_check};
use crate::args::{FileArg, PlanArgs};
use crate::limits::PLAN_BUDGET;
use crate::machine::{Machine, restrict};
use albacore_command::{Failure, sentence};

/// A solved joint problem, with all data to print.
#[derive(Debug)]
pub(crate) struct JointPlan {
    /// The problem on the whole machine.
    pub(crate) problem: JointProblem,
    /// The CPUs that at least one deployment may use.
    pub(crate) usable: Topology,
    pub(crate) distances: PlanDistances,
    /// Name of each deployment.
    pub(crate) names: Vec<String>,
    /// Has passed the checker.
    pub(crate) solution: JointSolution,
    pub(crate) solve_micros: u64,
    /// By deployment, the threads that move relative to the plan in force.
    pub(crate) moves: Vec<Vec<Move>>,
    /// Whether a plan in force was given.
    pub(crate) has_current: bool,
    /// Names of deployments in the plan in force for which no file was given.
    pub(crate) ended: Vec<String>,
    /// The only deployment as a single plan with an explanation, if requested.
    pub(crate) alone: Option<SinglePlan>,
}

impl JointPlan {
    /// Number of threads of the deployments in the plan in force.
    pub(crate) fn settled(&self) -> usize {
        let placed = self.problem.deployments.iter().zip(&self.solution.mappings);
        let settled = placed.filter(|(deployment, _)| deployment.current.is_some());
        settled.map(|(_, mapping)| mapping.cpus.len()).sum()
    }
}

/// Reads the files, solves the problem and checks the solution.
///
/// # Errors
/// Usage: the problem has no solution or is rejected. Broken: the solution fails its check.
pub(crate) fn plan_joint(args: &PlanArgs) -> Result<JointPlan, Failure> {
    let Machine { whole, usable } = Machine::open(&args.machine)?;
    let distances = plan_distances(args.distances.as_ref(), &whole)?;
    let mut in_force = match &args.current {
        Some(path) => current_plan::read_joint(path)?,
        None => BTreeMap::new(),
    };
    let mut names: Vec<String> = Vec::new();
    let mut deployments = Vec::new();
    let mut requested = Vec::new();
    for file in &args.file {
        let (name, deployment, distances) = deployment(file, &usable, &mut in_force)?;
        if let Some(other) = names.iter().position(|other| *other == name) {
            let (first, second) = (args.file[other].path.display(), file.path.display());
            return Err(Failure::Usage(format!(
                "{second}: metadata.name is \"{name}\", as in {first}: give each deployment a \
                 unique name"
            )));
        }
        names.push(name);
        deployments.push(deployment);
        requested.push(distances);
    }
    let distances = distances.of_deployments(&requested);
    let obstacle = |&crate::args::ObstacleArg { cpu, weight }| Obstacle { cpu, weight };
    let problem = JointProblem {
        topology: whole,
        distances: distances.cycles,
        deployments,
        obstacles: args.obstacle.iter().map(obstacle).collect(),
        move_cost: args.move_cost.unwrap_or(0),
    };
    let limit = args.time_limit.unwrap_or(PLAN_BUDGET);
    let start = Instant::now();
    let solution =
        solve_joint(&problem, &mut WorkBudget::of_time(limit)).map_err(|e| refused(args, &e))?;
    let solve_micros = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
    check_joint(&problem, &solution).map_err(|violations| failed_check(&violations))?;
    Ok(JointPlan {
        alone: match args.explain {
            Some(_) => Some(alone(&problem, &solution, &distances, args)?),
            None => None,
        },
        ended: in_force.into_keys().collect(),
        moves: moves(&problem, &solution),
        usable: used(&problem)?,
        distances,
        problem,
        names,
        solution,
        solve_micros,
        has_current: args.current.is_some(),
    })
}

/// Reads the deployment in a file, with its usable CPUs, its mapping in force, and the distances
/// that it requests.
fn deployment(
    file: &FileArg,
    usable: &Topology,
    in_force: &mut BTreeMap<String, Mapping>,
) -> Result<(String, Deployment, DistanceOverrides), Failure> {
    let path = file.path.display().to_string();
    let text = std::fs::read_to_string(&file.path).map_err(|e| {
        let advice = "give -f the path of an InferenceDeployment";
        Failure::Usage(format!("{path} cannot be read: {e}; {advice}"))
    })?;
    // Only the fields that the planner needs are validated, not models or resources of a cluster.
    let read = read_deployment(&text, &path).map_err(|e| Failure::Usage(sentence(&e)))?;
    let policy = policy_of(&read.spec);
    let other = match policy.placement {
        PlacementMethod::Tuna => None,
        PlacementMethod::RoundRobin => Some("RoundRobin"),
        PlacementMethod::None => Some("None"),
    };
    if let Some(other) = other {
        return Err(Failure::Usage(format!(
            "{path}: spec.placement.policy is {other}, and only Tuna is planned: leave the file \
             out and give its threads with --obstacle CPU=THREADS"
        )));
    }
    let cpuset = match &file.cpuset {
        None => usable.cpuset(),
        Some(cpuset) => restrict(usable, &format!("-f {path}@"), cpuset)?.cpuset(),
    };
    let name = read.metadata.name.unwrap_or_else(|| stem(&file.path));
    let deployment = Deployment {
        workers: policy.workers,
        threads: policy.threads,
        mode: policy.mode,
        cpuset,
        current: in_force.remove(&name),
    };
    Ok((name, deployment, policy.distances))
}

fn stem(path: &Path) -> String {
    path.file_stem().map_or_else(
        || "deployment".to_owned(),
        |stem| stem.to_string_lossy().into_owned(),
    )
}

fn refused(args: &PlanArgs, error: &JointError) -> Failure {
    let index = match error {
        JointError::Deployment { deployment, error } => Some((*deployment, error.to_string())),
        _ => None,
    };
    Failure::Usage(match (index, error) {
        (Some((index, what)), _) => match args.file.get(index) {
            Some(file) => format!("{}: {what}", file.path.display()),
            None => what,
        },
        (None, JointError::ObstacleOutside { cpu, machine, .. }) => {
            format!("--obstacle: cpu {cpu} is not online in this machine, which has {machine}")
        }
        (None, error) => error.to_string(),
    })
}

/// The only deployment as a single plan with an explanation.
fn alone(
    problem: &JointProblem,
    solution: &JointSolution,
    distances: &PlanDistances,
    args: &PlanArgs,
) -> Result<SinglePlan, Failure> {
    let only = problem.deployments.first().zip(solution.mappings.first());
    let Some((deployment, mapping)) = only else {
        return Err(Failure::Broken("no deployment was planned".to_owned()));
    };
    let problem = Problem {
        workers: deployment.workers,
        threads: deployment.threads,
        mode: deployment.mode,
        topology: used(problem)?,
        distances: problem.distances,
        current: None,
    };
    let solution = Solution {
        mapping: mapping.clone(),
        certificate: solution.certificate.clone(),
    };
    explained_plan(problem, solution, distances.clone(), args)
}

/// By deployment, the threads that move.
fn moves(problem: &JointProblem, solution: &JointSolution) -> Vec<Vec<Move>> {
    let pairs = problem.deployments.iter().zip(&solution.mappings);
    pairs
        .map(|(deployment, mapping)| match &deployment.current {
            Some(current) => difference(current, mapping),
            None => Vec::new(),
        })
        .collect()
}

/// The CPUs that at least one deployment may use.
fn used(problem: &JointProblem) -> Result<Topology, Failure> {
    let cpus = problem
        .deployments
        .iter()
        .fold(CpuSet::new(), |all, d| all.union(&d.cpuset));
    let used = problem.topology.restrict(&cpus);
    used.map_err(|e| Failure::usage("--cpuset", &e))
}
