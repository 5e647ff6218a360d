//! A plan as text: its quality, and the machine core by core with the threads on every CPU, main
//! threads marked; then moves and an explanation, if requested on the command line.

use albacore_api::counted;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use albacore_solver::{Move, Proof, Relaxation};
use albacore_topology::{CpuId, Distances, Level};

use super::columns::{listed, paragraph};
use super::cores_text::cores_text;
use super::explanation::explanation_text;
use super::rules_in_words::numbered;
use super::thread_explanation::thread_text;
use super::threads::{OnCpus, of_plan};
use super::tree::summary;
use crate::args::mode_name;
use crate::planning::{DistancesSource, PlanChange, PlanDistances, SinglePlan};

pub(super) const INDENT: usize = 11;

/// The plan as text.
pub(crate) fn plan_text(plan: &SinglePlan) -> String {
    let mut text = head(plan);
    if let Some(change) = &plan.change {
        text += &change_text(change, plan.solution.mapping.cpus.len());
    }
    text.push('\n');
    text += &cores_text(&plan.problem.topology, &names(&of_plan(plan)));
    text += "w.r is the thread of rank r in worker w, * marks main threads";
    let moves = plan.change.as_ref().is_some_and(|c| !c.moves.is_empty());
    text += if moves {
        ", ~ threads that move\n"
    } else {
        "\n"
    };
    text + &why_text(plan)
}

/// The explanation of the plan or of one thread, if requested on the command line.
pub(super) fn why_text(plan: &SinglePlan) -> String {
    match (&plan.thread, &plan.explanation) {
        (Some(thread), _) => thread_text(plan, thread),
        (None, Some(why)) => explanation_text(plan, why),
        (None, None) => String::new(),
    }
}

/// Names of the threads on each cpu.
pub(super) fn names(on_cpus: &OnCpus) -> BTreeMap<CpuId, String> {
    let names = on_cpus.iter().map(|(&cpu, threads)| {
        let names: Vec<String> = threads.iter().map(|thread| thread.name()).collect();
        (cpu, names.join(" "))
    });
    names.collect()
}

/// The problem and the quality of its solution.
fn head(plan: &SinglePlan) -> String {
    let (problem, certificate) = (&plan.problem, &plan.solution.certificate);
    let mut text = String::new();
    // infallible: writing to a String.
    let _ = writeln!(
        text,
        "{} x {}, {}, policy {}",
        counted(problem.workers, "worker"),
        counted(problem.threads, "thread"),
        mode_name(plan.problem.mode),
        plan.policy.name()
    );
    text += &paragraph("machine", INDENT, &summary(&problem.topology));
    text += &distances_text(&plan.distances);
    text + &quality(certificate, plan.solve_micros)
}

/// The distances that differ from the defaults, and their source; empty if all are defaults and
/// none were given.
pub(super) fn distances_text(distances: &PlanDistances) -> String {
    let source = match &distances.source {
        DistancesSource::Defaults => return String::new(),
        DistancesSource::DefaultsOfUnknownNodes => {
            "the machine does not report the distances of its NUMA nodes".to_owned()
        }
        DistancesSource::Nodes => "from the distances of the machine's NUMA nodes".to_owned(),
        DistancesSource::Option => "from --distances".to_owned(),
        DistancesSource::File(path) => format!("from {}", path.display()),
        DistancesSource::Deployments => "from spec.placement.distances".to_owned(),
        DistancesSource::DeploymentsDiffer => {
            "spec.placement.distances is not used, because it differs between the files".to_owned()
        }
    };
    let default = Distances::default();
    let levels = Level::ALL.into_iter().filter_map(|level| {
        let (cycles, usual) = (distances.cycles.at(level), default.at(level));
        (cycles != usual).then(|| format!("{} {cycles} (default {usual})", level.name()))
    });
    let levels: Vec<String> = levels.collect();
    let list = match levels.is_empty() {
        true => "the defaults".to_owned(),
        false => levels.join(", "),
    };
    paragraph("distances", INDENT, &format!("{list}: {source}"))
}

/// The lines about the quality of a solution.
pub(super) fn quality(certificate: &albacore_solver::Certificate, micros: u64) -> String {
    let optimal = match certificate.proof {
        Proof::Bound => "yes: it meets the bound that counting gives",
        Proof::Lagrangian => "yes: it meets the bound that Lagrangian relaxation gives",
        Proof::Search => "yes: a complete search found nothing better",
        Proof::None => "not proven",
    };
    let relaxed = relaxed_line(&certificate.relaxed);
    [
        ("objective", format!("{} cycles", certificate.objective)),
        ("bound", format!("{} cycles", certificate.bound)),
        ("optimal", optimal.to_owned()),
        ("relaxed", relaxed.unwrap_or_else(|| "no rule".to_owned())),
        ("solved in", format!("{micros} us")),
    ]
    .iter()
    .map(|(label, value)| format!("{label:<INDENT$}{value}\n"))
    .collect()
}

/// Formats as `rule 12 by 1`.
pub(crate) fn relaxed_rule(rule: &str, amount: u32) -> String {
    match rule {
        "fast-mains" => format!("{} on slow cores", counted(amount, "main thread")),
        rule => format!("rule {rule} by {amount}"),
    }
}

/// Formats as `rule 12 by 1, ...`, if any rule was relaxed.
pub(super) fn relaxed_line(relaxed: &[Relaxation]) -> Option<String> {
    let rule = |r: &Relaxation| relaxed_rule(r.rule, r.amount);
    (!relaxed.is_empty()).then(|| relaxed.iter().map(rule).collect::<Vec<_>>().join(", "))
}

/// The difference to the plan in force.
fn change_text(change: &PlanChange, threads: usize) -> String {
    let moved = change.moves.len();
    let mut text = format!("{moved} of {}", threads_of(threads));
    text += &match change.gained {
        None => ", because cpus of the plan in force are gone".to_owned(),
        Some(_) if moved == 0 => ": the plan in force stays".to_owned(),
        Some(gained) => format!(", {}", gained_cycles(gained)),
    };
    if !change.broke.is_empty() {
        let rules: Vec<String> = change
            .broke
            .iter()
            .map(|(rule, amount)| format!("{} by {amount}", numbered(rule)))
            .collect();
        text += &format!("; the plan in force breaks {}", listed(&rules));
    }
    paragraph("moved", INDENT, &text) + &moves_text("moves", &change.moves, "")
}

pub(super) fn threads_of(threads: usize) -> String {
    counted(i64::try_from(threads).unwrap_or(i64::MAX), "thread")
}

pub(super) fn gained_cycles(gained: i64) -> String {
    match gained {
        0.. => format!("{gained} cycles gained"),
        lost => format!("{} cycles less than now", -lost),
    }
}

/// All moves next to `label`; `deployment` is the prefix of thread names.
pub(super) fn moves_text(label: &str, moves: &[Move], deployment: &str) -> String {
    if moves.is_empty() {
        return String::new();
    }
    // A non-breaking space keeps a move on one line.
    let list: Vec<String> = moves
        .iter()
        .map(|m| {
            let (worker, rank) = (m.slot.worker.0, m.slot.rank.0);
            format!(
                "{deployment}{worker}.{rank}\u{a0}cpu\u{a0}{}->{}",
                m.from, m.to
            )
        })
        .collect();
    paragraph(label, INDENT, &list.join(", ")).replace('\u{a0}', " ")
}
