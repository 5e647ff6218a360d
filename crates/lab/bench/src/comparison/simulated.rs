//! Builds the scenario of a live run from measurements of its server.

use std::time::Duration;

use albacore_batching::auto::FrontCost;
use albacore_batching::deadlines::Cost;
use albacore_batching::{Nanos, Profile};
use albacore_load::{Load, Sample, Shape, drive};
use albacore_simulator::{
    BatchCounts, FrontEnd, RequestClass, ServerQueue, ServerRequest, ServerRun, ServerScenario,
    Stalls, simulate_server,
};

use super::QueueId;
use super::server_metrics::{Learned, Scheduling, ServerMetrics};
use crate::error::BenchError;
use crate::mix::Class;
use crate::probe::{Bench, Probe};

/// Duration of the load over one connection, per class.
const LONE_PROBE: Duration = Duration::from_millis(200);

/// Lower bound of a request's cost in the front end, as a share of the mean: the estimate is based
/// on few requests if lone requests are deferred.
const FRONT_MIN: f64 = 0.25;

/// Share of a request's front-end time that is spent before submission.
const READ_SHARE: f64 = 0.5;

/// Mean length of a stall: the time slice of Linux's scheduler, after which a waiting thread gets
/// the CPU back.
const STALL: Nanos = Nanos(3_000_000);

/// Upper bound of the standard deviation of the logarithm of batch times.
const SPREAD_MAX: f64 = 0.5;

/// Simulation passes to estimate how much of a batch's measured time is waiting for the front end.
const TIME_PASSES: usize = 4;

/// A deliberate error in the simulation, which a comparison must detect.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// The front end schedules each request separately.
    NoGathering,
    /// Every batch takes 1.5 times as long.
    SlowBatches,
}

impl Fault {
    pub(super) fn apply(self, scenario: &mut ServerScenario) {
        match self {
            Self::NoGathering => scenario.front.is_gathering = false,
            Self::SlowBatches => {
                for queue in &mut scenario.queues {
                    let known = queue.profile.mean_cost.unwrap_or(queue.time);
                    let slower = |time: f64, known: f64| time + known / 2.0;
                    queue.time = Cost::new(
                        slower(queue.time.alpha_ns(), known.alpha_ns()),
                        slower(queue.time.beta_ns(), known.beta_ns()),
                    );
                }
            }
        }
    }
}

/// Simulated counterparts of live samples.
pub(super) fn samples(live: &[Sample], run: &ServerRun) -> Vec<Sample> {
    let simulate = |(sample, reply): (&Sample, &albacore_simulator::ServerReply)| Sample {
        latency: Duration::from_nanos(reply.written.0).saturating_sub(sample.intended),
        status: if reply.is_refused { 429 } else { 200 },
        stages: albacore_load::StageTimes::default(),
        ..*sample
    };
    live.iter().zip(&run.replies).map(simulate).collect()
}

impl Bench {
    /// Sends the requests of each class over one connection; returns their mean time outside of the
    /// engine, in nanoseconds.
    pub(super) fn measure_lone(&self) -> Result<Vec<f64>, BenchError> {
        let measure = |class: usize| {
            let of_class = self.requests.iter().zip(&self.class_of);
            let of_class = of_class.filter(|&(_, &of)| of == class);
            let before = self.server_metrics()?;
            let samples = drive(Load {
                requests: of_class.map(|(request, _)| request.clone()).collect(),
                shape: Shape::Closed(LONE_PROBE),
                connections: 1,
            })?;
            let after = self.server_metrics()?;
            let latency: f64 = samples.iter().map(|it| it.latency.as_secs_f64()).sum();
            // From submission until the reply is ready, including deferral.
            let inside = after.growth(&before, "albacore_total_duration_seconds_sum", &[]);
            Ok((latency - inside) * 1e9 / samples.len().max(1) as f64)
        };
        (0..self.classes.len()).map(measure).collect()
    }

