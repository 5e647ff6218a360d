//! The plan of several deployments as a picture: a hue for each deployment and a shade for each of
//! its workers; gray discs are threads of other processes.

use super::joint_text::obstacles;
use super::picture::{Heading, LegendKey, Picture, ThreadMark, verdict};
use super::plan_svg::{marks, moved_line};
use super::plan_text::relaxed_line;
use super::style::{NO_WORKER, shade};
use super::threads::{of_joint, short_name};
use super::tree::summary;
use crate::args::mode_name;
use crate::planning::JointPlan;
use albacore_api::counted;

/// Largest number of deployments named in the legend; above it, only the discs have letters.
const LEGEND_DEPLOYMENTS_MAX: usize = 26;

/// The plan as SVG.
pub(crate) fn joint_svg(plan: &JointPlan) -> String {
    let mut on_cpus = marks(&of_joint(plan), &|thread| {
        let (deployment, worker) = (thread.deployment.unwrap_or(0), thread.slot.worker.0);
        let name = plan.names.get(deployment).map_or("", String::as_str);
        let label = format!("{}{worker}", short_name(deployment));
        (
            label,
            shade(deployment, worker),
            format!("{name}, worker {worker}"),
        )
    });
    for (cpu, weight) in obstacles(plan) {
        on_cpus.entry(cpu).or_default().push(ThreadMark {
            label: format!("+{weight}"),
            color: NO_WORKER.to_owned(),
            is_main: false,
            is_moved: false,
            title: format!("threads of others on cpu {cpu}: {weight}"),
        });
    }
    let picture = Picture {
        head: head(plan),
        machine: &plan.problem.topology,
        usable: plan.usable.cpuset(),
        on_cpus,
        legend: legend(plan),
    };
    picture.svg()
}

fn head(plan: &JointPlan) -> Heading {
    let certificate = &plan.solution.certificate;
    let threads: usize = plan.solution.mappings.iter().map(|m| m.cpus.len()).sum();
    let relaxed = relaxed_line(&certificate.relaxed).map(|rules| format!("relaxed: {rules}"));
    let moved = plan.has_current.then(|| {
        let moved = plan.solution.moved as usize;
        moved_line(moved, plan.settled(), Some(plan.solution.gained))
    });
    Heading {
        title: format!(
            "{} · {}",
            counted(plan.names.len() as i64, "deployment"),
            counted(threads as i64, "thread")
        ),
        summary: summary(&plan.problem.topology),
        verdict: verdict(certificate),
        is_optimal: certificate.optimal,
        notes: relaxed.into_iter().chain(moved).collect(),
    }
}

fn legend(plan: &JointPlan) -> Vec<(String, LegendKey)> {
    let mut entries = vec![
        ("main thread".to_owned(), LegendKey::Main),
        ("peer thread".to_owned(), LegendKey::Peer),
    ];
    if plan.moves.iter().any(|moves| !moves.is_empty()) {
        entries.push(("moved".to_owned(), LegendKey::Moved));
    }
    if !plan.problem.obstacles.is_empty() {
        entries.push(("n threads of others".to_owned(), LegendKey::Others));
    }
    if plan.names.len() <= LEGEND_DEPLOYMENTS_MAX {
        let rows = plan.names.iter().zip(&plan.problem.deployments).enumerate();
        entries.extend(rows.map(|(index, (name, deployment))| {
            let what = format!(
                "{name}: {} × {} {}",
                deployment.workers,
                deployment.threads,
                mode_name(deployment.mode)
            );
            (what, LegendKey::Color(shade(index, 0), short_name(index)))
        }));
    }
    entries
}
