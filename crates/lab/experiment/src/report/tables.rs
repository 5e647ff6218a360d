//! Tables of the report.

use std::fmt::Write as _;

use albacore_svg::escape;

use crate::comparison::Setting;
use crate::grid::{Arm, arms};
use crate::journal::Results;
use crate::record::Window;

use super::curves::{median_of, settings};

/// A collapsed table for each model and kind: all settings and arms, medians over trials.
pub(super) fn figures(results: &Results) -> String {
    let mut html = String::new();
    for ((model, request), settings) in settings(results) {
        let name = escape(&format!("{model}, {request}"));
        // infallible: a String
        let _ = write!(
            html,
            "<details><summary>{name}</summary><table><tr><th>workers x threads</th><th>policy</th>\
             <th>p50 ms</th><th>p95 ms</th><th>p99 ms</th><th>goodput/s</th>\
             <th>cpu s per s</th><th>run delay s per s</th><th>migrations/s</th></tr>"
        );
        for setting in &settings {
            for arm in arms(&results.header.spec) {
                html += &row(results, setting, arm);
            }
        }
        html += "</table></details>\n";
    }
    html
}

fn row(results: &Results, setting: &Setting, arm: Arm) -> String {
    let median = |value: &dyn Fn(&Window) -> Option<f64>| {
        let found = median_of(results, setting, arm, value);
        found.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"))
    };
    let latency = |share: f64| median(&|w| Some(w.latency.at(share)? / 1e3));
    let cells = [
        latency(0.5),
        latency(0.95),
        latency(0.99),
        median(&|w| Some(w.good as f64 / w.seconds)),
        median(&|w| Some(w.usage.cpu_seconds / w.seconds)),
        median(&|w| Some(w.usage.run_delay_seconds / w.seconds)),
        median(&|w| Some(w.usage.migrations? as f64 / w.seconds)),
    ];
    format!(
        "<tr><td>{} x {}</td><td>{}</td><td>{}</td></tr>\n",
        setting.workers,
        setting.threads,
        arm.name(),
        cells.join("</td><td>")
    )
}

/// Cells that could not be measured, and disturbed windows; empty if there are none.
pub(super) fn failures(results: &Results) -> String {
    let mut html = String::new();
    if !results.failed.is_empty() {
        html += "<h2>Failures</h2><table><tr><th>server</th><th>windows</th><th>reason</th></tr>";
        for failed in &results.failed {
            let cell = &failed.cell;
            // infallible: a String
            let _ = write!(
                html,
                "<tr><td>{} {} x {}</td><td>{}</td><td>{}</td></tr>",
                escape(&cell.model),
                cell.workers,
                cell.threads,
                failed.windows,
                escape(&failed.what)
            );
        }
        html += "</table>\n";
    }
    html
}