    /// Builds the simulation of the run; `lone` is the result of [`Bench::measure_lone`].
    pub(super) fn scenario(
        &self,
        probe: &Probe,
        lone: &[f64],
        before: &ServerMetrics,
        after: &ServerMetrics,
    ) -> Result<ServerScenario, BenchError> {
        let scheduling = self.scheduling()?;
        let ids = self.queues();
        let sent: Vec<usize> = probe.by_class.iter().map(|report| report.sent).collect();
        let cpu = after.growth(before, "process_cpu_seconds_total", &[]) * 1e9;
        let front = FrontTimes::of(lone, &sent, cpu);
        let class = |(class, &cost): (&Class, &f64)| {
            let queue = QueueId::of(class);
            let time = |share: f64| Nanos((cost * share) as u64);
            RequestClass {
                queue: ids.iter().position(|it| *it == queue).unwrap_or_default(),
                rows: class.rows,
                read: time(READ_SHARE),
                write: time(1.0 - READ_SHARE),
            }
        };
        let queue = |id: &QueueId| self.simulated_queue(*id, &scheduling, before, after);
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
                wake: Nanos(front.wake as u64),
                cost: Some(FrontCost {
                    per_request: Nanos((cpu / probe.samples.len().max(1) as f64) as u64),
                    threads: scheduling.front_threads,
                }),
                is_gathering: true,
            },
            queues: queues?,
            classes: self
                .classes
                .iter()
                .zip(&front.by_class)
                .map(class)
                .collect(),
            requests: probe.samples.iter().map(request).collect(),
            stalls: Stalls::default(),
            seed: self.spec.seed,
        };
        fit_times(&mut scenario);
        let busy = after.growth(before, "albacore_worker_busy_seconds_total", &[]) * 1e9;
        let batches = ids.iter().map(|id| self.live_batches(*id, before, after));
        add_stalls(&mut scenario, busy, &batches.collect::<Vec<_>>());
        Ok(scenario)
    }

    fn simulated_queue(
        &self,
        id: QueueId,
        scheduling: &Scheduling,
        before: &ServerMetrics,
        after: &ServerMetrics,
    ) -> Result<ServerQueue, BenchError> {
        let model = self.spec.models[id.model].as_str();
        let learned = after.learned(model, id.kind).ok_or_else(|| {
            let what = "no learned cost of such batches: use an Albacore server that is warm";
            BenchError::Failed(format!("{}/metrics: {model}: {what}", self.spec.url))
        })?;
        let Learned { line, safe, error } = learned;
        // The sum counts the time of a batch once per answered request in it.
        let sum = |name: &str| {
            let of_kind =
                |&kind: &&str| after.growth(before, name, &[("model", model), ("kind", kind)]);
            id.kinds().iter().map(of_kind).sum::<f64>()
        };
        let answered = sum("albacore_compute_duration_seconds_count").max(1.0);
        let compute = sum("albacore_compute_duration_seconds_sum") * 1e9 / answered;
        let batches = self.live_batches(id, before, after);
        // Mean batch size as seen by a request, for geometric sizes: it weights large batches more
        // than the mean over batches does.
        let request_rows = batches.rows as f64 / answered;
        let batch_rows = batches.rows as f64 / batches.batches.max(1) as f64;
        let batch_rows = (2.0 * batch_rows - request_rows).max(1.0);
        Ok(ServerQueue {
            model: id.model,
            weight: scheduling.weights[id.model],
            profile: Profile {
                cost: Some(safe),
                mean_cost: Some(line),
                objective: Some(Nanos::from(self.spec.objective)),
            },
            time: line,
            spread: error,
            row: Nanos((compute / batch_rows) as u64),
        })
    }
}

/// Times of the front end, in nanoseconds.
#[derive(Debug)]
struct FrontTimes {
    /// Per class of requests.
    by_class: Vec<f64>,
    wake: f64,
}

