//! Charts of the report: latency by share of requests, and p99 by window.

use std::time::Duration;

use albacore_load::{percentile, summarize};
use albacore_simulator::chart::{Chart, Line, draw};

use super::verdict::ms;
use super::{Arm, Findings, WINDOW, Window};

/// Shares of requests at which the latency is drawn, dense in the tail.
const SHARES: [f64; 13] = [
    0.01, 0.1, 0.25, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.975, 0.99, 0.995, 0.999,
];

/// Both charts in one picture.
pub(crate) fn svg(findings: &Findings) -> String {
    let sub = format!("open loop of {:.0} requests/s", findings.rate);
    let charts = [by_share(findings), by_window(findings)];
    draw("Kernel and Albacore", &sub, &charts)
}

/// Quantile function of the latency, per arm.
fn by_share(findings: &Findings) -> Chart {
    let points = |arm: Arm| {
        let windows = findings.windows.iter().filter(|window| window.arm == arm);
        let samples = windows.flat_map(|window| &window.samples);
        let answered = samples.filter(|sample| sample.status == 200);
        let mut times: Vec<Duration> = answered.map(|sample| sample.latency).collect();
        times.sort_unstable();
        let point = |&share: &f64| (tail(share), ms(percentile(&times, share)));
        SHARES.iter().map(point).collect()
    };
    let ticks = [0.5, 0.9, 0.99, 0.999];
    let ticks = ticks.map(|share| (tail(share), format!("{}%", share * 100.0)));
    chart("Latency in ms by share of requests", ticks.to_vec(), points)
}

/// p99 of each window, in the order of the run.
fn by_window(findings: &Findings) -> Chart {
    let p99 = |window: &Window| ms(summarize(&window.samples, WINDOW, findings.slo).p99);
    let points = |arm: Arm| {
        let windows = findings.windows.iter().enumerate();
        let of_arm = windows.filter(|(_, window)| window.arm == arm);
        of_arm.map(|(i, window)| (i as f64, p99(window))).collect()
    };
    let ticks = (0..findings.windows.len()).map(|i| (i as f64, (i + 1).to_string()));
    chart("p99 of each window in ms", ticks.collect(), points)
}

fn chart(title: &str, ticks: Vec<(f64, String)>, points: impl Fn(Arm) -> Vec<(f64, f64)>) -> Chart {
    let lines = [Arm::Kernel, Arm::Albacore].map(|arm| Line {
        name: arm.label().to_owned(),
        points: points(arm),
    });
    Chart {
        title: title.to_owned(),
        is_share: false,
        lines: lines.into(),
        ticks,
    }
}

/// -log10(1 - share): 0.9 at 1, 0.99 at 2, 0.999 at 3.
fn tail(share: f64) -> f64 {
    -(1.0 - share).log10()
}
