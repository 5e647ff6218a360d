//! The article's example: three workers, l(b) = b + 5, an objective of 12, one request every 0.75,
//! with three consecutive ones missing. Deferred batches regain their pattern, eager ones do not.

use albacore_batching::Nanos;
use albacore_batching::deadlines::{Cost, DeadlineDispatch, Delays};
use albacore_simulator::{
    Arrival, DropPolicy, DropRule, Model, Policy, Scenario, Source, Watcher, run_watched,
};
use serde_json::json;

use super::args::SimulateOutput;
use super::timeline::{self, Timeline};
use albacore_command::{Failure, print, print_json};

/// Length of the article's unit of time: a millisecond here.
const UNIT: u64 = 1_000_000;
/// Number of requests of the example, and the missing ones, counted from 1.
const REQUESTS: u64 = 60;
const MISSING: std::ops::RangeInclusive<u64> = 13..=15;
/// Time from which the policy is eager: the first arrival after the gap.
const EAGER_FROM: Nanos = Nanos(11_250_000);

/// A batch: start, end, worker, and the article's numbers of its requests.
pub(super) struct Bar {
    pub(super) start: f64,
    pub(super) end: f64,
    pub(super) worker: usize,
    pub(super) first: u64,
    pub(super) last: u64,
}

#[derive(Default)]
struct Recorder {
    bars: Vec<Bar>,
    drops: Vec<(f64, u64)>,
}

fn in_units(time: Nanos) -> f64 {
    time.0 as f64 / UNIT as f64
}

/// Number of a request in the article, which also counts the missing ones.
fn articles_number(key: u64) -> u64 {
    match key < *MISSING.start() {
        true => key,
        false => key + MISSING.count() as u64,
    }
}

impl Watcher for Recorder {
    fn dispatched(&mut self, dispatch: &DeadlineDispatch, (first, last): (u64, u64)) {
        self.bars.push(Bar {
            start: in_units(dispatch.departure.start),
            end: in_units(dispatch.departure.end),
            worker: dispatch.worker.position(),
            first: articles_number(first),
            last: articles_number(last),
        });
    }

    fn dropped(&mut self, at: Nanos, _model: usize, key: u64) {
        self.drops.push((in_units(at), articles_number(key)));
    }
}

fn scenario(eager_from: Option<Nanos>) -> Scenario {
    let arrivals = (1..=REQUESTS).filter(|number| !MISSING.contains(number));
    let arrivals = arrivals.map(|number| Arrival {
        at: (number - 1) * UNIT * 3 / 4,
        model: 0,
    });
    Scenario {
        workers: 3,
        models: vec![Model {
            name: "example".to_owned(),
            cost: Cost::new(UNIT as f64, 5.0 * UNIT as f64),
            objective: Nanos(12 * UNIT),
        }],
        source: Source::Listed(arrivals.collect()),
        seed: 1,
        policy: Policy::Deferred,
        drop: DropPolicy::Rule(DropRule::Head),
        delays: Delays::default(),
        early: 0.0,
        eager_from,
    }
}

fn record(name: &'static str, eager_from: Option<Nanos>) -> Timeline {
    let mut recorder = Recorder::default();
    run_watched(&scenario(eager_from), &mut recorder);
    Timeline {
        name,
        bars: recorder.bars,
        drops: recorder.drops,
    }
}

pub(super) fn run(output: SimulateOutput) -> Result<(), Failure> {
    let timelines = [
        record("eager from the gap on", Some(EAGER_FROM)),
        record("deferred", None),
    ];
    match output {
        SimulateOutput::Text => print(&timeline::text(&timelines)),
        SimulateOutput::Svg => print(&timeline::svg(&timelines)),
        SimulateOutput::Json => {
            let all: Vec<_> = timelines.iter().map(as_json).collect();
            print_json(&json!({ "timelines": all }))
        }
    }
}

fn as_json(timeline: &Timeline) -> serde_json::Value {
    let bars = timeline.bars.iter().map(|bar| {
        json!({ "start": bar.start, "end": bar.end, "worker": bar.worker, "first": bar.first, "last": bar.last })
    });
    let drops = timeline.drops.iter();
    let drops = drops.map(|(at, request)| json!({ "at": at, "request": request }));
    json!({
        "policy": timeline.name,
        "batches": bars.collect::<Vec<_>>(),
        "drops": drops.collect::<Vec<_>>(),
    })
}
