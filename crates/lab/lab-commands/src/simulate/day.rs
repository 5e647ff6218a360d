//! Simulates a day of changing load under two autoscalers.

use albacore_batching::Nanos;
use albacore_simulator::{Day, Interval, Scenario, days};
use serde_json::json;

use super::progress::Progress;
use super::round;
use albacore_command::{Failure, print, print_json};
use albacore_simulator::chart::{Chart, Line, draw};

pub(super) fn run(scenario: &Scenario, seconds: u64, is_picture: bool) -> Result<(), Failure> {
    let mut progress = Progress::new();
    let length = Nanos(seconds * 1_000_000_000);
    let both = days(scenario, length, &mut |requests| progress.add(requests));
    drop(progress);
    let Some(both) = both else {
        let what = "--day needs arrivals.process poisson, gamma or uniform";
        return Err(Failure::Usage(what.to_owned()));
    };
    match is_picture {
        true => print(&chart(&both)),
        false => {
            let days: Vec<_> = both.iter().map(as_json).collect();
            print_json(&json!({ "days": days }))
        }
    }
}

fn as_json(day: &Day) -> serde_json::Value {
    let intervals = day.intervals.iter().map(|interval| {
        json!({
            "at_s": interval.at.0 as f64 / 1e9,
            "rate": round(interval.rate, 1),
            "workers": interval.workers,
            "requests": interval.requests,
            "bad": interval.bad,
            "idle_share": round(interval.idle_share, 4),
        })
    });
    json!({
        "scaler": day.scaler,
        "bad_rate": round(day.bad_rate(), 6),
        "worker_seconds": day.worker_seconds(),
        "lag_seconds": day.lag_seconds(),
        "longest_lag_seconds": day.longest_lag_seconds(),
        "intervals": intervals.collect::<Vec<_>>(),
    })
}

fn name(day: &Day) -> String {
    let by = match day.scaler {
        "load" => "by bad rate and idle share",
        _ => "by busy time (target 70 %)",
    };
    format!(
        "{by}: {:.1} worker hours, {:.2} % bad, {:.0} s above 1 % ({:.0} s at once)",
        day.worker_seconds() / 3600.0,
        day.bad_rate() * 100.0,
        day.lag_seconds(),
        day.longest_lag_seconds()
    )
}

fn chart(both: &[Day]) -> String {
    let chart = |title: &str, is_share, value: fn(&Interval) -> f64| Chart {
        title: title.to_owned(),
        is_share,
        ticks: Vec::new(),
        lines: both
            .iter()
            .map(|day| Line {
                name: name(day),
                points: day
                    .intervals
                    .iter()
                    .map(|interval| (interval.at.0 as f64 / 3600e9, value(interval)))
                    .collect(),
            })
            .collect(),
    };
    draw(
        "A day of changing load",
        "over the hours of the day",
        &[
            chart("requests a second", false, |i| i.rate),
            chart("workers", false, |i| i.workers as f64),
            chart("bad rate", true, |i| {
                i.bad as f64 / i.requests.max(1) as f64
            }),
            chart("idle share", true, |i| i.idle_share),
        ],
    )
}
