//! One run at one rate.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use albacore_load::{Generator, InferRequest, Load, Report, Request, Sample, Shape};
use albacore_random::Xoshiro256;

use crate::cpu;
use crate::error::BenchError;
use crate::mix::{self, Class};
use crate::schedule::{Arrivals, Schedule};
use crate::spec::Spec;
use crate::target::Target;

/// Duration of the warm-up over a few connections before the first run, in which the server learns
/// its costs.
const WARMING: Duration = Duration::from_secs(1);

const WARMING_CONNECTIONS: usize = 4;

/// Bound on the bytes of all distinct requests, exceeded only if one request of each class needs
/// more: the larger the requests, the fewer distinct ones are sent in turn.
const REQUEST_BYTES_MAX: usize = 64 << 20;

/// Lag of the generator, as a share of the objective, above which the measurement is distorted.
const LAG_SHARE: f64 = 0.2;

/// Lag of the generator below which it is ignored.
const LAG_MIN: Duration = Duration::from_millis(1);

/// A server and the requests for it.
#[derive(Debug)]
pub struct Bench {
    pub(crate) spec: Spec,
    pub(crate) arrivals: Arrivals,
    pub(crate) classes: Vec<Class>,
    pub(crate) target: Target,
    pub(crate) requests: Vec<Request>,
    /// Class of each request.
    pub(crate) class_of: Vec<usize>,
    generator: Mutex<Generator>,
}

/// Results of one run.
#[derive(Clone, Debug)]
pub struct Probe {
    /// Intended requests per second.
    pub rate: f64,
    pub report: Report,
    pub by_class: Vec<Report>,
    /// CPU seconds of the server per thousand answered rows.
    pub cpu_per_1000_rows: Option<f64>,
    /// Whether the lag of the generator was too large.
    pub is_generator_late: bool,
    /// In the order of their intended times.
    pub(crate) samples: Vec<Sample>,
}

impl Bench {
    /// Reads the server's metadata and creates the requests.
    ///
    /// # Errors
    /// An option is wrong, or the server does not report its metadata.
    pub fn new(spec: Spec) -> Result<Self, BenchError> {
        let arrivals = Arrivals::parse(&spec.arrivals)?;
        let classes = mix::parse(&spec.mix, &spec.models)?;
        if spec.rates.is_empty() && !spec.is_search && arrivals.recorded_rate().is_none() {
            return Err(BenchError::Usage(
                "--rate: give a rate, or --search".to_owned(),
            ));
        }
        let target = Target::find(&spec)?;
        let bytes = classes
            .iter()
            .map(|class| class.rows * target.inputs[class.model].features * 4);
        let largest = bytes.max().unwrap_or_default().max(1);
        let class_of = mix::spread(&classes, REQUEST_BYTES_MAX / largest);
        let mut random = Xoshiro256::new(spec.seed, 0x5eed);
        let requests = class_of.iter().map(|&class| {
            let Class {
                model,
                output,
                rows,
                ..
            } = &classes[class];
            let input = &target.inputs[*model];
            let values = rows * input.features;
            let values: Vec<f32> = (0..values)
                .map(|_| random.unit() as f32 * 4.0 - 2.0)
                .collect();
            let call = InferRequest {
                model: &spec.models[*model],
                input: &input.name,
                output: output.as_deref(),
                values: &values,
                features: input.features,
            };
            call.request(target.wire, target.address)
        });
        let requests = requests.collect();
        Ok(Self {
            spec,
            arrivals,
            classes,
            target,
            requests,
            class_of,
            generator: Mutex::new(Generator::new()?),
        })
    }

    /// Sends the requests round-robin.
    fn drive(&self, shape: Shape, connections: usize) -> Result<Vec<Sample>, BenchError> {
        let generator = self.generator.lock();
        let mut generator = generator.unwrap_or_else(PoisonError::into_inner);
        Ok(generator.run(Load {
            requests: self.requests.clone(),
            shape,
            connections,
        })?)
    }