impl FrontTimes {
    /// The time of a lone request outside of the engine consists of the work of the front end and
    /// of a part common to all classes: two wake-ups and the client. The common part is derived
    /// from the front end's CPU time in a run with `sent` requests of each class.
    fn of(lone: &[f64], sent: &[usize], cpu: f64) -> Self {
        let requests = sent.iter().sum::<usize>().max(1) as f64;
        let all = |of: &[f64]| -> f64 {
            let each = of.iter().zip(sent);
            each.map(|(of, &sent)| of * sent as f64).sum()
        };
        let mean = cpu / requests;
        let common = (all(lone) / requests - mean).max(0.0);
        let work = lone
            .iter()
            .map(|lone| (lone - common).max(mean * FRONT_MIN));
        let work: Vec<f64> = work.collect();
        let scale = cpu / all(&work).max(1.0);
        Self {
            by_class: work.iter().map(|work| work * scale).collect(),
            wake: common / 2.0,
        }
    }
}

/// The learned time of a batch ends when the front end collects it, so it includes waiting for the
/// front end. That wait is estimated by simulation and subtracted.
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
            queue.time = reduce_batch_time(queue.time, excess, batches.rows as f64 / count);
        }
    }
}

/// Reduces a batch time by `excess` nanoseconds at a batch size of `rows`: first beta, then alpha.
fn reduce_batch_time(time: Cost, excess: f64, rows: f64) -> Cost {
    let beta = time.beta_ns() - excess;
    let alpha = time.alpha_ns() + beta.min(0.0) / rows;
    Cost::new(alpha.max(0.0), beta.max(0.0))
}

/// The learned line excludes stalls. Their total is the busy time of workers beyond the line. They
/// are also part of the mean deviation from the line, which initially is the spread of each queue.
fn add_stalls(scenario: &mut ServerScenario, busy: f64, live: &[BatchCounts]) {
    let of_line = |(queue, counts): (&ServerQueue, &BatchCounts)| {
        let line = queue.profile.mean_cost.unwrap_or(queue.time);
        line.alpha_ns() * counts.rows as f64 + line.beta_ns() * counts.batches as f64
    };
    let work: f64 = scenario.queues.iter().zip(live).map(of_line).sum();
    let stalled = (busy / work.max(1.0) - 1.0).max(0.0);
    scenario.stalls = Stalls {
        per_second: stalled * 1e9 / STALL.0 as f64,
        mean: STALL,
    };
    for queue in &mut scenario.queues {
        // For a normal distribution the mean deviation is sqrt(2 / pi) standard deviations.
        let rest = (queue.spread - stalled).max(0.0);
        queue.spread = (rest * (std::f64::consts::PI / 2.0).sqrt()).min(SPREAD_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_without_beta_is_reduced_too() {
        let of = |alpha, beta, excess| reduce_batch_time(Cost::new(alpha, beta), excess, 2.0);
        assert_eq!(of(500.0, 3000.0, 1000.0), Cost::new(500.0, 2000.0));
        assert_eq!(of(500.0, 3000.0, -1000.0), Cost::new(500.0, 4000.0));
        assert_eq!(of(5000.0, 1000.0, 3000.0), Cost::new(4000.0, 0.0));
        assert_eq!(of(500.0, 0.0, 3000.0), Cost::new(0.0, 0.0));
    }

    #[test]
    fn the_front_end_works_as_long_as_it_used_its_cpu() {
        let times = FrontTimes::of(&[50_000.0, 90_000.0], &[30, 10], 40.0 * 30_000.0);
        // 60 us outside of the engine on average, 30 of them work.
        assert_eq!(times.by_class, [20_000.0, 60_000.0]);
        assert_eq!(times.wake, 15_000.0);
        let busy = FrontTimes::of(&[10_000.0, 20_000.0], &[1, 1], 60_000.0);
        assert_eq!(busy.by_class, [20_000.0, 40_000.0]);
        assert_eq!(busy.wake, 0.0);
        let none = FrontTimes::of(&[10_000.0, 20_000.0], &[0, 0], 0.0);
        assert_eq!(none.by_class, [0.0, 0.0]);
    }
}
