//! Measured candidates by goodput and p99, with the cpus that they used; a line connects the Pareto
//! front.

use albacore_simulator::chart::color;
use albacore_svg::{Svg, escape};

use crate::outcome::{Measured, Outcome};

const SIZE: (f64, f64) = (968.0, 420.0);
const PLOT: (f64, f64, f64, f64) = (90.0, 70.0, 560.0, 280.0);
const LEGEND: f64 = 680.0;
const CSS: &str = "text{font-family:Inter,ui-sans-serif,system-ui,sans-serif;fill:#1f2733;font-size:12px}\
.title{font-size:16px;font-weight:700}.tick{fill:#7a8698;font-size:11px}.panel{fill:#fff;stroke:#d5dbe3}\
.grid{stroke:#e3e9f1;fill:none}.front{fill:none;stroke:#7a8698;stroke-dasharray:4 3}\
@media (prefers-color-scheme:dark){text{fill:#e4e9f0}.tick{fill:#9aa6b6}.panel{fill:#10151c;stroke:#333e4d}\
.grid{stroke:#262f3b}}";

/// Whether no other candidate has more goodput and a lower p99 with no more cpus.
pub(super) fn is_on_front(of: &Measured, all: &[Measured]) -> bool {
    let beats = |other: &Measured| {
        other.goodput >= of.goodput
            && other.p99_ms <= of.p99_ms
            && other.cpus <= of.cpus
            && (other.goodput, other.p99_ms, other.cpus) != (of.goodput, of.p99_ms, of.cpus)
    };
    !all.iter().any(beats)
}

pub(super) fn draw(outcome: &Outcome) -> String {
    let all: Vec<&Measured> = outcome
        .measured
        .iter()
        .filter(|of| of.goodput > 0.0)
        .collect();
    let most =
        |value: fn(&Measured) -> f64| all.iter().map(|of| value(of)).fold(1e-9, f64::max) * 1.1;
    let (rate_max, p99_max) = (most(|of| of.goodput), most(|of| of.p99_ms));
    let (left, top, width, height) = PLOT;
    let x = |rate: f64| left + width * rate / rate_max;
    let y = |ms: f64| top + height * (1.0 - ms / p99_max);
    let mut svg = Svg::default();
    svg.text("title", (left, 30.0), "p99 by goodput");
    svg.text(
        "tick",
        (left, 50.0),
        "p99 in ms; right is more, down is faster",
    );
    svg.rect("panel", (left, top), (width, height), 4.0);
    for part in 1..=4 {
        let share = f64::from(part) / 4.0;
        let (rate, ms) = (rate_max * share, p99_max * share);
        svg.put(format_args!(
            "<path class='grid' d='M{left} {0:.1}H{1:.1}M{2:.1} {top}V{3:.1}'/>",
            y(ms),
            left + width,
            x(rate),
            top + height
        ));
        svg.text("tick", (left - 48.0, y(ms) + 4.0), &format!("{ms:.2}"));
        svg.text(
            "tick",
            (x(rate) - 20.0, top + height + 18.0),
            &format!("{rate:.0}"),
        );
    }
    svg.text(
        "tick",
        (left + width / 2.0 - 40.0, top + height + 40.0),
        "requests/s in time",
    );
    let mut front: Vec<&&Measured> = all
        .iter()
        .filter(|of| is_on_front(of, &outcome.measured))
        .collect();
    front.sort_by(|a, b| a.goodput.total_cmp(&b.goodput));
    let points: Vec<String> = front
        .iter()
        .map(|of| format!("{:.1},{:.1}", x(of.goodput), y(of.p99_ms)))
        .collect();
    svg.put(format_args!(
        "<polyline class='front' points='{}'/>",
        points.join(" ")
    ));
    for (index, of) in all.iter().enumerate() {
        let radius = 4.0 + 2.0 * of.cpus.sqrt();
        let line = 88.0 + 20.0 * index as f64;
        svg.put(format_args!(
            "<circle cx='{:.1}' cy='{:.1}' r='{radius:.1}' fill='{color}'/><circle cx='{LEGEND}' cy='{:.1}' r='5' fill='{color}'/>",
            x(of.goodput),
            y(of.p99_ms),
            line - 4.0,
            color = color(index)
        ));
        let name = format!("{}: {:.1} cpus", of.configuration.name(), of.cpus);
        svg.text("", (LEGEND + 12.0, line), &escape(&name));
    }
    svg.finish(SIZE, "p99 by goodput of the measured candidates", CSS)
}
