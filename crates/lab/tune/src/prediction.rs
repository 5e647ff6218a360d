//! Predicts the capacity of a configuration from learned costs, the solver's placement and the
//! simulator.
//!
//! Workers: W batches at a time. The time of a batch is its learned line, multiplied by the
//! measured slowdown by busy neighbors and by that of threads that share a core in the placement.
//! Front end: its CPU time per request. Both are simulated with the server's own scheduler, which
//! yields the highest rate within the objective if every thread had a cpu. If the threads of server
//! and load generator demand more cpus than there are, that rate is reduced in proportion.

use albacore_api::{BatchingPolicy, BatchingPreference};
use albacore_batching::deadlines::Cost;
use albacore_batching::{Nanos, Policy, Prefer};
use albacore_random::Xoshiro256;
use albacore_simulator::{ServerRequest, ServerScenario, simulate_server};
use serde::Serialize;

use crate::Context;
use crate::calibration::{Calibrated, Costs};
use crate::configuration::Configuration;
use crate::placement::Placements;

/// Simulated time per rate: the larger of this and a number of objectives, so that an unstable
/// queue is detected; and minimum and maximum number of requests.
const SIMULATED_SECONDS: f64 = 0.2;
const SIMULATED_OBJECTIVES: f64 = 10.0;
const SIMULATED_REQUESTS: (f64, f64) = (500.0, 10_000.0);

/// Bisection steps between a sustained rate and one that is not.
const HALVINGS: usize = 6;

/// Bottleneck of a configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Limit {
    FrontEnd,
    Workers,
    Cpus,
    MemoryBandwidth,
    Batching,
}

impl Limit {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::FrontEnd => "front end",
            Self::Workers => "workers",
            Self::Cpus => "cpus",
            Self::MemoryBandwidth => "memory bandwidth",
            Self::Batching => "batching",
        }
    }
}

#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Predicted {
    pub configuration: Configuration,
    /// Goodput, in requests per second.
    pub goodput: f64,
    /// At that rate.
    pub p99_ms: f64,
    pub batch_rows: f64,
    pub limit: Limit,
}

/// Scenario and CPU demand of a configuration.
struct Model<'a> {
    base: &'a Calibrated,
    scenario: ServerScenario,
    /// CPU time of a worker's thread per time in which it has a batch.
    thread_cpu: f64,
    front_cpu: f64,
    slowdown: f64,
}

impl<'a> Model<'a> {
    fn of(
        context: &Context<'_>,
        costs: &'a Costs,
        placements: &mut Placements,
        configuration: &Configuration,
    ) -> Option<Self> {
        let base = costs.of_threads(configuration.threads)?;
        let mut speed_of = |of| placements.speed(&context.cpus, of);
        let speed = speed_of(configuration) / speed_of(&base.configuration);
        let full = costs.full.as_ref().map_or(1, |of| of.configuration.workers);
        let share = f64::from(configuration.workers - 1) / f64::from(full.max(2) - 1);
        let slowdown = 1.0 + (costs.slowdown() - 1.0) * share.min(1.0);
        let mut scenario = base.scenario.clone();
        scenario.requests.clear();
        scenario.workers = usize::from(configuration.workers);
        scenario.batching.policy = policy(configuration, context.deployment.prefer());
        scenario.batching.batch_rows_max = configuration.max_rows as usize;
        scenario.batching.window = configuration.window.map(|window| window.duration());
        if let Some(threads) = configuration.front_threads {
            scenario.front.threads = usize::from(threads);
            if let Some(cost) = &mut scenario.front.cost {
                cost.threads = usize::from(threads);
            }
        }
        let stretch = slowdown / speed;
        if !stretch.is_finite() {
            return None;
        }
        for queue in &mut scenario.queues {
            queue.time = scale_cost(queue.time, stretch);
            queue.profile.cost = queue.profile.cost.map(|cost| scale_cost(cost, stretch));
            let mean = queue.profile.mean_cost;
            queue.profile.mean_cost = mean.map(|cost| scale_cost(cost, stretch));
            queue.row = Nanos((queue.row.0 as f64 * stretch) as u64);
        }
        let front_cpu = base
            .scenario
            .front
            .cost
            .map_or(0.0, |cost| cost.per_request.0 as f64 / 1e9);
        let sent = base.window.rate.max(1e-9);
        let busy = base.window.workers_busy * f64::from(base.configuration.workers) / sent;
        let threads = f64::from(configuration.threads);
        let worker_cpu = (base.server_cpu - front_cpu).max(0.0);
        Some(Self {
            base,
            scenario,
            thread_cpu: (worker_cpu / (busy * threads).max(1e-12)).min(1.0),
            front_cpu,
            slowdown,
        })
    }

    /// Worker time per request in batches of this size, seconds.
    fn worker_time(&self, batch_rows: f64) -> f64 {
        let classes = &self.base.scenario.classes;
        let of = |request: &ServerRequest| {
            let class = &classes[request.class];
            let queue = &self.scenario.queues[class.queue];
            let batches = class.rows as f64 / batch_rows.max(class.rows as f64);
            queue.time.alpha_ns() * class.rows as f64 + queue.time.beta_ns() * batches
        };
        let requests = &self.base.scenario.requests;
        requests.iter().map(of).sum::<f64>() / requests.len().max(1) as f64 / 1e9
    }

