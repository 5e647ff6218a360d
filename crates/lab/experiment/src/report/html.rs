//! `report.html`: one file, no script, no fetch.

use albacore_svg::escape;

use crate::journal::Results;
use crate::spec::Spec;

use super::{curves, intervals_chart, stages_chart, tables};

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1c2430;--dim:#66707f;--page:#fff;--line:#dfe3e9}\
@media(prefers-color-scheme:dark){:root{--ink:#e8ebf0;--dim:#98a2b3;--page:#14181f;--line:#2c333f}}\
body{font:16px/1.55 system-ui,sans-serif;color:var(--ink);background:var(--page);max-width:980px;margin:3rem auto;padding:0 1rem}\
h1{font-size:1.6rem;margin-bottom:.2rem}h2{font-size:1.1rem;margin-top:2.2rem}\
table{border-collapse:collapse;width:100%;font-size:.85rem}th,td{text-align:right;padding:.25rem .6rem;border-bottom:1px solid var(--line)}\
th:first-child,td:first-child{text-align:left}.dim{color:var(--dim)}svg{width:100%;height:auto}\
summary{cursor:pointer;padding:.3rem 0}li{margin:.3rem 0}";

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
    let name = escape(&spec.name);
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
    format!(
        "<!doctype html><html lang='en'><meta charset='utf-8'><meta name='viewport' \
         content='width=device-width,initial-scale=1'><title>Experiment {name}</title>\
         <style>{STYLE}</style>\n<h1>Experiment {name}</h1>\n\
         <p class='dim'>Ratios are times of the other by times of the policy that is named first: above 1 that one is \
         faster. Intervals are those of 99 % confidence.</p>\n\
         <h2>Conclusions</h2><ul>\n{conclusions}</ul>\n\
         <h2>Speed-up by group</h2>{}\n<h2>Configurations</h2>{}\n<h2>Stages</h2>{stages}\n\
         <h2>Latency</h2>{}\n<h2>Figures</h2>{}\n{}<h2>Machine and method</h2><table>{facts}</table></html>\n",
        intervals_chart::draw(results),
        curves::configurations(results),
        curves::latencies(results),
        tables::figures(results),
        tables::failures(results),
    )
}
