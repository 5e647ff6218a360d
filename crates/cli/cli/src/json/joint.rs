//! A plan of several deployments as JSON.

use serde_json::{Value, json};

use super::{assignments, cpu, explanation, list, one_move, relaxed};
use crate::args::mode_name;
use crate::planning::JointPlan;

/// A plan of several deployments; the last fields are present if requested on the command line.
pub(crate) fn joint(plan: &JointPlan) -> Value {
    let solution = &plan.solution;
    let rows = plan.problem.deployments.iter().zip(&solution.mappings);
    let rows = rows.zip(&plan.names).zip(&plan.moves);
    let deployments = rows.map(|(((deployment, mapping), name), moves)| {
        json!({
            "name": name,
            "workers": deployment.workers,
            "threads": deployment.threads,
            "mode": mode_name(deployment.mode),
            "cpuset": deployment.cpuset.to_string(),
            "assignments": assignments(mapping),
            "moves": list(moves, one_move),
        })
    });
    let mut json = json!({
        "deployments": deployments.collect::<Value>(),
        "objective": solution.certificate.objective,
        "bound": solution.certificate.bound,
        "optimal": solution.certificate.optimal,
        "gained": solution.gained,
        "moved": solution.moved,
        "relaxed": list(&solution.certificate.relaxed, relaxed),
        "solve_micros": plan.solve_micros,
        "obstacles": list(&plan.problem.obstacles, |o| json!({"cpu": o.cpu.0, "weight": o.weight})),
        "cpus": list(plan.problem.topology.cpus(), cpu),
        "proof": solution.certificate.proof.name(),
        "distances": plan.distances.cycles,
    });
    if plan.has_current {
        json["ended"] = json!(plan.ended);
        // Whether no plan of the same quality moves fewer threads.
        json["moved_least"] = solution.moved_least.into();
    }
    if let Some(explanation) = plan.alone.as_ref().and_then(explanation::of) {
        json["explanation"] = explanation;
    }
    json
}
