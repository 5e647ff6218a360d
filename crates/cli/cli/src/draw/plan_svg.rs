//! The plan of one deployment as a picture: the threads of a worker share a color and show its
//! number.

use super::picture::{Heading, LegendKey, Picture, ThreadMark, grouped, verdict};
use super::plan_text::relaxed_line;
use super::style::worker_color;
use super::threads::{DrawnThread, OnCpus, of_plan};
use super::tree::summary;
use crate::args::mode_name;
use crate::planning::SinglePlan;
use albacore_api::counted;

/// Largest number of workers named in the legend; above it, only the discs have numbers.
const LEGEND_WORKERS_MAX: u16 = 16;

/// The plan as SVG.
pub(crate) fn plan_svg(plan: &SinglePlan) -> String {
    let on_cpus = of_plan(plan);
    let picture = Picture {
        head: head(plan),
        machine: &plan.machine,
        usable: plan.problem.topology.cpuset(),
        legend: legend(plan),
        on_cpus: marks(&on_cpus, &|thread| {
            let worker = thread.slot.worker.0;
            let color = worker_color(worker).to_owned();
            (worker.to_string(), color, format!("worker {worker}"))
        }),
    };
    picture.svg()
}

/// The threads of every CPU as discs, main threads first; `describe` returns label, color and
/// owner.
pub(super) fn marks(
    on_cpus: &OnCpus,
    describe: &dyn Fn(&DrawnThread) -> (String, String, String),
) -> std::collections::BTreeMap<albacore_topology::CpuId, Vec<ThreadMark>> {
    let mark = |thread: &DrawnThread| {
        let (label, color, owner) = describe(thread);
        let is_main = thread.is_main();
        let role = if is_main { "main thread" } else { "peer" };
        let rank = thread.slot.rank.0;
        let mut title = format!("{owner}, rank {rank} ({role}) on cpu {}", thread.cpu);
        if let Some(from) = thread.from {
            title += &format!(", moved from cpu {from}");
        }
        ThreadMark {
            label,
            color,
            is_main,
            is_moved: thread.from.is_some(),
            title,
        }
    };
    let on_cpu = |threads: &Vec<DrawnThread>| {
        let mut threads = threads.clone();
        threads.sort_by_key(|t| (!t.is_main(), t.deployment, t.slot));
        threads.iter().map(mark).collect()
    };
    on_cpus
        .iter()
        .map(|(&cpu, threads)| (cpu, on_cpu(threads)))
        .collect()
}

fn head(plan: &SinglePlan) -> Heading {
    let (problem, certificate) = (&plan.problem, &plan.solution.certificate);
    let relaxed = relaxed_line(&certificate.relaxed).map(|rules| format!("relaxed: {rules}"));
    let moved = plan.change.as_ref().map(|change| {
        let moved = change.moves.len();
        let of = plan.solution.mapping.cpus.len();
        moved_line(moved, of, change.gained)
    });
    Heading {
        title: format!(
            "{} × {} · {} · {}",
            counted(problem.workers, "worker"),
            counted(problem.threads, "thread"),
            mode_name(plan.problem.mode),
            plan.policy.name()
        ),
        summary: summary(&problem.topology),
        verdict: verdict(certificate),
        is_optimal: certificate.optimal,
        notes: relaxed.into_iter().chain(moved).collect(),
    }
}

/// Formats as `3 of 16 threads move: 46 cycles gained`.
pub(super) fn moved_line(moved: usize, of: usize, gained: Option<i64>) -> String {
    let verb = if moved == 1 { "moves" } else { "move" };
    let gained = match gained {
        Some(gained @ 1..) => format!(": {} cycles gained", grouped(gained)),
        Some(lost @ ..0) => format!(": {} cycles less than now", grouped(-lost)),
        Some(0) | None => String::new(),
    };
    format!("{moved} of {of} threads {verb}{gained}")
}

fn legend(plan: &SinglePlan) -> Vec<(String, LegendKey)> {
    let mut entries = vec![("main thread".to_owned(), LegendKey::Main)];
    if plan.problem.threads > 1 {
        entries.push(("peer thread".to_owned(), LegendKey::Peer));
    }
    if plan.change.as_ref().is_some_and(|c| !c.moves.is_empty()) {
        entries.push(("moved".to_owned(), LegendKey::Moved));
    }
    if plan.problem.workers <= LEGEND_WORKERS_MAX {
        entries.extend((0..plan.problem.workers).map(|worker| {
            let sign = LegendKey::Color(worker_color(worker).to_owned(), worker.to_string());
            (format!("worker {worker}"), sign)
        }));
    }
    entries
}
