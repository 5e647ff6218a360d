//! A plan as text: how good it is, then the machine core by core with the threads on every cpu, mains marked.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use albacore_topology::CpuId;

use super::tree::{Core, Part, nest, summary};
use crate::plan_command::Plan;

/// The plan as text.
pub(crate) fn plan_text(plan: &Plan) -> String {
    let mut on_cpu: BTreeMap<CpuId, Vec<String>> = BTreeMap::new();
    for (slot, cpu) in plan.solution.mapping.iter() {
        let mark = if slot.rank.0 == 0 { "*" } else { "" };
        let name = format!("{}.{}{mark}", slot.worker.0, slot.rank.0);
        on_cpu.entry(cpu).or_default().push(name);
    }
    let threads: BTreeMap<CpuId, String> = on_cpu
        .into_iter()
        .map(|(cpu, names)| (cpu, names.join(" ")))
        .collect();
    let width = threads.values().map(String::len).max().unwrap_or(0).max(1);
    let mut text = head(plan);
    list(&nest(&plan.problem.topology), 0, &threads, width, &mut text);
    text.push_str("w.r is the thread of rank r in worker w, * marks main threads\n");
    text
}

/// What was asked and how good the answer is.
fn head(plan: &Plan) -> String {
    let (problem, certificate) = (&plan.problem, &plan.solution.certificate);
    let mut text = String::new();
    // infallible: writing to a String.
    let _ = writeln!(
        text,
        "{} x {}, {}, policy {}, on {}",
        counted(problem.workers, "worker"),
        counted(problem.threads, "thread"),
        plan.mode.name(),
        plan.policy.name(),
        summary(&problem.topology)
    );
    let _ = writeln!(text, "objective  {} cycles", certificate.objective);
    let _ = writeln!(text, "bound      {} cycles", certificate.bound);
    let _ = writeln!(
        text,
        "optimal    {}",
        if certificate.optimal {
            "yes"
        } else {
            "not proven"
        }
    );
    let relaxed = relaxed_line(plan);
    let _ = writeln!(
        text,
        "relaxed    {}",
        relaxed.as_deref().unwrap_or("no rule")
    );
    let _ = writeln!(text, "solved in  {} us", plan.solve_micros);
    text.push('\n');
    text
}

/// `rule 12 by 1, ...`, if any rule was relaxed.
pub(super) fn relaxed_line(plan: &Plan) -> Option<String> {
    let relaxed = &plan.solution.certificate.relaxed;
    let rule = |r: &albacore_mapping::Relaxation| format!("rule {} by {}", r.rule, r.amount);
    (!relaxed.is_empty()).then(|| relaxed.iter().map(rule).collect::<Vec<_>>().join(", "))
}

/// `1 worker`, `2 workers`.
pub(super) fn counted(n: u16, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

fn list(
    parts: &[Part<'_>],
    depth: usize,
    threads: &BTreeMap<CpuId, String>,
    width: usize,
    text: &mut String,
) {
    let indent = "  ".repeat(depth);
    for part in parts {
        match part {
            Part::Domain(domain) => {
                // infallible: writing to a String.
                let _ = writeln!(text, "{indent}{}", domain.label);
                list(&domain.parts, depth + 1, threads, width, text);
            }
            Part::Core(core) => {
                let _ = writeln!(text, "{indent}{}", line(core, threads, width).trim_end());
            }
        }
    }
}

fn line(core: &Core<'_>, threads: &BTreeMap<CpuId, String>, width: usize) -> String {
    let mut line = format!("core {:<3}", core.number);
    for cpu in &core.cpus {
        let on_it = threads.get(&cpu.id).map_or("-", String::as_str);
        // infallible: writing to a String.
        let _ = write!(line, "  cpu {:<3} {on_it:<width$}", cpu.id.0);
    }
    line
}
