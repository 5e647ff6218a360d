//! Figures of the article's settings: goodput of policies and drop rules on every set, and the
//! speed of the simulator. `cargo bench -p albacore-simulator -- resnet a100 speed`.
//!
//! Other modes: `judge=auto` compares `auto` with the best of all the others on each set, with
//! `all` on every set that the acceptance test names; `judge=short` does the same for `auto` with a
//! preference for short waits; `closed` compares `auto` with eager for closed-loop clients; `day`
//! simulates days with autoscalers. `requests=`, `seeds=` and `from=` (the first seed) set the
//! extent of a run; `at=RATE,RATE` prints the figures at these rates instead of searching.
#![allow(clippy::unwrap_used)] // a benchmark that cannot run fails by panicking

use std::time::Instant;

use albacore_batching::deadlines::{Cost, Delays};
use albacore_batching::{Nanos, Prefer};
use albacore_simulator::{
    ArrivalProcess, Day, DropPolicy, DropRule, Model, Policy, Popularity, Scenario, Source, Target,
    Wait, days, goodput, is_good_at, run,
};

const MS: f64 = 1e6;

fn model(name: &str, alpha: f64, beta: f64, objective: f64) -> Model {
    Model {
        name: name.to_owned(),
        cost: Cost::new(alpha * MS, beta * MS),
        objective: Nanos((objective * MS).round() as u64),
    }
}

fn zoo(file: &str) -> Vec<Model> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../tests/data/symphony/");
    let text = std::fs::read_to_string(format!("{folder}{file}.csv")).unwrap();
    let line = |line: &str| {
        let fields: Vec<_> = line.split(',').collect();
        let number = |i: usize| fields[i].parse().unwrap();
        model(fields[0], number(1), number(2), number(3))
    };
    text.lines().skip(1).map(line).collect()
}

fn scenario(workers: usize, models: Vec<Model>, requests: u64) -> Scenario {
    let source = Source::Drawn {
        process: ArrivalProcess::Poisson,
        popularity: Popularity::Equal,
        rate: 1.0,
        requests,
    };
    Scenario {
        workers,
        models,
        source,
        seed: 1,
        policy: Policy::Deferred,
        drop: OWN,
        delays: Delays::default(),
        early: 0.0,
        eager_from: None,
    }
}

fn with_source(mut scenario: Scenario, requested: ArrivalProcess, popular: Popularity) -> Scenario {
    if let Source::Drawn {
        process,
        popularity,
        ..
    } = &mut scenario.source
    {
        (*process, *popularity) = (requested, popular);
    }
    scenario
}

const OWN: DropPolicy = DropPolicy::Rule(DropRule::Window {
    target: Target::Own,
});
const HALF: DropPolicy = DropPolicy::Rule(DropRule::Window {
    target: Target::Half,
});
const HEAD: DropPolicy = DropPolicy::Rule(DropRule::Head);

fn set(name: &str, requests: u64) -> Option<Scenario> {
    let copies = |n: usize, alpha, beta, objective| -> Vec<Model> {
        (0..n)
            .map(|i| model(&format!("m{i}"), alpha, beta, objective))
            .collect()
    };
    let resnet = |n, objective| copies(n, 1.053, 5.072, objective);
    let zipf = Popularity::Zipf { exponent: 0.9 };
    let (kind, rest) = name.split_once('-').unwrap_or((name, ""));
    let number = || rest.parse::<f64>().unwrap();
    Some(match kind {
        "resnet" => scenario(8, resnet(1, 25.0), requests),
        "inception" => scenario(8, copies(1, 5.090, 18.368, 70.0), requests),
        "fig6a" => {
            let beta = number();
            scenario(32, copies(10, 1.0, beta, 2.0 * (8.0 + beta)), requests)
        }
        "flat" => scenario(24, resnet(10, 100.0), requests),
        "a100" | "1080ti" => {
            let zoo = scenario(64, zoo(kind), requests);
            match rest {
                "zipf" => with_source(zoo, ArrivalProcess::Poisson, zipf),
                _ => zoo,
            }
        }
        "gamma" => {
            let bursts = ArrivalProcess::Gamma { shape: 0.05 };
            let plain = scenario(32, resnet(20, number()), requests);
            with_source(plain, bursts, Popularity::Equal)
        }
        "gammazipf" => {
            let bursts = ArrivalProcess::Gamma { shape: 0.05 };
            with_source(scenario(32, resnet(20, number()), requests), bursts, zipf)
        }
        _ => return None,
    })
}

