//! Runs as text, JSON and SVG.

use std::fmt::Write as _;
use std::time::Duration;

use albacore_load::{Report, WireFormat};
use albacore_simulator::chart::{Chart, Line, draw};
use serde_json::{Value, json};

use crate::probe::{Bench, Probe};
use crate::search::HighestRate;

pub(crate) fn ms(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

fn wire(bench: &Bench) -> &'static str {
    match bench.target.wire {
        WireFormat::Json => "HTTP, JSON",
        WireFormat::Binary => "HTTP, binary",
        WireFormat::Grpc => "gRPC",
    }
}

fn description(bench: &Bench) -> String {
    format!(
        "{} at {} over {}; {} arrivals of {}, {} s each; objective {} ms for {} %",
        bench.spec.models.join(", "),
        bench.target.address,
        wire(bench),
        bench.arrivals.name(),
        bench.spec.mix,
        bench.spec.length.as_secs_f64(),
        ms(bench.spec.objective),
        bench.spec.percentile
    )
}

/// Header of the table.
pub fn heading(bench: &Bench) -> String {
    format!(
        "{}\n{:>10} {:>10} {:>8} {:>8} {:>8} {:>8} {:>7} {:>9} {:>9} {:>9} {:>9} {:>10}\n",
        description(bench),
        "offered/s",
        "good/s",
        "late",
        "shed",
        "503",
        "failed",
        "silent",
        "p50 ms",
        "p99 ms",
        "p99.9 ms",
        "lag ms",
        "cpu s/1000"
    )
}

pub fn row(probe: &Probe) -> String {
    let report = &probe.report;
    let cpu = probe
        .cpu_per_1000_rows
        .map_or("-".to_owned(), |cpu| format!("{cpu:.4}"));
    let mark = if probe.is_generator_late {
        "  the generator was behind"
    } else {
        ""
    };
    format!(
        "{:>10.0} {:>10.1} {:>8} {:>8} {:>8} {:>8} {:>7} {:>9.3} {:>9.3} {:>9.3} {:>9.3} {cpu:>10}{mark}\n",
        probe.rate,
        report.goodput,
        report.late,
        report.shed,
        report.unavailable,
        report.failed,
        report.unanswered,
        ms(report.p50),
        ms(report.p99),
        ms(report.p999),
        ms(report.lag_p99),
    )
}

/// Footer of the table: classes of the last run, and the result of the search.
pub fn ending(bench: &Bench, probes: &[Probe], found: Option<HighestRate>) -> String {
    let mut text = String::new();
    if let (Some(last), 2..) = (probes.last(), bench.classes.len()) {
        let _ = writeln!(text, "at {:.0} a second, by what was asked for:", last.rate);
        for (class, report) in bench.classes.iter().zip(&last.by_class) {
            let _ = writeln!(
                text,
                "{:>20}: {:>9.1} good/s, {:>6.2} % bad, p50 {:.3} ms, p99 {:.3} ms",
                class.name,
                report.goodput,
                report.bad_rate * 100.0,
                ms(report.p50),
                ms(report.p99)
            );
        }
    }
    if let Some(found) = found {
        let _ = writeln!(
            text,
            "within the objective: up to {:.0} requests a second, {:.1} of them in time{}",
            found.rate,
            found.goodput,
            if found.is_generator_limited {
                "; the generator could not send more"
            } else {
                ""
            }
        );
    }
    text
}

fn json_of(report: &Report) -> Value {
    json!({
        "sent": report.sent, "good": report.good, "late": report.late, "shed": report.shed,
        "unavailable": report.unavailable, "failed": report.failed, "unanswered": report.unanswered,
        "goodput": report.goodput, "bad_rate": report.bad_rate, "p50_ms": ms(report.p50), "p99_ms": ms(report.p99),
        "p999_ms": ms(report.p999), "longest_ms": ms(report.longest), "lag_p99_ms": ms(report.lag_p99),
    })
}

/// All results as one JSON object.
pub fn json(bench: &Bench, probes: &[Probe], found: Option<HighestRate>) -> Value {
    let run = |probe: &Probe| {
        let classes = bench.classes.iter().zip(&probe.by_class);
        let by_class = classes.map(|(class, report)| {
            let mut value = json_of(report);
            value["class"] = json!(class.name);
            value
        });
        let mut value = json_of(&probe.report);
        value["rate"] = json!(probe.rate);
        value["is_behind"] = json!(probe.is_generator_late);
        value["cpu_seconds_per_1000_rows"] = json!(probe.cpu_per_1000_rows);
        value["classes"] = by_class.collect();
        value
    };
    json!({
        "model": bench.spec.models.join(","), "address": bench.target.address.to_string(), "wire": wire(bench),
        "arrivals": bench.arrivals.name(), "mix": bench.spec.mix, "seed": bench.spec.seed,
        "length_s": bench.spec.length.as_secs_f64(), "objective_ms": ms(bench.spec.objective),
        "percentile": bench.spec.percentile,
        "runs": probes.iter().map(run).collect::<Value>(),
        "highest": found.map(|found| json!({
            "rate": found.rate,
            "goodput": found.goodput,
            "is_generator_limited": found.is_generator_limited,
        })),
    })
}

/// Goodput, latencies and bad share over the offered rate.
pub fn picture(bench: &Bench, probes: &[Probe]) -> String {
    let is_one = bench.classes.len() == 1;
    let line = |index: Option<usize>, value: &dyn Fn(&Report) -> f64| {
        let points = probes.iter().map(|probe| {
            let report = index.map_or(&probe.report, |class| &probe.by_class[class]);
            (probe.rate, value(report))
        });
        let name = index.map_or("all requests".to_owned(), |class| {
            bench.classes[class].name.clone()
        });
        let points = points.collect();
        Line { name, points }
    };
    let classes = (0..bench.classes.len()).filter(|_| !is_one).map(Some);
    let indices: Vec<Option<usize>> = std::iter::once(None).chain(classes).collect();
    let chart = |title: &str, is_share, value: &dyn Fn(&Report) -> f64| Chart {
        title: title.to_owned(),
        is_share,
        ticks: Vec::new(),
        lines: indices.iter().map(|&index| line(index, value)).collect(),
    };
    let charts = [
        chart("Answered in time, a second", false, &|r| r.goodput),
        chart("Bad share", true, &|r| r.bad_rate),
        chart("Latency p50, ms", false, &|r| ms(r.p50)),
        chart("Latency p99, ms", false, &|r| ms(r.p99)),
    ];
    draw(
        "Load over the offered rate, requests a second",
        &description(bench),
        &charts,
    )
}
