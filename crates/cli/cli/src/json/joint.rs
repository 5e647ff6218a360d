//! A plan of several deployments as JSON.

use serde::Serialize;

use super::explanation::{self, ExplanationJson};
use super::{
    AssignmentJson, CpuJson, MoveJson, RelaxedJson, assignments, cpu, line, one_move, relaxed,
};
use crate::args::mode_name;
use crate::planning::JointPlan;
use albacore_command::Failure;

#[derive(Serialize)]
struct JointJson<'a> {
    deployments: Vec<DeploymentJson<'a>>,
    objective: i64,
    bound: i64,
    optimal: bool,
    gained: i64,
    moved: u32,
    relaxed: Vec<RelaxedJson>,
    solve_micros: u64,
    obstacles: Vec<ObstacleJson>,
    cpus: Vec<CpuJson>,
    proof: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended: Option<&'a [String]>,
    /// No plan as good moves fewer threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    moved_least: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    explanation: Option<ExplanationJson>,
}

#[derive(Serialize)]
struct DeploymentJson<'a> {
    name: &'a str,
    workers: u16,
    threads: u16,
    mode: &'static str,
    cpuset: String,
    assignments: Vec<AssignmentJson>,
    moves: Vec<MoveJson>,
}

#[derive(Serialize)]
struct ObstacleJson {
    cpu: u16,
    weight: u32,
}

/// A plan of several deployments as one line of JSON.
pub(crate) fn joint(plan: &JointPlan) -> Result<String, Failure> {
    let solution = &plan.solution;
    let rows = plan.problem.deployments.iter().zip(&solution.mappings);
    let rows = rows.zip(&plan.names).zip(&plan.moves);
    let deployments = rows
        .map(|(((deployment, mapping), name), moves)| DeploymentJson {
            name,
            workers: deployment.workers,
            threads: deployment.threads,
            mode: mode_name(deployment.mode),
            cpuset: deployment.cpuset.to_string(),
            assignments: assignments(mapping),
            moves: moves.iter().map(one_move).collect(),
        })
        .collect();
    let obstacles = plan.problem.obstacles.iter();
    line(&JointJson {
        deployments,
        objective: solution.certificate.objective,
        bound: solution.certificate.bound,
        optimal: solution.certificate.optimal,
        gained: solution.gained,
        moved: solution.moved,
        relaxed: solution.certificate.relaxed.iter().map(relaxed).collect(),
        solve_micros: plan.solve_micros,
        obstacles: obstacles
            .map(|o| ObstacleJson {
                cpu: o.cpu.0,
                weight: o.weight,
            })
            .collect(),
        cpus: plan.problem.topology.cpus().iter().map(cpu).collect(),
        proof: solution.certificate.proof.name(),
        moved_least: plan.has_current.then_some(solution.moved_least),
        ended: plan.has_current.then_some(plan.ended.as_slice()),
        explanation: plan.alone.as_ref().and_then(explanation::of),
    })
}