/// Sets on which `auto` must not be outperformed.
const SETS: [&str; 20] = [
    "resnet",
    "inception",
    "fig6a-1",
    "fig6a-2",
    "fig6a-3",
    "fig6a-5",
    "fig6a-7",
    "fig6a-9",
    "fig6a-11",
    "fig6a-13",
    "fig6a-15",
    "a100",
    "a100-zipf",
    "1080ti",
    "1080ti-zipf",
    "gamma-15",
    "gamma-25",
    "gamma-50",
    "gamma-100",
    "flat",
];

/// Loads at which idle shares are compared, as shares of the best goodput.
const LOADS: [f64; 5] = [0.5, 0.6, 0.7, 0.8, 0.9];

/// The compared policies, selected by name.
fn policies(names: &str) -> Vec<(&'static str, Policy, DropPolicy, f64)> {
    let all = [
        ("deferred own", Policy::Deferred, OWN, 0.0),
        ("deferred own 5%", Policy::Deferred, OWN, 0.05),
        ("deferred half 5%", Policy::Deferred, HALF, 0.05),
        ("deferred half 10%", Policy::Deferred, HALF, 0.10),
        (
            "auto",
            Policy::Auto(Prefer::IdleWorkers),
            DropPolicy::Auto,
            0.0,
        ),
        (
            "auto short waits",
            Policy::Auto(Prefer::ShortWaits),
            DropPolicy::Auto,
            0.0,
        ),
        ("eager own", Policy::Eager, OWN, 0.0),
        ("eager half", Policy::Eager, HALF, 0.0),
        ("deferred half", Policy::Deferred, HALF, 0.0),
        ("deferred head", Policy::Deferred, HEAD, 0.0),
        ("eager head", Policy::Eager, HEAD, 0.0),
        (
            "timeout 10% own",
            Policy::Timeout(Wait::Share(0.1)),
            OWN,
            0.0,
        ),
        (
            "timeout 10% half",
            Policy::Timeout(Wait::Share(0.1)),
            HALF,
            0.0,
        ),
    ];
    let is_asked =
        |name: &str| names.is_empty() || names.split(',').any(|requested| requested == name);
    all.into_iter()
        .filter(|(name, ..)| is_asked(name))
        .collect()
}

fn speed() {
    for (name, rate) in [("resnet", 5000.0), ("inception", 900.0), ("a100", 16_000.0)] {
        let scenario = set(name, 3_000_000).unwrap().at_rate(rate);
        let begin = Instant::now();
        let figures = run(&scenario);
        let seconds = begin.elapsed().as_secs_f64();
        println!("{name}: {:.2} M requests/s of simulation", 3.3 / seconds);
        println!("  {figures:?}");
    }
}

/// Days of one, six and 24 hours on Table 2's first model, with each autoscaler.
fn day(seeds: &std::ops::Range<u64>) {
    println!("| day | by | worker hours | bad % | s above 1 % | at once |");
    println!("| --- | --- | --- | --- | --- | --- |");
    for (hours, workers, rate) in [
        (1, 12, 6000.0),
        (6, 12, 6000.0),
        (24, 12, 6000.0),
        (6, 40, 20e3),
    ] {
        let length = Nanos(hours * 3_600_000_000_000);
        let of_seed = |seed| {
            let scenario = Scenario {
                workers,
                seed,
                ..auto_of(&set("resnet", 1).unwrap(), Prefer::IdleWorkers).at_rate(rate)
            };
            days(&scenario, length, &mut |_| ()).unwrap()
        };
        let all: Vec<_> = seeds.clone().map(of_seed).collect();
        for scaler in 0..2 {
            let each = |of: fn(&Day) -> f64| {
                let values: Vec<_> = all.iter().map(|both| of(&both[scaler])).collect();
                let texts: Vec<_> = values.iter().map(|value| format!("{value:.0}")).collect();
                (mean(values.into_iter()), texts.join(" "))
            };
            let (late, lates) = each(Day::lag_seconds);
            println!(
                "| {hours} h, {workers} workers, {rate:.0}/s | {} | {:.1} | {:.3} | {late:.0} ({lates}) | {:.0} |",
                all[0][scaler].scaler,
                each(Day::worker_seconds).0 / 3600.0,
                each(Day::bad_rate).0 * 100.0,
                each(Day::longest_lag_seconds).0,
            );
        }
    }
}

