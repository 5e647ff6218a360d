//! Line charts: p99 over all configurations, and latency by share of requests.

use std::collections::{BTreeMap, BTreeSet};

use albacore_simulator::chart::{Chart, Line, draw};

use crate::comparison::{Setting, compared_time};
use crate::grid::{Arm, arms};
use crate::journal::Results;
use crate::record::{SHARES, Window};
use crate::spec::ComparedTime;
use albacore_statistics::median;

/// A model and a kind of request.
type Kind<'a> = (&'a str, &'a str);

/// Median over trials of the compared p99, by configuration; one panel per model and kind.
pub(super) fn configurations(results: &Results) -> String {
    let charts: Vec<Chart> = settings(results)
        .into_iter()
        .map(|((model, request), settings)| {
            let settings: Vec<Setting> = settings.into_iter().collect();
            let points = |arm: Arm| {
                let numbered = settings.iter().enumerate();
                let point = |(at, setting): (usize, &Setting)| {
                    let micros = median_of(results, setting, arm, |w| compared_time(results, w))?;
                    Some((at as f64, micros / 1e3))
                };
                numbered.filter_map(point).collect()
            };
            Chart {
                title: format!("{model}, {request}: p99 in ms"),
                is_share: false,
                lines: lines(results, points),
                ticks: ticks(&settings),
            }
        })
        .collect();
    let time = match results.header.spec.time {
        ComparedTime::Latency => "latency of clients",
        ComparedTime::Server => "time of the server's handler",
    };
    let sub = format!("{time}, medians of trials; workers, and from left to right threads of each");
    draw("p99 over all configurations", &sub, &charts)
}

/// Positions at which the number of workers changes.
fn ticks(settings: &[Setting]) -> Vec<(f64, String)> {
    let numbered = settings.iter().enumerate();
    let changes =
        numbered.filter(|&(at, setting)| at == 0 || settings[at - 1].workers != setting.workers);
    changes
        .map(|(at, setting)| (at as f64, format!("{} W", setting.workers)))
        .collect()
}

/// Latency by share of requests in the smallest and the largest configuration of each kind.
pub(super) fn latencies(results: &Results) -> String {
    let ends = smallest_and_largest(results);
    let charts: Vec<Chart> = ends.iter().map(|ends| latency(results, ends)).collect();
    let sub = "latency in ms by share of requests, medians of trials; smallest and largest servers";
    draw("Latency", sub, &charts)
}

fn latency(results: &Results, setting: &Setting) -> Chart {
    let points = |arm: Arm| {
        let shares = SHARES.into_iter().filter(|&share| share < 1.0);
        let point = |share: f64| {
            let micros = median_of(results, setting, arm, |w| w.latency.at(share))?;
            Some((tail(share), micros / 1e3))
        };
        shares.filter_map(point).collect()
    };
    let ticks = [0.5, 0.9, 0.99].map(|share| (tail(share), format!("{}%", share * 100.0)));
    Chart {
        title: setting.name(),
        is_share: false,
        lines: lines(results, points),
        ticks: ticks.to_vec(),
    }
}

/// -log10(1 - share): 0.9 at 1, 0.99 at 2.
fn tail(share: f64) -> f64 {
    -(1.0 - share).log10()
}

fn lines(results: &Results, points: impl Fn(Arm) -> Vec<(f64, f64)>) -> Vec<Line> {
    let line = |arm: Arm| Line {
        name: arm.name().to_owned(),
        points: points(arm),
    };
    arms(&results.header.spec).into_iter().map(line).collect()
}

/// Median over the windows of a setting and arm.
pub(super) fn median_of(
    results: &Results,
    setting: &Setting,
    arm: Arm,
    value: impl Fn(&Window) -> Option<f64>,
) -> Option<f64> {
    let own = |w: &&Window| w.id.arm == arm && Setting::of(w) == *setting;
    let windows = results.windows.iter().filter(own);
    let values: Vec<f64> = windows.filter_map(value).collect();
    (!values.is_empty()).then(|| median(values))
}

/// Distinct settings by model and kind, ordered by workers and threads.
pub(super) fn settings(results: &Results) -> BTreeMap<Kind<'_>, BTreeSet<Setting>> {
    let mut settings: BTreeMap<Kind<'_>, BTreeSet<Setting>> = BTreeMap::new();
    for window in &results.windows {
        let kind = (&window.id.cell.model[..], &window.id.request[..]);
        settings
            .entry(kind)
            .or_default()
            .insert(Setting::of(window));
    }
    settings
}

/// The smallest and the largest server of each model and kind.
pub(super) fn smallest_and_largest(results: &Results) -> Vec<Setting> {
    let ends = settings(results).into_values().flat_map(|settings| {
        let size = |setting: &&Setting| u32::from(setting.workers) * u32::from(setting.threads);
        let small = settings.iter().min_by_key(size).cloned();
        let large = settings.iter().max_by_key(size).cloned();
        let mut ends: Vec<Setting> = [small, large].into_iter().flatten().collect();
        ends.dedup();
        ends
    });
    ends.collect()
}