    /// Upper bounds of the requests per second of workers and of the front end, each alone.
    fn bounds(&self, batch_rows: f64) -> [f64; 2] {
        let workers = self.scenario.workers as f64 / self.worker_time(batch_rows).max(1e-12);
        let front = self.scenario.front.threads as f64 / self.front_cpu.max(1e-12);
        [workers, front]
    }

    /// CPU seconds per request, including the load generator.
    fn cpu_time(&self, threads: u16, batch_rows: f64) -> f64 {
        let workers = self.thread_cpu * f64::from(threads) * self.worker_time(batch_rows);
        self.front_cpu + workers + self.base.generator_cpu
    }
}

fn scale_cost(cost: Cost, factor: f64) -> Cost {
    Cost::new(cost.alpha_ns() * factor, cost.beta_ns() * factor)
}

fn policy(configuration: &Configuration, prefer: Option<BatchingPreference>) -> Policy {
    match configuration.policy {
        BatchingPolicy::Auto => Policy::Auto(match prefer {
            Some(BatchingPreference::IdleWorkers) => Prefer::IdleWorkers,
            _ => Prefer::ShortWaits,
        }),
        BatchingPolicy::Deferred => Policy::Deferred,
        BatchingPolicy::Eager => Policy::Eager,
        BatchingPolicy::Timeout => Policy::Timeout {
            delay: configuration
                .max_delay
                .map_or_else(Default::default, |delay| delay.duration()),
        },
    }
}

/// Upper bound of the rate of all configurations with these workers, requests per second; cheap.
pub(crate) fn upper_bound(
    context: &Context<'_>,
    costs: &Costs,
    placements: &mut Placements,
    configuration: &Configuration,
) -> f64 {
    let Some(model) = Model::of(context, costs, placements, configuration) else {
        return 0.0;
    };
    let rows = f64::from(configuration.max_rows);
    let [workers, front] = model.bounds(rows);
    let cpus = context.cpus.capacity() / model.cpu_time(configuration.threads, rows).max(1e-12);
    workers.min(front).min(cpus)
}

/// Simulates a configuration; `None` if its number of threads was not calibrated.
pub(crate) fn predict(
    context: &Context<'_>,
    costs: &Costs,
    placements: &mut Placements,
    configuration: &Configuration,
) -> Option<Predicted> {
    let mut model = Model::of(context, costs, placements, configuration)?;
    let bound = model.bounds(f64::from(configuration.max_rows));
    let bound = bound[0].min(bound[1]);
    let (mut good, mut bad) = (0.0, bound);
    let mut best = Simulated::default();
    for halving in 0..=HALVINGS {
        let rate = if halving == 0 {
            bound * 0.9
        } else {
            f64::midpoint(good, bad)
        };
        let simulated = simulate(context, &mut model, rate);
        if simulated.bad <= context.deployment.bad_max() {
            (good, best) = (rate, simulated);
        } else {
            bad = rate;
        }
    }
    let threads = configuration.threads;
    let demand = good * model.cpu_time(threads, best.batch_rows);
    let crowding = (demand / context.cpus.capacity()).max(1.0);
    let [workers, front] = model.bounds(best.batch_rows);
    let limit = if crowding > 1.0 {
        Limit::Cpus
    } else if front < workers {
        Limit::FrontEnd
    } else if good < 0.9 * workers {
        Limit::Batching
    } else if model.slowdown > 1.25 {
        Limit::MemoryBandwidth
    } else {
        Limit::Workers
    };
    Some(Predicted {
        configuration: configuration.clone(),
        goodput: good / crowding,
        p99_ms: best.p99_ms,
        batch_rows: best.batch_rows,
        limit,
    })
}

#[derive(Clone, Copy, Default)]
struct Simulated {
    bad: f64,
    p99_ms: f64,
    batch_rows: f64,
}

/// Simulates Poisson arrivals of the measured mix at a rate.
fn simulate(context: &Context<'_>, model: &mut Model<'_>, rate: f64) -> Simulated {
    let objective = context.deployment.objective.as_secs_f64();
    let seconds = SIMULATED_SECONDS.max(SIMULATED_OBJECTIVES * objective);
    let (least, most) = SIMULATED_REQUESTS;
    let count = (rate * seconds).clamp(least, most) as usize;
    let mut random = Xoshiro256::new(context.request.options.seed, 2);
    let mut at = 0.0;
    let mix = &model.base.scenario.requests;
    model.scenario.requests = (0..count)
        .map(|index| {
            at -= (1.0 - random.unit()).ln() / rate.max(1e-9);
            ServerRequest {
                class: mix[index % mix.len().max(1)].class,
                sent: Nanos((at * 1e9) as u64),
            }
        })
        .collect();
    let run = simulate_server(&model.scenario);
    let pairs = run.replies.iter().zip(&model.scenario.requests);
    let times = pairs.map(|(reply, request)| {
        let time = reply.written.0.saturating_sub(request.sent.0);
        (!reply.is_refused).then_some(time)
    });
    let mut answered: Vec<u64> = times.flatten().collect();
    answered.sort_unstable();
    let in_time = answered.partition_point(|&time| time as f64 <= objective * 1e9);
    let p99 = answered.len().saturating_sub(1) * 99 / 100;
    let (batches, rows) = run.batches.iter().fold((0, 0), |(batches, rows), of| {
        (batches + of.batches, rows + of.rows)
    });
    Simulated {
        bad: 1.0 - in_time as f64 / count.max(1) as f64,
        p99_ms: answered.get(p99).map_or(0.0, |&time| time as f64 / 1e6),
        batch_rows: rows as f64 / batches.max(1) as f64,
    }
}
