//! `report.html`.

use std::fmt::Write as _;

use albacore_experiment::report_page;
use albacore_svg::escape;

use super::pareto;
use crate::outcome::{Measured, Outcome};

/// In addition to the common style of reports.
const STYLE: &str = ".words td{text-align:left}pre{overflow:auto;border:1px solid var(--line);padding:.6rem;font-size:.8rem}";

pub(super) fn page(outcome: &Outcome) -> String {
    let summary: String = outcome
        .summary()
        .lines()
        .map(|line| format!("<p>{}</p>\n", escape(line)))
        .collect();
    let file = match &outcome.patched {
        Ok(text) | Err(text) => escape(text),
    };
    let body = format!(
        "<style>{STYLE}</style><p class='dim'>{} ms at {} %; requests: {}; arrivals: {}; {}; {:.0} s</p>\n{summary}\
         <h2>Measured</h2>{}\n{}\n<h2>Recipe</h2>{}\n<h2>Predicted</h2>\n\
         <p class='dim'>{} candidates were ranked in {:.1} s; these are the best of those that were simulated.</p>{}\n\
         <h2>The file</h2><pre>{file}</pre>",
        outcome.objective_ms,
        outcome.percentile,
        escape(&outcome.mix),
        escape(&outcome.arrivals),
        outcome.machine,
        outcome.seconds,
        pareto::draw(outcome),
        measured(outcome),
        recipe(outcome),
        outcome.candidates,
        outcome.ranking_seconds,
        predicted(outcome),
    );
    report_page(&format!("Tuning of {}", outcome.name), &body)
}

fn measured(outcome: &Outcome) -> String {
    let mut html = "<p class='dim'>Measured under more load than each candidate sustains, or \
                    at the requested rate. The last column is the ratio of the chosen candidate's \
                    score to this one's, at 99 % confidence.</p><table><tr><th>candidate</th>\
                    <th>goodput/s</th><th>predicted</th><th>p50 ms</th><th>p99 ms</th><th>cpus</th><th>rows/batch</th>\
                    <th>limited by</th><th>windows</th><th>chosen / this</th></tr>"
        .to_owned();
    for of in &outcome.measured {
        html += &row(of, outcome);
    }
    html + "</table>"
}

fn row(of: &Measured, outcome: &Outcome) -> String {
    let mut name = escape(&of.configuration.name());
    if of.configuration == outcome.chosen {
        name = format!("<b>{name}</b>");
    }
    if of.configuration == outcome.current {
        name += " (the file)";
    }
    if let Some(failed) = &of.failed {
        return format!(
            "<tr><td>{name}</td><td colspan='9'>{}</td></tr>",
            escape(failed)
        );
    }
    let predicted = of
        .predicted_goodput
        .map_or("-".to_owned(), |goodput| format!("{goodput:.0}"));
    let better = of
        .chosen_is_better
        .map_or("-".to_owned(), |[ratio, low, high]| {
            format!("{ratio:.2}x ({low:.2} to {high:.2})")
        });
    format!(
        "<tr><td>{name}</td><td>{:.0}</td><td>{predicted}</td><td>{:.2}</td><td>{:.2}</td><td>{:.2}</td><td>{:.1}</td>\
         <td>{}</td><td>{}</td><td>{better}</td></tr>\n",
        of.goodput,
        of.p50_ms,
        of.p99_ms,
        of.cpus,
        of.batch_rows,
        of.limit.name(),
        of.windows.len()
    )
}

fn recipe(outcome: &Outcome) -> String {
    let mut html =
        "<table class='words'><tr><th>step</th><th>tried</th><th>what it showed</th></tr>"
            .to_owned();
    for step in &outcome.steps {
        // infallible: a String
        let _ = write!(
            html,
            "<tr><td>{}</td><td>{}</td><td>{}</td></tr>",
            step.step,
            escape(&step.tried),
            escape(&step.showed)
        );
    }
    html + "</table>"
}

fn predicted(outcome: &Outcome) -> String {
    let mut html = "<table><tr><th>candidate</th><th>goodput/s</th><th>p99 ms</th><th>rows/batch</th><th>limited by</th></tr>"
        .to_owned();
    for of in &outcome.predicted {
        // infallible: a String
        let _ = write!(
            html,
            "<tr><td>{}</td><td>{:.0}</td><td>{:.2}</td><td>{:.1}</td><td>{}</td></tr>",
            escape(&of.configuration.name()),
            of.goodput,
            of.p99_ms,
            of.batch_rows,
            of.limit.name()
        );
    }
    html + "</table>"
}
