//! Text output of plans for a cluster and of their differences.

use std::fmt::Write as _;

use albacore_api::counted;
use albacore_forecast::{
    DeploymentPlan, DiffReport, NewPlan, NodeDiff, NodePlan, PlanReport, PodDiff, Quality,
    RunningPod, ThreadAssignment, ThreadMove,
};

use crate::draw::relaxed_rule;

/// Width of the labels, in columns.
const INDENT: usize = 11;

pub(super) fn plan_text(report: &PlanReport) -> String {
    let mut text = String::new();
    for deployment in &report.deployments {
        let DeploymentPlan {
            namespace,
            name,
            workers,
            threads,
            mode,
            ..
        } = deployment;
        let workers = counted(*workers, "worker");
        let threads = counted(*threads, "thread");
        // infallible: a String, as everywhere in this file
        let _ = writeln!(text, "{namespace}/{name}: {workers} x {threads}, {mode}");
        for note in &deployment.notes {
            line(&mut text, "note", note);
        }
        for node in &deployment.nodes {
            text.push('\n');
            node_text(&mut text, node);
        }
    }
    unread_text(&mut text, &report.unread);
    text
}

fn node_text(text: &mut String, node: &NodePlan) {
    let name = &node.node;
    match (&node.plan, &node.why) {
        (Some(plan), _) => {
            let _ = writeln!(text, "node {name}: a new pod on cpus {}", plan.cpuset);
            new_pod_text(text, plan);
        }
        (None, why) => {
            let _ = writeln!(text, "node {name}: {}", why.as_deref().unwrap_or("no plan"));
        }
    }
    for assumption in &node.assumptions {
        line(text, "assumed", assumption);
    }
    for pod in &node.now {
        running_text(text, pod);
    }
}

fn new_pod_text(text: &mut String, plan: &NewPlan) {
    workers_text(text, &plan.assignments);
    quality_text(text, &plan.certificate);
    if !plan.together_with.is_empty() {
        line(text, "with", &plan.together_with.join(", "));
    }
    for pod in &plan.moves {
        line(
            text,
            "moves",
            &format!("{}: {}", pod.pod, moves_list(&pod.moves)),
        );
    }
}

/// One line per worker: `0* 8 16`, main thread first.
fn workers_text(text: &mut String, assignments: &[ThreadAssignment]) {
    for of_worker in assignments.chunk_by(|a, b| a.worker == b.worker) {
        let Some(first) = of_worker.first() else {
            continue;
        };
        let cpus: Vec<String> = of_worker.iter().map(cpu).collect();
        line(
            text,
            &format!("worker {}", first.worker),
            &format!("cpus {}", cpus.join(" ")),
        );
    }
}

fn cpu(of: &ThreadAssignment) -> String {
    let main = if of.rank == 0 { "*" } else { "" };
    format!("{}{main}", of.cpu)
}

fn quality_text(text: &mut String, quality: &Quality) {
    let Quality {
        objective, bound, ..
    } = quality;
    line(text, "objective", &format!("{objective} cycles"));
    line(text, "bound", &format!("{bound} cycles"));
    let optimal = match quality.optimal {
        true => format!("yes ({})", quality.proof),
        false => "not proven".to_owned(),
    };
    line(text, "optimal", &optimal);
    let relaxed = quality.relaxed.iter();
    let relaxed = relaxed.map(|r| relaxed_rule(r.rule, r.amount));
    let relaxed: Vec<String> = relaxed.collect();
    if !relaxed.is_empty() {
        line(text, "relaxed", &relaxed.join(", "));
    }
}

fn running_text(text: &mut String, pod: &RunningPod) {
    let whose = match pod.is_of_deployment {
        Some(true) => ", of this deployment",
        _ => "",
    };
    let confirmed = confirmed(pod.is_confirmed);
    line(text, "now", &format!("{}{whose}: {confirmed}", pod.pod));
    let mut workers = String::new();
    workers_text(&mut workers, &pod.assignments);
    for worker in workers.lines() {
        line(text, "", worker.trim_start());
    }
}

fn confirmed(is_confirmed: bool) -> &'static str {
    match is_confirmed {
        true => "confirmed by the agent's plan hash",
        false => "not confirmed by the agent's plan hash",
    }
}

pub(super) fn diff_text(report: &DiffReport) -> String {
    let DiffReport {
        namespace, name, ..
    } = report;
    let is_unknown = report.nodes.iter().any(|node| node.why.is_some());
    let verdict = match (report.changes, is_unknown) {
        (true, _) => "threads would move, come or go",
        (false, true) => "nothing would move on nodes whose plan is known",
        (false, false) => "nothing would move",
    };
    let mut text = format!("{namespace}/{name}: {verdict}\n");
    if !report.restarting_fields.is_empty() {
        let fields = report.restarting_fields.join(", ");
        line(&mut text, "restarts", &format!("all pods, for {fields}"));
    }
    for note in &report.notes {
        line(&mut text, "note", note);
    }
    for node in &report.nodes {
        text.push('\n');
        node_diff_text(&mut text, node);
    }
    unread_text(&mut text, &report.unread);
    text
}

fn node_diff_text(text: &mut String, node: &NodeDiff) {
    if let Some(why) = &node.why {
        let _ = writeln!(text, "node {}: {why}", node.node);
        return;
    }
    let _ = writeln!(text, "node {}", node.node);
    let before = node.objective_before.map(|before| before.to_string());
    let before = before.unwrap_or_else(|| "not known".to_owned());
    if let Some(after) = &node.after {
        let Quality {
            objective, bound, ..
        } = after;
        let change = format!("{before} -> {objective} cycles of at most {bound}");
        line(text, "objective", &change);
    }
    for pod in &node.pods {
        pod_diff_text(text, pod);
    }
    for assumption in &node.assumptions {
        line(text, "assumed", assumption);
    }
}

fn pod_diff_text(text: &mut String, pod: &PodDiff) {
    if pod.is_empty() && !pod.is_of_deployment {
        return;
    }
    let whose = if pod.is_of_deployment {
        ""
    } else {
        " (another deployment)"
    };
    let plan = confirmed(pod.is_confirmed);
    line(text, "pod", &format!("{}{whose}: {plan}", pod.pod));
    if pod.is_empty() {
        line(text, "", "nothing moves");
    }
    if !pod.moves.is_empty() {
        line(text, "moves", &moves_list(&pod.moves));
    }
    for (label, threads) in [("added", &pod.added), ("removed", &pod.removed)] {
        let list = threads
            .iter()
            .map(|t| format!("{}.{} cpu {}", t.worker, t.rank, t.cpu));
        let list: Vec<String> = list.collect();
        if !list.is_empty() {
            line(text, label, &list.join(", "));
        }
    }
}

fn moves_list(moves: &[ThreadMove]) -> String {
    let moves = moves
        .iter()
        .map(|m| format!("{}.{} cpu {}->{}", m.worker, m.rank, m.from, m.to));
    moves.collect::<Vec<_>>().join(", ")
}

fn unread_text(text: &mut String, unread: &[String]) {
    for sentence in unread {
        let _ = writeln!(text, "not read: {sentence}");
    }
}

fn line(text: &mut String, label: &str, words: &str) {
    let _ = writeln!(text, "  {label:<INDENT$}{words}");
}
