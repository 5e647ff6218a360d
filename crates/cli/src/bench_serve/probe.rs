//! One run at one rate.

use std::time::Duration;

use albacore_load::{Call, Load, Random, Report, Request, Shape, drive};

use super::mix::{self, Class};
use super::schedule::{Arrivals, Schedule};
use super::target::Target;
use super::{BenchServeArgs, cpu};
use crate::failure::{Failure, sentence};

/// How long the server is warmed by a few connections before the first run, so that it knows its costs.
const WARMING: Duration = Duration::from_secs(1);

/// Connections of that.
const WARMING_CONNECTIONS: usize = 4;

/// A generator that is later than this share of the objective distorts what it measures.
const LAG_SHARE: f64 = 0.2;

/// Below this it does not matter.
const LAG_MIN: Duration = Duration::from_millis(1);

/// A server, what it is asked, and how.
pub(super) struct Bench<'a> {
    pub(super) args: &'a BenchServeArgs,
    pub(super) arrivals: Arrivals,
    pub(super) classes: Vec<Class>,
    pub(super) target: Target,
    requests: Vec<Request>,
    /// The class of each request.
    class_of: Vec<usize>,
}

/// What became of one run.
#[derive(Debug)]
pub(super) struct Probe {
    /// Requests a second that were intended.
    pub(super) rate: f64,
    pub(super) report: Report,
    /// By class.
    pub(super) by_class: Vec<Report>,
    /// Seconds on cpus of the server for a thousand rows that it answered.
    pub(super) cpu_per_1000_rows: Option<f64>,
    /// The generator was too late itself.
    pub(super) is_behind: bool,
}

impl<'a> Bench<'a> {
    pub(super) fn new(args: &'a BenchServeArgs) -> Result<Self, Failure> {
        let arrivals = Arrivals::parse(&args.arrivals)?;
        let classes = mix::parse(&args.mix)?;
        if args.rate.is_empty() && !args.is_search && arrivals.recorded_rate().is_none() {
            return Err(Failure::Usage("--rate: name one, or --search".to_owned()));
        }
        let target = Target::find(args)?;
        let class_of = mix::spread(&classes);
        let mut random = Random(args.seed ^ 0x5eed);
        let requests = class_of.iter().map(|&class| {
            let Class { output, rows, .. } = &classes[class];
            let values = rows * target.features;
            let values: Vec<f32> = (0..values)
                .map(|_| random.uniform() as f32 * 4.0 - 2.0)
                .collect();
            let call = Call {
                model: &args.model,
                input: &target.input,
                output: output.as_deref(),
                values: &values,
                features: target.features,
            };
            call.request(target.wire, target.address)
        });
        let requests = requests.collect();
        Ok(Self {
            args,
            arrivals,
            classes,
            target,
            requests,
            class_of,
        })
    }

    /// Asks for a while, so that what is measured is a server that knows its costs; and fails early where nothing
    /// is answered.
    pub(super) fn warm(&self) -> Result<(), Failure> {
        let load = Load {
            requests: self.requests.clone(),
            shape: Shape::Closed(WARMING),
            connections: WARMING_CONNECTIONS,
        };
        let samples = drive(load).map_err(|e| Failure::Failed(sentence(&e)))?;
        if samples.iter().any(|sample| sample.status == 200) {
            return Ok(());
        }
        let status = samples.last().map_or(0, |sample| sample.status);
        let what = match status {
            0 => "no request is answered".to_owned(),
            status => format!("no request is answered with 200, the last one with {status}"),
        };
        Err(Failure::Failed(format!("{}: {what}", self.args.url)))
    }

    /// The runs of `--rate`, or the recorded one.
    pub(super) fn schedules(&self) -> Result<Vec<Schedule>, Failure> {
        let rates = match self.args.rate.is_empty() {
            true => self.arrivals.recorded_rate().into_iter().collect(),
            false => self.args.rate.clone(),
        };
        rates.into_iter().map(|rate| self.schedule(rate)).collect()
    }

    pub(super) fn schedule(&self, rate: f64) -> Result<Schedule, Failure> {
        self.arrivals.at(rate, self.args.length, self.args.seed)
    }

    /// Runs it.
    pub(super) fn probe(&self, schedule: &Schedule) -> Result<Probe, Failure> {
        let pids = &self.args.pid;
        let before = cpu::time_of(pids)?;
        let load = Load {
            requests: self.requests.clone(),
            shape: Shape::Open(schedule.times.clone()),
            connections: self.args.connections as usize,
        };
        let samples = drive(load).map_err(|e| Failure::Failed(sentence(&e)))?;
        let cpu = cpu::time_of(pids)?.saturating_sub(before);
        let (length, objective) = (schedule.length, self.args.objective);
        let report = Report::of(&samples, length, objective);
        let class_of = |request: usize| self.class_of[request];
        let by_class = (0..self.classes.len()).map(|class| {
            let of_class = samples
                .iter()
                .filter(|sample| class_of(sample.request) == class);
            Report::of(of_class, length, objective)
        });
        let answered = samples.iter().filter(|sample| sample.status == 200);
        let rows: usize = answered
            .map(|s| self.classes[class_of(s.request)].rows)
            .sum();
        let per_1000_rows = cpu.as_secs_f64() * 1e3 / rows.max(1) as f64;
        Ok(Probe {
            rate: schedule.rate,
            report,
            by_class: by_class.collect(),
            cpu_per_1000_rows: (!pids.is_empty()).then_some(per_1000_rows),
            is_behind: report.lag_p99 > objective.mul_f64(LAG_SHARE).max(LAG_MIN),
        })
    }

    /// Whether so many requests in time are what the objective asks for.
    pub(super) fn is_within(&self, probe: &Probe) -> bool {
        !probe.is_behind && probe.report.bad_rate <= 1.0 - self.args.percentile / 100.0
    }
}
