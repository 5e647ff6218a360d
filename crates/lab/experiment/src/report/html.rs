//! `report.html`.

use albacore_svg::escape;

use crate::journal::Results;
use crate::spec::Spec;

use super::page::report_page;
use super::{curves, intervals_chart, stages_chart, tables};

fn list(counts: &[u16]) -> String {
    let counts: Vec<String> = counts.iter().map(u16::to_string).collect();
    counts.join(", ")
}

fn load(spec: &Spec) -> String {
    let load = spec.load;
    match (load.clients_per_worker, load.clients, load.rate) {
        (Some(each), ..) => format!("{each} clients for each worker, in a closed loop"),
        (None, Some(clients), _) => format!("{clients} clients in a closed loop"),
        (None, None, rate) => format!(
            "{} requests a second in an open loop",
            rate.unwrap_or_default()
        ),
    }
}

pub(super) fn page(results: &Results, conclusions: &[String]) -> String {
    let header = &results.header;
    let (spec, machine) = (&header.spec, &header.machine);
    let conclusions: String = conclusions
        .iter()
        .map(|conclusion| format!("<li>{}</li>\n", escape(conclusion)))
        .collect();
    let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".to_owned());
    let mitigations = match machine.mitigations.is_empty() {
        true => "none reported".to_owned(),
        false => machine.mitigations.join("; "),
    };
    let facts = [
        ("Processor", machine.cpu.clone()),
        ("Cpus", machine.cpus.to_string()),
        ("Kernel", machine.kernel.clone()),
        ("Governor", or_none(&machine.governor)),
        ("SMT", or_none(&machine.smt)),
        ("Mitigations", mitigations),
        ("Topology", machine.topology.clone()),
        ("Albacore", header.version.clone()),
        ("Workers", list(&spec.workers)),
        ("Threads of a worker", list(&spec.threads)),
        ("Load", load(spec)),
        ("Seed", spec.seed.to_string()),
        (
            "Windows",
            format!(
                "{} trials of {:?} after {:?} of load that is not measured",
                spec.trials, spec.window.0, spec.settle.0
            ),
        ),
    ];
    let facts: String = facts
        .iter()
        .map(|(name, fact)| format!("<tr><td>{name}</td><td>{}</td></tr>\n", escape(fact)))
        .collect();
    let stages = stages_chart::draw(results).unwrap_or_else(|| {
        "<p class='dim'>The server reports no stages (no Server-Timing header).</p>".to_owned()
    });
    let body = format!(
        "<p class='dim'>A ratio is the time of the other policy divided by that of the policy \
         named first: above 1, the first one is faster. Intervals have 99 % confidence.</p>\n\
         <h2>Conclusions</h2><ul>\n{conclusions}</ul>\n\
         <h2>Speed-up by group</h2>{}\n<h2>Configurations</h2>{}\n<h2>Stages</h2>{stages}\n\
         <h2>Latency</h2>{}\n<h2>Figures</h2>{}\n{}<h2>Machine and method</h2><table>{facts}</table>",
        intervals_chart::draw(results),
        curves::configurations(results),
        curves::latencies(results),
        tables::figures(results),
        tables::failures(results),
    );
    report_page(&format!("Experiment {}", spec.name), &body)
}