    /// Warms up the server, so that it learns its costs; fails early if it does not answer.
    ///
    /// # Errors
    /// No request is answered.
    pub fn warm(&self) -> Result<(), BenchError> {
        let samples = self.drive(Shape::Closed(WARMING), WARMING_CONNECTIONS)?;
        if samples.iter().any(|sample| sample.status == 200) {
            return Ok(());
        }
        let status = samples.last().map_or(0, |sample| sample.status);
        let what = match status {
            0 => "no request was answered".to_owned(),
            status => format!("no request was answered with 200, the last one with {status}"),
        };
        Err(BenchError::Failed(format!("{}: {what}", self.spec.url)))
    }

    /// Schedules of the given rates, or of the recorded trace.
    ///
    /// # Errors
    /// A rate exceeds the maximum of the generator.
    pub fn schedules(&self) -> Result<Vec<Schedule>, BenchError> {
        let rates = match self.spec.rates.is_empty() {
            true => self.arrivals.recorded_rate().into_iter().collect(),
            false => self.spec.rates.clone(),
        };
        let length = self.spec.length;
        let runs = rates.into_iter().map(|rate| self.schedule(rate, length));
        runs.collect()
    }

    /// Schedule of this length at a rate.
    ///
    /// # Errors
    /// The rate exceeds the maximum of the generator.
    pub fn schedule(&self, rate: f64, length: Duration) -> Result<Schedule, BenchError> {
        self.arrivals.at(rate, length, self.spec.seed)
    }

    /// Schedule of this length at a rate, with times that depend on the seed; of a recorded trace,
    /// a window whose start depends on the seed.
    ///
    /// # Errors
    /// The rate exceeds the maximum of the generator.
    pub fn window(&self, rate: f64, length: Duration, seed: u64) -> Result<Schedule, BenchError> {
        Ok(self.arrivals.at(rate, length, seed)?.part(length, seed))
    }

    /// Closed loop over `connections` connections.
    ///
    /// # Errors
    /// The load generator fails.
    pub fn closed_loop(&self, length: Duration, connections: usize) -> Result<Report, BenchError> {
        let samples = self.drive(Shape::Closed(length), connections)?;
        Ok(Report::of(&samples, length, self.spec.objective))
    }

    /// Runs the load.
    ///
    /// # Errors
    /// A process of the server does not exist, or the load generator fails.
    pub fn probe(&self, schedule: &Schedule) -> Result<Probe, BenchError> {
        let pids = &self.spec.pids;
        let before = cpu::cpu_time(pids)?;
        let samples = self.drive(Shape::Open(schedule.times.clone()), self.spec.connections)?;
        let cpu = cpu::cpu_time(pids)?.saturating_sub(before);
        let objective = self.spec.objective;
        let (report, by_class) = self.reports(&samples, schedule.length);
        let class_of = |request: usize| self.class_of[request];
        let answered = samples.iter().filter(|sample| sample.status == 200);
        let rows: usize = answered
            .map(|s| self.classes[class_of(s.request)].rows)
            .sum();
        let per_1000_rows = cpu.as_secs_f64() * 1e3 / rows.max(1) as f64;
        Ok(Probe {
            rate: schedule.rate,
            report,
            by_class,
            cpu_per_1000_rows: (!pids.is_empty()).then_some(per_1000_rows),
            is_generator_late: report.lag_p99 > objective.mul_f64(LAG_SHARE).max(LAG_MIN),
            samples,
        })
    }

    /// Reports of a run of this length: of all samples, and per class.
    pub(crate) fn reports(&self, samples: &[Sample], length: Duration) -> (Report, Vec<Report>) {
        let objective = self.spec.objective;
        let of_class = |class: usize| {
            let samples = samples.iter();
            let of_class = samples.filter(|sample| self.class_of[sample.request] == class);
            Report::of(of_class, length, objective)
        };
        let by_class = (0..self.classes.len()).map(of_class).collect();
        (Report::of(samples, length, objective), by_class)
    }

    /// Whether the share of good requests meets the objective.
    #[must_use]
    pub fn is_within(&self, probe: &Probe) -> bool {
        !probe.is_generator_late && probe.report.bad_rate <= 1.0 - self.spec.percentile / 100.0
    }
}
