//! The scenario of a live run, from what was measured of its server.

use std::time::Duration;

use albacore_batching::deadlines::Cost;
use albacore_batching::{Nanos, Profile};
use albacore_load::{Load, Sample, Shape, drive};
use albacore_simulator::{
    FrontEnd, RequestClass, ServerQueue, ServerRequest, ServerRun, ServerScenario, simulate_server,
};

use super::QueueId;
use super::server_metrics::{Learned, ServerMetrics};
use crate::error::BenchError;
use crate::probe::{Bench, Probe};

/// How long the requests of a class are sent over one connection to measure what they cost the
/// front end.
const FRONT_PROBE: Duration = Duration::from_millis(200);

/// The part of a request's front time before it is submitted.
const READ_SHARE: f64 = 0.5;

/// Simulations to find which part of a batch's measured time is waiting for the front end.
const TIME_PASSES: usize = 4;

/// A wrong simulation, which a comparison must find.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// The front end schedules each request by itself.
    NoGathering,
    /// Every batch takes its beta twice.
    DoubleBeta,
}

impl Fault {
    pub(super) fn apply(self, scenario: &mut ServerScenario) {
        match self {
            Self::NoGathering => scenario.front.is_gathering = false,
            Self::DoubleBeta => {
                for queue in &mut scenario.queues {
                    let known = queue.profile.mean_cost.unwrap_or(queue.time);
                    let time = queue.time;
                    queue.time = Cost::new(time.alpha_ns(), time.beta_ns() + known.beta_ns());
                }
            }
        }
    }
}

/// The simulated counterparts of live samples.
pub(super) fn samples(live: &[Sample], run: &ServerRun) -> Vec<Sample> {
    let simulate = |(sample, reply): (&Sample, &albacore_simulator::ServerReply)| Sample {
        latency: Duration::from_nanos(reply.written.0).saturating_sub(sample.intended),
        status: if reply.is_refused { 429 } else { 200 },
        run: None,
        ..*sample
    };
    live.iter().zip(&run.replies).map(simulate).collect()
}

impl Bench {
    /// Cpu time of the front end for a request of each class, over one connection, nanoseconds.
    pub(super) fn measure_front(&self) -> Result<Vec<f64>, BenchError> {
        let measure = |class: usize| {
            let of_class = self.requests.iter().zip(&self.class_of);
            let of_class = of_class.filter(|&(_, &of)| of == class);
            let before = self.server_metrics()?;
            let answered = drive(Load {
                requests: of_class.map(|(request, _)| request.clone()).collect(),
                shape: Shape::Closed(FRONT_PROBE),
                connections: 1,
            })?;
            let after = self.server_metrics()?;
            let cpu = after.growth(&before, "process_cpu_seconds_total", &[]);
            Ok(cpu * 1e9 / answered.len().max(1) as f64)
        };
        (0..self.classes.len()).map(measure).collect()
    }

    /// The run as a simulation; `front_costs` are in proportion to what each class costs the front
    /// end, the cpu time of the run says how much that is.
    pub(super) fn scenario(
        &self,
        probe: &Probe,
        front_costs: &[f64],
        before: &ServerMetrics,
        after: &ServerMetrics,
    ) -> Result<ServerScenario, BenchError> {
        let scheduling = self.scheduling()?;
        let ids = self.queues();
        let cpu = after.growth(before, "process_cpu_seconds_total", &[]) * 1e9;
        let samples = probe.samples.iter();
        let known: f64 = samples
            .map(|sample| front_costs[self.class_of[sample.request]])
            .sum();
        let scale = if known > 0.0 { cpu / known } else { 0.0 };
        let class = |(class, &cost): (&crate::mix::Class, &f64)| {
            let queue = QueueId::of(class);
            let time = |share: f64| Nanos((cost * scale * share) as u64);
            RequestClass {
                queue: ids.iter().position(|it| *it == queue).unwrap_or_default(),
                rows: class.rows,
                read: time(READ_SHARE),
                write: time(1.0 - READ_SHARE),
            }
        };
        let queue = |id: &QueueId| self.simulated_queue(*id, before, after);
        let queues: Result<Vec<_>, _> = ids.iter().map(queue).collect();
        let request = |sample: &Sample| ServerRequest {
            class: self.class_of[sample.request],
            sent: Nanos::from(sample.sent),
        };
        let mut scenario = ServerScenario {
            workers: scheduling.workers,
            batching: scheduling.batching,
            front: FrontEnd {
                threads: scheduling.front_threads,
                wake: Nanos(0),
                is_gathering: true,
            },
            queues: queues?,
            classes: self.classes.iter().zip(front_costs).map(class).collect(),
            requests: probe.samples.iter().map(request).collect(),
            seed: self.spec.seed,
        };
        fit_times(&mut scenario);
        Ok(scenario)
    }

    fn simulated_queue(
        &self,
        id: QueueId,
        before: &ServerMetrics,
        after: &ServerMetrics,
    ) -> Result<ServerQueue, BenchError> {
        let model = self.spec.models[id.model].as_str();
        let learned = after.learned(model, id.kind).ok_or_else(|| {
            let what = "no cost of such batches: is the server albacore, and warm?";
            BenchError::Failed(format!("{}/metrics: {model}: {what}", self.spec.url))
        })?;
        let Learned { line, safe, error } = learned;
        // Each answered request counts the time of its batch.
        let sum = |name: &str| {
            let of_kind =
                |&kind: &&str| after.growth(before, name, &[("model", model), ("kind", kind)]);
            id.kinds().iter().map(of_kind).sum::<f64>()
        };
        let answered = sum("albacore_compute_duration_seconds_count").max(1.0);
        let compute = sum("albacore_compute_duration_seconds_sum") * 1e9 / answered;
        let batches = self.live_batches(id, before, after);
        let batch_rows = batches.rows as f64 / batches.batches.max(1) as f64;
        Ok(ServerQueue {
            profile: Profile {
                cost: Some(safe),
                mean_cost: Some(line),
                objective: Some(Nanos::from(self.spec.objective)),
            },
            time: line,
            // Of a normal distribution the mean distance is sqrt(2 / pi) standard deviations.
            spread: error * (std::f64::consts::PI / 2.0).sqrt(),
            row: Nanos((compute / batch_rows.max(1.0)) as u64),
        })
    }
}

/// The learned time of a batch ends when the front end collects it. What of it is waiting for the
/// front end is found by simulation, and taken off.
fn fit_times(scenario: &mut ServerScenario) {
    for _ in 0..TIME_PASSES {
        let run = simulate_server(scenario);
        for (queue, batches) in scenario.queues.iter_mut().zip(&run.batches) {
            let Some(learned) = queue.profile.mean_cost.filter(|_| batches.batches > 0) else {
                continue;
            };
            let count = batches.batches as f64;
            let due = learned.alpha_ns() * batches.rows as f64 / count + learned.beta_ns();
            let excess = batches.busy.0 as f64 / count - due;
            let beta = queue.time.beta_ns() - excess;
            queue.time = Cost::new(queue.time.alpha_ns(), beta);
        }
    }
}
