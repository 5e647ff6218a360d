//! Compares with the traces of tests/data/symphony/golden, to the nanosecond.

use std::fmt::Write as _;
use std::path::PathBuf;

use albacore_batching::Nanos;
use albacore_batching::deadlines::{Cost, Delays, QueueParams, Release};

use crate::driver::{Driver, Input};
use crate::oracle::Done;

const MS: f64 = 1e6;

fn read(name: &str) -> String {
    let folder =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../tests/data/symphony/golden");
    std::fs::read_to_string(folder.join(name)).expect("tests/data is complete")
}

fn option<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.split_whitespace()
        .find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
}

fn ms(nanos: i128) -> String {
    format!("{}.{:06}", nanos / 1_000_000, nanos % 1_000_000)
}

fn rules(line: &str, profile: &str) -> QueueParams {
    let fields: Vec<f64> = profile
        .split(',')
        .skip(1)
        .map(|field| field.parse().unwrap())
        .collect();
    let objective = fields[2] * MS;
    let release = match option(line, "policy") {
        Some("deferred") => Release::Deferred {
            early: Nanos(0),
            window: None,
        },
        Some("eager") => Release::Eager,
        Some("timeout") => {
            let share: f64 = option(line, "kfrac").unwrap().parse().unwrap();
            let delay = Nanos((share * objective).round() as u64);
            Release::Timeout { delay }
        }
        other => panic!("{other:?}"),
    };
    QueueParams {
        cost: Cost::new(fields[0] * MS, fields[1] * MS),
        objective: Nanos(objective.round() as u64),
        release,
        target_rows: option(line, "target").map_or(1, |rows| rows.parse().unwrap()),
        rows_max: u64::MAX,
        requests_max: usize::MAX,
    }
}

/// Runs the case of a manifest line and prints its trace in the format of the reference.
fn trace(line: &str) -> String {
    let models = read(option(line, "models").unwrap());
    let rules: Vec<_> = models.lines().skip(1).map(|p| rules(line, p)).collect();
    let workers = option(line, "gpus").unwrap().parse().unwrap();
    let mut driver = Driver::new(&rules, workers, Delays::default());
    let mut eager_from = option(line, "eager_from_ms")
        .map(|ms| Nanos((ms.parse::<f64>().unwrap() * MS).round() as u64));
    let arrivals = read(
        option(line, "arrivals")
            .unwrap()
            .strip_prefix("file:")
            .unwrap(),
    );
    let mut counts = vec![0; rules.len()];
    for arrival in arrivals.lines() {
        let (at, queue) = arrival.split_once(' ').unwrap();
        let (at, queue): (u64, usize) = (at.parse().unwrap(), queue.parse().unwrap());
        if let Some(from) = eager_from.take_if(|from| from.0 <= at) {
            driver.run_until(from);
            for (queue, rules) in rules.iter().enumerate() {
                let mut rules = *rules;
                rules.release = Release::Eager;
                driver.take(&Input::Rules { queue, rules }, from);
            }
        }
        driver.run_until(Nanos(at));
        counts[queue] += 1;
        let key = counts[queue];
        let arrival = Input::Arrival {
            queue,
            key,
            rows: 1,
        };
        driver.take(&arrival, Nanos(at));
    }
    driver.run_until(Nanos::MAX);
    print(&driver.done)
}

fn print(done: &[Done]) -> String {
    let (mut batches, mut drops) = (String::new(), String::new());
    for done in done {
        match done {
            Done::Batch {
                start,
                end,
                worker,
                queue,
                keys,
                ..
            } => {
                let (first, last) = (keys.first().unwrap(), keys.last().unwrap());
                writeln!(
                    batches,
                    "B start={} end={} gpu={} model={queue} size={} R{first}-R{last}",
                    ms(*start),
                    ms(*end),
                    worker + 1,
                    keys.len()
                )
                .unwrap();
            }
            Done::Drop { at, queue, key } => {
                writeln!(drops, "D t={} model={queue} R{key}", ms(*at)).unwrap();
            }
        }
    }
    batches + &drops
}

#[test]
fn traces_equal_those_of_the_reference_to_the_nanosecond() {
    let manifest = read("MANIFEST.txt");
    let lines: Vec<_> = manifest.lines().filter(|l| !l.starts_with('#')).collect();
    assert_eq!(lines.len(), 7, "every trace is named");
    for line in lines {
        let (name, _) = line.split_once(':').unwrap();
        let (ours, theirs) = (trace(line), read(name));
        for (number, (ours, theirs)) in ours.lines().zip(theirs.lines()).enumerate() {
            assert_eq!(ours, theirs, "{name}:{}", number + 1);
        }
        assert_eq!(ours.lines().count(), theirs.lines().count(), "{name}");
    }
}
