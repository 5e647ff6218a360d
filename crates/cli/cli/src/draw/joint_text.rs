//! A plan of several deployments as text: a letter for each deployment, the quality of the whole
//! plan, and the machine core by core with the threads on every CPU; obstacles are shown as `+2`.

use albacore_api::counted;
use std::collections::BTreeMap;

use albacore_topology::CpuId;

use super::columns::paragraph;
use super::cores_text::cores_text;
use super::plan_text::{
    INDENT, distances_text, gained_cycles, moves_text, names, quality, threads_of, why_text,
};
use super::threads::{of_joint, short_name};
use super::tree::summary;
use crate::args::mode_name;
use crate::planning::JointPlan;

/// The plan as text.
pub(crate) fn joint_text(plan: &JointPlan) -> String {
    let mut text = counted(plan.names.len() as i64, "deployment") + "\n";
    text += &paragraph("machine", INDENT, &summary(&plan.problem.topology));
    text += &distances_text(&plan.distances);
    text += &deployments_text(plan);
    text += &quality(&plan.solution.certificate, plan.solve_micros);
    if plan.has_current {
        text += &change_text(plan);
    }
    text.push('\n');
    let mut on_cpus = names(&of_joint(plan));
    let mut machine = plan.problem.topology.clone();
    for (cpu, weight) in obstacles(plan) {
        let names = on_cpus.entry(cpu).or_default();
        let gap = if names.is_empty() { "" } else { " " };
        *names += &format!("{gap}+{weight}");
    }
    if plan.problem.obstacles.is_empty() {
        machine = plan.usable.clone();
    }
    text += &cores_text(&machine, &on_cpus);
    text += "Aw.r is the thread of rank r in worker w of deployment A, * marks main threads";
    if !plan.problem.obstacles.is_empty() {
        text += ",\n+n stands for n threads of others";
    }
    let is_moved = plan.moves.iter().any(|moves| !moves.is_empty());
    text += if is_moved {
        ", ~ threads that move\n"
    } else {
        "\n"
    };
    text + &plan.alone.as_ref().map_or_else(String::new, why_text)
}

/// Threads of other processes per CPU.
pub(super) fn obstacles(plan: &JointPlan) -> BTreeMap<CpuId, u64> {
    let mut weights = BTreeMap::new();
    for obstacle in &plan.problem.obstacles {
        *weights.entry(obstacle.cpu).or_insert(0) += u64::from(obstacle.weight);
    }
    weights
}

/// One line per deployment.
fn deployments_text(plan: &JointPlan) -> String {
    let rows = plan.names.iter().zip(&plan.problem.deployments).enumerate();
    let width = plan.names.iter().map(|name| name.chars().count()).max();
    let width = width.unwrap_or(0);
    rows.map(|(index, (name, deployment))| {
        let line = format!(
            "{name:<width$}  {} x {}, {}, cpus {}",
            counted(deployment.workers, "worker"),
            counted(deployment.threads, "thread"),
            mode_name(deployment.mode),
            deployment.cpuset
        );
        paragraph(&short_name(index), INDENT, &line)
    })
    .collect()
}

fn change_text(plan: &JointPlan) -> String {
    let moved = plan.solution.moved;
    let settled = threads_of(plan.settled());
    let mut text = format!("{:<INDENT$}{moved} of {settled} in force", "moved");
    if moved > 0 {
        text += &match plan.solution.moved_least {
            least if least == moved => ", no equally good plan moves fewer".to_owned(),
            least => format!(", at least {least} must"),
        };
        text += &format!(", {}", gained_cycles(plan.solution.gained));
    }
    text.push('\n');
    let mut label = "moves";
    for (index, moves) in plan.moves.iter().enumerate() {
        text += &moves_text(label, moves, &short_name(index));
        label = if moves.is_empty() { label } else { "" };
    }
    if !plan.ended.is_empty() {
        text += &paragraph("ended", INDENT, &plan.ended.join(", "));
    }
    text
}
