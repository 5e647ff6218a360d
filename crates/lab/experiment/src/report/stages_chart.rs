//! Stacked bars of the mean time of each stage of a request, by policy.

use std::collections::BTreeSet;

use albacore_simulator::chart::{color, frame};
use albacore_svg::{Svg, escape};

use crate::comparison::Setting;
use crate::grid::{Arm, arms};
use crate::journal::Results;

use super::curves::{median_of, smallest_and_largest};

const LEFT: f64 = 190.0;
const WIDTH: f64 = 968.0;
const TOP: f64 = 92.0;
const ROW: f64 = 22.0;
const RIGHT: f64 = 110.0;

/// Metric of the total, which is omitted if a server also reports its parts.
const TOTAL: &str = "run";

/// A stage that is contained in another one.
const PART: (&str, &str) = ("defer", "queue");

struct Bar {
    arm: Arm,
    /// Mean time per stage, microseconds.
    stages: Vec<f64>,
}

/// Draws the chart; `None` if no server reports stages.
pub(super) fn draw(results: &Results) -> Option<String> {
    let stages = names(results);
    if stages.is_empty() {
        return None;
    }
    let groups: Vec<(Setting, Vec<Bar>)> = smallest_and_largest(results)
        .into_iter()
        .map(|setting| {
            let bars = arms(&results.header.spec).into_iter();
            let bars = bars
                .map(|arm| bar(results, &setting, arm, &stages))
                .collect();
            (setting, bars)
        })
        .collect();
    let bars = groups.iter().flat_map(|(_, bars)| bars);
    let longest = bars.map(|bar| bar.stages.iter().sum::<f64>());
    let scale = (WIDTH - LEFT - RIGHT) / longest.fold(1.0, f64::max);
    let mut svg = Svg::default();
    let mut y = TOP;
    for (setting, bars) in &groups {
        let name = escape(&setting.name());
        svg.put(format_args!(
            "<text class=\"name\" x=\"56\" y=\"{y}\">{name}</text>"
        ));
        for bar in bars {
            y += ROW;
            draw_bar(&mut svg, bar, y, scale);
        }
        y += ROW + 10.0;
    }
    for (index, stage) in stages.iter().enumerate() {
        let x = 56.0 + index as f64 * 112.0;
        svg.put(format_args!(
            "<rect x=\"{x}\" y=\"{}\" width=\"12\" height=\"12\" fill=\"{}\"/>\
             <text x=\"{}\" y=\"{y}\">{}</text>",
            y - 10.0,
            color(index),
            x + 18.0,
            escape(stage)
        ));
    }
    let sub = "mean time of each stage, medians of trials; smallest and largest servers";
    Some(frame((WIDTH, y + 24.0), "Stages of a request", sub, svg))
}

fn draw_bar(svg: &mut Svg, bar: &Bar, y: f64, scale: f64) {
    svg.put(format_args!(
        "<text x=\"76\" y=\"{y}\">{}</text>",
        bar.arm.name()
    ));
    let mut x = LEFT;
    for (index, micros) in bar.stages.iter().enumerate() {
        let width = micros * scale;
        svg.put(format_args!(
            "<rect x=\"{x:.1}\" y=\"{}\" width=\"{width:.1}\" height=\"14\" fill=\"{}\"/>",
            y - 11.0,
            color(index)
        ));
        x += width;
    }
    let ms = bar.stages.iter().sum::<f64>() / 1e3;
    svg.put(format_args!(
        "<text class=\"tick\" x=\"{:.1}\" y=\"{y}\">{ms:.2} ms</text>",
        x + 8.0
    ));
}

/// All stages; known ones are in processing order.
fn names(results: &Results) -> Vec<String> {
    const ORDER: [&str; 12] = [
        "parse",
        "admission",
        "queue",
        "defer",
        "deserialize",
        "convert",
        "dmatrix",
        "predict",
        "compute",
        "run",
        "shap",
        "serialize",
    ];
    let windows = results.windows.iter();
    let all: BTreeSet<&String> = windows.flat_map(|window| window.stages.keys()).collect();
    let is_shown = |name: &&&String| all.len() == 1 || name.as_str() != TOTAL;
    let mut names: Vec<String> = all
        .iter()
        .filter(is_shown)
        .map(|name| (*name).clone())
        .collect();
    let place = |name: &String| ORDER.iter().position(|known| known == name);
    names.sort_by_key(|name| (place(name).unwrap_or(ORDER.len()), name.clone()));
    names
}

fn bar(results: &Results, setting: &Setting, arm: Arm, stages: &[String]) -> Bar {
    let of = |stage: &String| {
        let mean = |name: &str| {
            median_of(results, setting, arm, |w| Some(w.stages.get(name)?.mean)).unwrap_or_default()
        };
        match stage.as_str() == PART.1 {
            true => (mean(stage) - mean(PART.0)).max(0.0),
            false => mean(stage),
        }
    };
    Bar {
        arm,
        stages: stages.iter().map(of).collect(),
    }
}
