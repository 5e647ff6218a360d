//! Speed-ups with their confidence intervals: one row per policy in each group.

use std::collections::BTreeMap;

use albacore_simulator::chart::{color, frame};
use albacore_svg::{Svg, escape};

use crate::comparison::{Comparison, Subscription, compare, pooled};
use crate::grid::{Arm, arms};
use crate::journal::Results;
use albacore_statistics::Interval;

use super::{format_ratio, reference};

const LEFT: f64 = 330.0;
const WIDTH: f64 = 968.0;
const TOP: f64 = 92.0;
const ROW: f64 = 20.0;
/// Candidates of grid lines, drawn if within the range and if there is room.
const TICKS: [f64; 13] = [
    1.0, 0.5, 2.0, 0.2, 5.0, 0.1, 10.0, 0.05, 20.0, 0.02, 50.0, 0.8, 1.25,
];
/// Minimum distance of the labels of two grid lines.
const LABEL: f64 = 36.0;
/// Width of the figures at the right.
const FIGURES: f64 = 190.0;

/// A group of settings and the policies in it.
type Group = (String, Vec<(Arm, Interval)>);

/// Groups by model, kind of request and subscription.
fn groups(results: &Results) -> Vec<Group> {
    let (reference, others) = reference(results);
    let cpus = results.header.machine.cpus;
    let mut groups: BTreeMap<(String, String, Subscription), Vec<(Arm, Interval)>> =
        BTreeMap::new();
    for arm in others {
        let comparisons = compare(results, arm, reference);
        let mut members: BTreeMap<_, Vec<&Comparison>> = BTreeMap::new();
        for one in &comparisons {
            let (model, request) = (one.setting.model.clone(), one.setting.request.clone());
            let key = (model, request, Subscription::of(&one.setting, cpus));
            members.entry(key).or_default().push(one);
        }
        for (key, members) in members {
            if let Some(interval) = pooled(members) {
                groups.entry(key).or_default().push((arm, interval));
            }
        }
    }
    groups
        .into_iter()
        .map(|((model, request, subscription), rows)| {
            (format!("{model}, {request}, {}", subscription.name()), rows)
        })
        .collect()
}

pub(super) fn draw(results: &Results) -> String {
    let groups = groups(results);
    let (reference, _) = reference(results);
    let all = groups.iter().flat_map(|(_, rows)| rows);
    // wide intervals are truncated
    let farthest = all.map(|(_, interval)| interval.ratio.ln().abs());
    let farthest = 1.15 * farthest.fold(0.05, f64::max);
    let scale = (WIDTH - LEFT - FIGURES) / 2.0 / farthest;
    let middle = LEFT + (WIDTH - LEFT - FIGURES) / 2.0;
    let x = |ratio: f64| middle + ratio.ln().clamp(-farthest, farthest) * scale;
    let mut svg = Svg::default();
    let mut y = TOP;
    let colors = arms(&results.header.spec);
    for (name, rows) in &groups {
        svg.put(format_args!(
            "<text class=\"name\" x=\"56\" y=\"{y}\">{}</text>",
            escape(name)
        ));
        for (arm, interval) in rows {
            y += ROW;
            let index = colors.iter().position(|known| known == arm);
            let color = color(index.unwrap_or_default());
            let (low, high, at) = (x(interval.low), x(interval.high), x(interval.ratio));
            let line = y - 4.0;
            svg.put(format_args!(
                "<text x=\"76\" y=\"{y}\">{}</text>\
                 <path d=\"M{low:.1} {line}H{high:.1}\" stroke=\"{color}\" stroke-width=\"2\"/>\
                 <circle cx=\"{at:.1}\" cy=\"{line}\" r=\"4\" fill=\"{color}\"/>\
                 <text class=\"tick\" x=\"{}\" y=\"{y}\">{}</text>",
                arm.name(),
                WIDTH - FIGURES + 12.0,
                format_ratio(interval)
            ));
        }
        y += ROW + 8.0;
    }
    let mut lines: Vec<f64> = Vec::new();
    for ratio in TICKS {
        let at = x(ratio);
        let has_room = lines.iter().all(|line| (line - at).abs() >= LABEL);
        if ratio.ln().abs() > farthest || !has_room {
            continue;
        }
        lines.push(at);
        svg.put(format_args!(
            "<path class=\"grid\" d=\"M{at:.1} {}V{y:.1}\"/>\
             <text class=\"tick\" text-anchor=\"middle\" x=\"{at:.1}\" y=\"{}\">{ratio}x</text>",
            TOP - 10.0,
            TOP - 16.0
        ));
    }
    let sub = "ratio of p99, mean of the settings of a group, with 99 % confidence intervals; \
               to the right: faster";
    let title = format!("Speed-up compared with {}", reference.name());
    frame((WIDTH, y + 8.0), &title, sub, svg)
}
