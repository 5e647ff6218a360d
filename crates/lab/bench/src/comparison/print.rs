//! Comparisons as text and JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{Comparison, Figures};
use crate::print::ms;

/// Header of the table.
#[must_use]
pub fn heading() -> String {
    format!(
        "{:>10} {:<22} {:>9} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>9} {:>9} {:>9} {:>9}\n",
        "offered/s",
        "of",
        "requests",
        "bad % l.",
        "bad % s.",
        "rows l.",
        "rows s.",
        "idle% l.",
        "idle% s.",
        "p50 ms l.",
        "p50 ms s.",
        "p99 ms l.",
        "p99 ms s."
    )
}

/// Table rows of a run, live (l.) and simulated (s.): all requests, then each class.
#[must_use]
pub fn table(comparison: &Comparison) -> String {
    let mut text = String::new();
    let mut row = |name: &str, [live, simulated]: &[Figures; 2], idle: [String; 2]| {
        let _ = writeln!(
            text,
            "{:>10.0} {name:<22} {:>9} {:>8.3} {:>8.3} {:>8.2} {:>8.2} {:>8} {:>8} {:>9.3} \
             {:>9.3} {:>9.3} {:>9.3}",
            comparison.probe.rate,
            live.requests,
            live.bad_rate * 100.0,
            simulated.bad_rate * 100.0,
            live.batch_rows,
            simulated.batch_rows,
            idle[0],
            idle[1],
            ms(live.p50),
            ms(simulated.p50),
            ms(live.p99),
            ms(simulated.p99),
        );
    };
    let idle = comparison
        .idle_share
        .map(|idle| format!("{:.1}", idle * 100.0));
    row("all", &comparison.all, idle);
    for (name, figures) in &comparison.classes {
        row(name, figures, [String::new(), String::new()]);
    }
    if comparison.probe.is_generator_late {
        text.push_str("           the generator was behind\n");
    }
    text
}

fn json_of(figures: &Figures) -> Value {
    json!({
        "bad_rate": figures.bad_rate,
        "batch_rows": figures.batch_rows,
        "p50_ms": ms(figures.p50),
        "p99_ms": ms(figures.p99),
    })
}

fn pair([live, simulated]: &[Figures; 2]) -> Value {
    json!({
        "requests": live.requests,
        "live": json_of(live),
        "simulated": json_of(simulated),
    })
}

#[must_use]
pub fn json(all: &[Comparison]) -> Value {
    let runs = all.iter().map(|comparison| {
        let [live, simulated] = comparison.idle_share;
        let mut run = pair(&comparison.all);
        run["live"]["idle_share"] = json!(live);
        run["simulated"]["idle_share"] = json!(simulated);
        run["rate"] = json!(comparison.probe.rate);
        run["workers"] = json!(comparison.workers);
        run["is_behind"] = json!(comparison.probe.is_generator_late);
        let classes = comparison.classes.iter().map(|(name, figures)| {
            let mut class = pair(figures);
            class["class"] = json!(name);
            class
        });
        run["classes"] = classes.collect();
        run
    });
    json!({ "runs": runs.collect::<Vec<_>>() })
}