/// The highest goodput of all policies except `auto`, and the policy's name. Policies that are not
/// good at the best rate so far are not searched.
fn best_of_the_others(base: &Scenario) -> (f64, &'static str) {
    let mut best = (0.0, "none");
    let others = policies("")
        .into_iter()
        .filter(|p| !matches!(p.1, Policy::Auto(_)));
    for (label, policy, drop, early) in others {
        let scenario = Scenario {
            policy,
            drop,
            early,
            ..base.clone()
        };
        let has_chance = best.0 == 0.0 || is_good_at(&scenario, best.0 * 1.001, &mut |_| ());
        if has_chance {
            let found = goodput(&scenario, &mut |_| ());
            if found > best.0 {
                best = (found, label);
            }
        }
    }
    best
}

fn auto_of(base: &Scenario, prefers: Prefer) -> Scenario {
    Scenario {
        policy: Policy::Auto(prefers),
        drop: DropPolicy::Auto,
        ..base.clone()
    }
}

fn mean(of: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = of.len() as f64;
    of.sum::<f64>() / count
}

/// The figures at these rates.
fn print_at(
    name: &str,
    base: &Scenario,
    rates: Vec<f64>,
    seeds: std::ops::Range<u64>,
    policies: &[(&'static str, Policy, DropPolicy, f64)],
) {
    for rate in rates {
        for (&(label, policy, drop, early), seed) in policies
            .iter()
            .flat_map(|p| seeds.clone().map(move |seed| (p, seed)))
        {
            let f = run(&Scenario {
                policy,
                drop,
                early,
                seed,
                ..base.at_rate(rate)
            });
            println!(
                "{name:12} {rate:8.0} {label:18} bad {:.4} worst {:.4} idle {:.3} mean {:.1}",
                f.bad_rate, f.worst_model_bad_rate, f.idle_share, f.batch_mean
            );
        }
    }
}

/// Compares `auto` with the best of the others: goodput, and at shares of that goodput either the
/// difference of the idle share to deferred, in percentage points, or the ratio of the median
/// queueing time to that of eager; means over the seeds.
fn judge(name: &str, base: &Scenario, seeds: std::ops::Range<u64>, prefers: Prefer) {
    let of_seed = |seed| Scenario {
        seed,
        ..base.clone()
    };
    let (mut found, mut less) = (Vec::new(), [0.0; LOADS.len()]);
    let mut label = "";
    for seed in seeds {
        let base = of_seed(seed);
        let (best, whose) = best_of_the_others(&base);
        label = whose;
        let auto = auto_of(&base, prefers);
        found.push((best, goodput(&auto, &mut |_| ())));
        let eager = Scenario {
            policy: Policy::Eager,
            drop: HALF,
            ..base.clone()
        };
        for (sum, load) in less.iter_mut().zip(LOADS) {
            let at = |scenario: &Scenario| run(&scenario.at_rate(best * load));
            *sum += match prefers {
                Prefer::IdleWorkers => (at(&base).idle_share - at(&auto).idle_share) * 100.0,
                Prefer::ShortWaits => {
                    let wait = |of| at(of).queue_p50.0.max(1000) as f64;
                    wait(&auto) / wait(&eager)
                }
            };
        }
    }
    let ratios = || found.iter().map(|(best, auto)| auto / best * 100.0);
    let least = ratios().fold(f64::MAX, f64::min);
    let less = less.map(|sum| format!("{:.2}", sum / found.len() as f64));
    println!(
        "| {name} | {:.0} ({label}) | {:.0} | {:.1} % ({least:.1}) | {} |",
        mean(found.iter().map(|f| f.0)),
        mean(found.iter().map(|f| f.1)),
        mean(found.iter().map(|(best, auto)| auto / best * 100.0)),
        less.join(", ")
    );
}

/// Closed-loop clients: queueing time of their requests, and throughput.
fn closed(requests: u64) {
    println!("| model, clients, thought | policy | p50 ms | p99 ms | answered a second |");
    println!("| --- | --- | --- | --- | --- |");
    let models = [
        ("resnet", 1.053, 5.072, 25.0, 8),
        ("small", 0.01, 0.4, 25.0, 2),
        ("two of them", 0.01, 0.4, 25.0, 2),
    ];
    for (name, alpha, beta, slo, workers) in models {
        for (clients, think) in [
            (1, 0.2),
            (2, 0.2),
            (8, 0.2),
            (8, 20.0),
            (32, 0.2),
            (64, 0.2),
            (200, 0.2),
        ] {
            let one = |n: usize| model(&format!("{name}{n}"), alpha, beta, slo);
            let models = (0..if name == "two of them" { 2 } else { 1 })
                .map(one)
                .collect();
            let mut base = scenario(workers, models, requests);
            base.source = Source::Closed {
                clients,
                think: Nanos((think * MS) as u64),
                popularity: Popularity::Equal,
                requests,
            };
            let eager = Scenario {
                policy: Policy::Eager,
                drop: HALF,
                ..base.clone()
            };
            for (policy, scenario) in [
                ("eager", eager),
                ("auto", auto_of(&base, Prefer::IdleWorkers)),
                ("auto, short waits", auto_of(&base, Prefer::ShortWaits)),
                ("deferred", base),
            ] {
                let f = run(&scenario);
                let ms = |nanos: Nanos| nanos.0 as f64 / MS;
                println!(
                    "| {name}, {clients}, {think} ms | {policy} | {:.3} | {:.3} | {:.0} |",
                    ms(f.queue_p50),
                    ms(f.queue_p99),
                    f.good_per_second
                );
            }
        }
    }
}

/// The goodput of policies, mean over the seeds, and the figures at that rate.
fn search(
    name: &str,
    base: &Scenario,
    seeds: std::ops::Range<u64>,
    requested: Vec<(&'static str, Policy, DropPolicy, f64)>,
) {
    for (label, policy, drop, early) in requested {
        let mut found = Vec::new();
        for seed in seeds.clone() {
            let scenario = Scenario {
                policy,
                drop,
                early,
                seed,
                ..base.clone()
            };
            found.push(goodput(&scenario, &mut |_| ()));
        }
        let mean = found.iter().sum::<f64>() / found.len() as f64;
        let at = run(&Scenario {
            policy,
            drop,
            early,
            ..base.at_rate(mean)
        });
        println!(
            "{name:12} {label:18} {mean:9.0} r/s  median {} mean {:.1} idle {:.3} bad {:.4}",
            at.batch_median, at.batch_mean, at.idle_share, at.bad_rate
        );
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    let option = |key: &str| {
        arguments
            .iter()
            .find_map(|a| a.strip_prefix(key)?.strip_prefix('='))
    };
    let number = |key: &str, or: u64| option(key).map_or(or, |n| n.parse().unwrap());
    let (requests, first) = (number("requests", 500_000), number("from", 1));
    let seeds = first..first + number("seeds", 1);
    let names = arguments.iter().map(String::as_str);
    let names = names
        .filter(|a| !a.contains('='))
        .flat_map(|name| match name {
            "all" => SETS.to_vec(),
            name => vec![name],
        });
    for name in names {
        match name {
            "speed" => {
                speed();
                continue;
            }
            "day" => {
                day(&seeds);
                continue;
            }
            "closed" => {
                closed(requests);
                continue;
            }
            _ => {}
        }
        let base = set(name, requests).unwrap();
        if let Some(rates) = option("at") {
            let rates = rates.split(',').map(|rate| rate.parse().unwrap());
            let requested = policies(option("policies").unwrap_or(""));
            print_at(name, &base, rates.collect(), seeds.clone(), &requested);
            continue;
        }
        let prefers = match option("judge") {
            Some("auto") => Some(Prefer::IdleWorkers),
            Some("short") => Some(Prefer::ShortWaits),
            _ => None,
        };
        if let Some(prefers) = prefers {
            judge(name, &base, seeds.clone(), prefers);
            continue;
        }
        let requested = policies(option("policies").unwrap_or(""));
        search(name, &base, seeds.clone(), requested);
    }
}
