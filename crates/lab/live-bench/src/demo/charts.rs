//! SVG drawings of the report: the latency curves and the windows over time.

use std::fmt::Write as _;
use std::time::Duration;

use albacore_load::{percentile, summarize};

use super::verdict::ms;
use super::{Arm, Findings, WINDOW};

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 280.0;
const LEFT: f64 = 56.0;
const BOTTOM: f64 = 36.0;

/// Shares of requests, spaced so that the tail gets the room.
const SHARES: [f64; 13] = [
    0.01, 0.1, 0.25, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.975, 0.99, 0.995, 0.999,
];

/// Latency over the share of requests that had at most that latency; the tail is stretched.
pub(crate) fn latency(findings: &Findings) -> String {
    let curve = |arm: Arm| -> Vec<(f64, f64)> {
        let mut times: Vec<Duration> = findings
            .windows
            .iter()
            .filter(|window| window.arm == arm)
            .flat_map(|window| {
                window
                    .samples
                    .iter()
                    .filter(|s| s.status == 200)
                    .map(|s| s.latency)
            })
            .collect();
        times.sort_unstable();
        SHARES
            .iter()
            .map(|share| (tail(*share), ms(percentile(&times, *share))))
            .collect()
    };
    let ticks: Vec<(f64, String)> = [0.5, 0.9, 0.99, 0.999]
        .iter()
        .map(|share| (tail(*share), format!("{}%", share * 100.0)))
        .collect();
    chart(
        "latency, ms",
        &ticks,
        &curve(Arm::Kernel),
        &curve(Arm::Albacore),
    )
}

/// p99 of each window, in the order in which they were run.
pub(crate) fn windows(findings: &Findings) -> String {
    let points = |arm: Arm| -> Vec<(f64, f64)> {
        let all = findings
            .windows
            .iter()
            .enumerate()
            .filter(|(_, window)| window.arm == arm);
        all.map(|(i, w)| {
            (
                i as f64,
                ms(summarize(&w.samples, WINDOW, findings.slo).p99),
            )
        })
        .collect()
    };
    let ticks: Vec<(f64, String)> = (0..findings.windows.len())
        .map(|i| (i as f64, (i + 1).to_string()))
        .collect();
    chart(
        "p99 of a window, ms",
        &ticks,
        &points(Arm::Kernel),
        &points(Arm::Albacore),
    )
}

/// -log10(1 - share): 0.9 at 1, 0.99 at 2, 0.999 at 3.
fn tail(share: f64) -> f64 {
    -(1.0 - share).log10()
}

fn chart(
    title: &str,
    ticks: &[(f64, String)],
    kernel: &[(f64, f64)],
    albacore: &[(f64, f64)],
) -> String {
    let all = || kernel.iter().chain(albacore);
    let top = all().map(|p| p.1).fold(1e-9, f64::max) * 1.1;
    let (first, last) = all().fold((f64::MAX, f64::MIN), |(a, b), p| (a.min(p.0), b.max(p.0)));
    let span = (last - first).max(1e-9);
    let x = |value: f64| LEFT + (value - first) / span * (WIDTH - LEFT - 20.0);
    let y = |value: f64| 20.0 + (1.0 - value / top) * (HEIGHT - BOTTOM - 20.0);
    let mut svg = format!(
        "<svg viewBox='0 0 {WIDTH} {HEIGHT}' role='img' aria-label='{title}'>\
         <text x='4' y='12' class='axis'>{title}</text>"
    );
    // Writing to a String cannot fail.
    for step in 0..=4 {
        let value = top / 1.1 * f64::from(step) / 4.0;
        let (py, right) = (y(value), WIDTH - 20.0);
        let _ = write!(
            svg,
            "<line x1='{LEFT}' x2='{right}' y1='{py:.1}' y2='{py:.1}' class='grid'/>\
             <text x='{}' y='{:.1}' text-anchor='end' class='axis'>{value:.1}</text>",
            LEFT - 6.0,
            py + 4.0
        );
    }
    for (at, label) in ticks {
        let _ = write!(
            svg,
            "<text x='{:.1}' y='{}' text-anchor='middle' class='axis'>{label}</text>",
            x(*at),
            HEIGHT - 12.0
        );
    }
    for (class, points) in [("kernel", kernel), ("albacore", albacore)] {
        let path: Vec<String> = points
            .iter()
            .map(|p| format!("{:.1},{:.1}", x(p.0), y(p.1)))
            .collect();
        let _ = write!(
            svg,
            "<polyline points='{}' class='line {class}'/>",
            path.join(" ")
        );
        for (px, py) in points {
            let _ = write!(
                svg,
                "<circle cx='{:.1}' cy='{:.1}' r='3.5' class='dot {class}'><title>{py:.2} ms\
                 </title></circle>",
                x(*px),
                y(*py)
            );
        }
    }
    svg.push_str("</svg>");
    svg
}
