//! Line charts: p99 over all configurations, and latency by share of requests.

use std::collections::{BTreeMap, BTreeSet};

use albacore_simulator::chart::{Chart, Line, draw};

use crate::comparison::{Setting, compared_time};
use crate::grid::{Arm, arms};
use crate::journal::Results;
use crate::record::{SHARES, Window};
use crate::spec::ComparedTime;
use crate::statistics::median;

/// Most charts of latency: those of the smallest and of the largest servers.
const LATENCY_CHARTS_MAX: usize = 8;

/// A model and a kind of request.
type Kind<'a> = (&'a str, &'a str);

pub(super) fn kinds(results: &Results) -> BTreeSet<Kind<'_>> {
    let windows = results.windows.iter();
    windows
        .map(|w| (&w.id.cell.model[..], &w.id.request[..]))
        .collect()
}

/// Median over trials of the compared p99, by configuration; a panel for each model and kind.
pub(super) fn configurations(results: &Results) -> String {
    let charts: Vec<Chart> = kinds(results)
        .into_iter()
        .map(|(model, request)| {
            let settings: BTreeSet<Setting> = of_kind(results, (model, request))
                .map(Setting::of)
                .collect();
            let settings: Vec<Setting> = settings.into_iter().collect();
            let points = |arm: Arm| {
                let numbered = settings.iter().enumerate();
                let point = |(at, setting): (usize, &Setting)| {
                    let windows = of_kind(results, (model, request));
                    let own = windows.filter(|w| w.id.arm == arm && Setting::of(w) == *setting);
                    let times: Vec<f64> = own.filter_map(|w| compared_time(results, w)).collect();
                    (!times.is_empty()).then(|| (at as f64, median(times) / 1e3))
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

/// Where the number of workers changes.
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
    let mut charts = Vec::new();
    for (model, request) in kinds(results) {
        let mut settings: Vec<Setting> = of_kind(results, (model, request))
            .map(Setting::of)
            .collect();
        settings.sort_by_key(|s| (s.workers * s.threads, s.workers));
        settings.dedup();
        let ends = [settings.first(), settings.last()];
        let mut ends: Vec<&Setting> = ends.into_iter().flatten().collect();
        ends.dedup();
        charts.extend(ends.into_iter().map(|setting| latency(results, setting)));
    }
    charts.truncate(LATENCY_CHARTS_MAX);
    let sub = "latency in ms by share of requests, medians of trials; smallest and largest servers";
    draw("Latency", sub, &charts)
}

fn latency(results: &Results, setting: &Setting) -> Chart {
    let points = |arm: Arm| {
        let own = |w: &&Window| w.id.arm == arm && Setting::of(w) == *setting;
        let windows: Vec<&Window> = results.windows.iter().filter(own).collect();
        let point = |&share: &f64| {
            let times: Vec<f64> = windows.iter().filter_map(|w| w.latency.at(share)).collect();
            (!times.is_empty()).then(|| (tail(share), median(times) / 1e3))
        };
        SHARES
            .iter()
            .filter(|&&share| share < 1.0)
            .filter_map(point)
            .collect()
    };
    let Setting {
        model,
        request,
        workers,
        threads,
    } = setting;
    let ticks = [0.5, 0.9, 0.99].map(|share| (tail(share), format!("{}%", share * 100.0)));
    Chart {
        title: format!("{model}, {request}, {workers} x {threads}"),
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

fn of_kind<'a>(results: &'a Results, kind: Kind<'a>) -> impl Iterator<Item = &'a Window> {
    let windows = results.windows.iter();
    windows.filter(move |w| (&w.id.cell.model[..], &w.id.request[..]) == kind)
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

/// Each setting once, by model, kind, workers and threads.
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
