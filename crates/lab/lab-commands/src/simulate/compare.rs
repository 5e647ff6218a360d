//! Compares policies over the load.

use albacore_batching::Prefer;
use albacore_simulator::{
    DropPolicy, DropRule, Figures, Policy, Scenario, Target, Wait, goodput, run as simulate,
};
use serde_json::json;

use super::progress::Progress;
use super::{json_of, round};
use albacore_command::{Failure, print, print_json};
use albacore_simulator::chart::{Chart, Line, draw};

/// Loads as shares of the best goodput.
const LOADS: [f64; 14] = [
    0.05, 0.15, 0.3, 0.45, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.15, 1.3, 1.5,
];

/// Maximum number of policies in a chart.
const POLICIES_MAX: usize = 8;

/// A policy with its drop rule, its goodput and its figures at each load.
struct Compared {
    name: String,
    scenario: Scenario,
    goodput: f64,
    points: Vec<(f64, Figures)>,
}

fn scenarios(scenario: &Scenario, names: &[String]) -> Result<Vec<(String, Scenario)>, Failure> {
    if names.len() > POLICIES_MAX {
        let what = format!(
            "--policies: {} policies are more than {POLICIES_MAX}",
            names.len()
        );
        return Err(Failure::Usage(what));
    }
    names
        .iter()
        .map(|name| {
            let named = named(scenario, name.trim()).ok_or_else(|| {
                let what =
                    "write auto, auto=idle_workers, auto=short_waits, deferred, eager or timeout=10%, with /own, \
                     /half, /head or /N";
                Failure::Usage(format!("--policies {name}: {what}"))
            })?;
            Ok((name.trim().to_owned(), named))
        })
        .collect()
}

/// The scenario with a policy such as `timeout=10%/half`.
fn named(scenario: &Scenario, name: &str) -> Option<Scenario> {
    let (policy, drop) = name.split_once('/').unwrap_or((name, ""));
    let drop = match drop {
        "" if policy.starts_with("auto") => DropPolicy::Auto,
        "" => scenario.drop,
        "own" => DropPolicy::window(Target::Own),
        "half" => DropPolicy::window(Target::Half),
        "head" => DropPolicy::Rule(DropRule::Head),
        rows => DropPolicy::window(Target::Rows(rows.parse().ok().filter(|&rows| rows > 0)?)),
    };
    let policy = match policy.split_once('=') {
        None if policy == "deferred" => Policy::Deferred,
        None if policy == "auto" => Policy::Auto(match scenario.policy {
            Policy::Auto(prefer) => prefer,
            _ => Prefer::default(),
        }),
        Some(("auto", prefer)) => Policy::Auto(Prefer::from_name(prefer)?),
        None if policy == "eager" => Policy::Eager,
        Some(("timeout", share)) => {
            let percent: f64 = share.strip_suffix('%')?.parse().ok()?;
            let share = Some(percent / 100.0).filter(|s| (0.0..=1.0).contains(s))?;
            Policy::Timeout(Wait::Share(share))
        }
        _ => return None,
    };
    let scenario = scenario.clone();
    Some(Scenario {
        policy,
        drop,
        ..scenario
    })
}

pub(super) fn run(scenario: &Scenario, names: &[String], is_picture: bool) -> Result<(), Failure> {
    let mut progress = Progress::new();
    let mut all = Vec::new();
    for (name, scenario) in scenarios(scenario, names)? {
        let goodput = goodput(&scenario, &mut |requests| progress.add(requests));
        let points = Vec::new();
        all.push(Compared {
            name,
            scenario,
            goodput,
            points,
        });
    }
    let best = all.iter().map(|c| c.goodput).fold(0.0, f64::max);
    if best == 0.0 {
        let what = "no policy keeps every model's bad rate within 1 % at any rate";
        return Err(Failure::Failed(what.to_owned()));
    }
    for compared in &mut all {
        for load in LOADS {
            let figures = simulate(&compared.scenario.at_rate(load * best));
            progress.add(figures.offered);
            compared.points.push((load * best, figures));
        }
    }
    match is_picture {
        true => print(&chart(&all)),
        false => print_json(&as_json(&all)),
    }
}

fn as_json(all: &[Compared]) -> serde_json::Value {
    let policies = all.iter().map(|compared| {
        let points = compared.points.iter().map(|(rate, figures)| {
            let mut point = json_of(figures);
            point["rate"] = json!(round(*rate, 1));
            point
        });
        let goodput = round(compared.goodput, 1);
        json!({ "policy": compared.name, "goodput": goodput, "points": points.collect::<Vec<_>>() })
    });
    json!({ "policies": policies.collect::<Vec<_>>() })
}

fn chart(all: &[Compared]) -> String {
    let chart = |title: &str, is_share, value: fn(&Figures) -> f64| Chart {
        title: title.to_owned(),
        is_share,
        ticks: Vec::new(),
        lines: all
            .iter()
            .map(|compared| Line {
                name: format!("{}: {:.0}/s", compared.name, compared.goodput),
                points: compared
                    .points
                    .iter()
                    .map(|(rate, f)| (*rate, value(f)))
                    .collect(),
            })
            .collect(),
    };
    draw(
        "Policies over the load",
        "requests offered a second; the legend names the goodput: at most 1 % of every model's bad",
        &[
            chart("good requests a second", false, |f| f.good_per_second),
            chart("bad rate", true, |f| f.bad_rate),
            chart("idle share of workers", true, |f| f.idle_share),
            chart("mean size of batches", false, |f| f.batch_mean),
        ],
    )
}
