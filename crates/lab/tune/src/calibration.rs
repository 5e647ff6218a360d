//! Measures the costs of requests and batches on a few configurations: the first steps of the
//! recipe.
//!
//! One worker with one thread, then more threads while a lone request or the capacity gains from
//! them, then as many workers as fit on the cpus. The costs are those that the servers learn for
//! their own scheduling.

use std::time::Duration;

use albacore_bench::Staircase;
use albacore_simulator::ServerScenario;
use serde::Serialize;

use crate::Context;
use crate::configuration::{Configuration, thread_counts};
use crate::error::TuneError;
use crate::server::{Running, Servers, Window};

/// Duration of the closed loop with one client.
const LONE: Duration = Duration::from_millis(150);

/// Duration of the closed loop with a few clients, from which the initial rate is derived.
const FEW: Duration = Duration::from_millis(150);
const FEW_CLIENTS: usize = 8;

/// Windows of the capacity search: their duration, extended up to a limit until a window has enough
/// requests, and their number.
const SEARCH: Duration = Duration::from_millis(200);
const SEARCH_REQUESTS: f64 = 60.0;
const SEARCH_MAX: Duration = Duration::from_millis(800);
const SEARCHES: usize = 14;

/// Duration of the window from which costs are read.
const LEARN: Duration = Duration::from_millis(500);

/// Load at which costs are learned, as a share of the capacity: queues are short at this load.
const LEARN_LOAD: f64 = 0.8;

/// Threads are added while they shorten a lone request or raise the capacity by this factor.
const GAIN_MIN: f64 = 1.05;

/// Upper bound of the slowdown of batches by others: larger values are due to other programs.
const SLOWDOWN_MAX: f64 = 2.0;

/// Measurements of one configuration.
#[derive(Clone, Debug)]
pub(crate) struct Calibrated {
    pub(crate) configuration: Configuration,
    pub(crate) lone_p50: Duration,
    /// Goodput, in requests per second.
    pub(crate) capacity: f64,
    /// The window in which costs were learned.
    pub(crate) window: Window,
    /// Contains the costs and the requests of that window.
    pub(crate) scenario: ServerScenario,
    /// CPU seconds per request: of the server, and of the load generator.
    pub(crate) server_cpu: f64,
    pub(crate) generator_cpu: f64,
}

/// A step of the recipe and its result.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Step {
    pub step: &'static str,
    pub tried: String,
    pub showed: String,
}

/// Results of the calibration.
#[derive(Debug)]
pub(crate) struct Costs {
    /// One worker, by increasing number of threads.
    pub(crate) by_threads: Vec<Calibrated>,
    /// As many workers as fit on the cpus.
    pub(crate) full: Option<Calibrated>,
    pub(crate) steps: Vec<Step>,
}

impl Costs {
    pub(crate) fn measure(
        context: &mut Context<'_>,
        servers: &mut Servers,
    ) -> Result<Self, TuneError> {
        let mut costs = Self {
            by_threads: Vec::new(),
            full: None,
            steps: Vec::new(),
        };
        let counts = thread_counts(context.cpus.count());
        refuse_infeasible(context, servers, &counts)?;
        for threads in counts {
            let configuration = sized(context, 1, threads);
            let step = match threads {
                1 => "one process of one thread",
                _ => "more threads",
            };
            let calibrated = costs.step(context, servers, step, &configuration)?;
            let best = costs.by_threads.iter();
            let (fastest, most) = best.fold((Duration::MAX, 0.0_f64), |(time, rate), of| {
                (time.min(of.lone_p50), rate.max(of.capacity))
            });
            let gains = calibrated.lone_p50.mul_f64(GAIN_MIN) < fastest
                || calibrated.capacity > most * GAIN_MIN;
            costs.by_threads.push(calibrated);
            if !gains {
                break;
            }
        }
        let cpus = context.cpus.count();
        let several = costs.by_threads.iter();
        let several = several.filter(|of| 2 * usize::from(of.configuration.threads) <= cpus);
        let threads = several.max_by(|a, b| a.per_cpu().total_cmp(&b.per_cpu()));
        let threads = threads.map_or(1, |of| of.configuration.threads);
        let workers = cpus / usize::from(threads);
        if workers > 1 {
            let configuration = sized(context, u16::try_from(workers).unwrap_or(u16::MAX), threads);
            let full = costs.step(context, servers, "more processes", &configuration)?;
            costs.full = Some(full);
        }
        Ok(costs)
    }

    fn step(
        &mut self,
        context: &mut Context<'_>,
        servers: &mut Servers,
        step: &'static str,
        configuration: &Configuration,
    ) -> Result<Calibrated, TuneError> {
        context.stop_if_interrupted()?;
        let bad_max = context.deployment.bad_max();
        let running = servers.with(context, configuration)?;
        let calibrated = calibrate(running, bad_max)?;
        let window = &calibrated.window;
        let step = Step {
            step,
            tried: format!("{} x {}", configuration.workers, configuration.threads),
            showed: format!(
                "a lone request takes {:.2} ms; about {:.0} requests/s within the objective; batches of {:.1} rows",
                calibrated.lone_p50.as_secs_f64() * 1e3,
                calibrated.capacity,
                window.batch_rows
            ),
        };
        context.report(&format!("{}: {}: {}", step.step, step.tried, step.showed));
        self.steps.push(step);
        Ok(calibrated)
    }

    /// The costs for this number of threads per worker.
    pub(crate) fn of_threads(&self, threads: u16) -> Option<&Calibrated> {
        let mut all = self.by_threads.iter();
        all.find(|of| of.configuration.threads == threads)
    }

    /// Slowdown of a batch when all workers are busy relative to when one is, due to memory
    /// bandwidth and shared caches. At least 1.
    pub(crate) fn slowdown(&self) -> f64 {
        let factor = || {
            let full = self.full.as_ref()?;
            let alone = self.of_threads(full.configuration.threads)?;
            Some(row_time(&full.scenario) / row_time(&alone.scenario))
        };
        let factor = factor().filter(|f| f.is_finite());
        factor.map_or(1.0, |f| f.clamp(1.0, SLOWDOWN_MAX))
    }
}

/// Time per row in a large batch, nanoseconds.
fn row_time(scenario: &ServerScenario) -> f64 {
    let queues = scenario.queues.iter().map(|queue| {
        let line = queue.profile.mean_cost.unwrap_or(queue.time);
        line.alpha_ns()
    });
    queues.sum()
}

impl Calibrated {
    /// Requests per CPU second of the server.
    fn per_cpu(&self) -> f64 {
        1.0 / self.server_cpu.max(1e-9)
    }
}

fn sized(context: &Context<'_>, workers: u16, threads: u16) -> Configuration {
    Configuration {
        workers,
        threads,
        policy: albacore_api::BatchingPolicy::Auto,
        max_delay: None,
        window: None,
        ..context.deployment.current.clone()
    }
}

/// The latency of a lone request is a lower bound: if it exceeds the objective with the fewest and
/// with the most threads, no configuration meets it.
fn refuse_infeasible(
    context: &mut Context<'_>,
    servers: &mut Servers,
    counts: &[u16],
) -> Result<(), TuneError> {
    let objective = context.deployment.objective;
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let mut fastest: Option<Duration> = None;
    let ends = [counts.first(), counts.last()];
    for threads in ends.into_iter().flatten() {
        let configuration = sized(context, 1, *threads);
        let running = servers.with(context, &configuration)?;
        let lone = running.bench.closed_loop(LONE, 1)?;
        // a server that has learned its costs refuses requests that it cannot answer in time
        if lone.good + lone.late == 0 {
            continue;
        }
        if lone.p50 <= objective {
            return Ok(());
        }
        fastest = Some(fastest.map_or(lone.p99, |fastest| fastest.min(lone.p99)));
    }
    let advice =
        "a smaller model, fewer rows in a request or faster cpus would help; more pods do not";
    let objective = ms(objective);
    Err(TuneError::Infeasible(match fastest {
        Some(fastest) => format!(
            "no configuration meets an objective of {objective:.3} ms: a request alone takes {:.3} ms (99th \
             percentile). The nearest objective that can be met is about {:.2} ms, at no more than {:.0} requests/s of \
             a worker; {advice}",
            ms(fastest),
            ms(fastest) * 1.2,
            1.0 / fastest.as_secs_f64().max(1e-9)
        ),
        None => format!(
            "no configuration meets an objective of {objective:.3} ms: the server refuses even a \
             request alone, because it takes longer: give a longer --latency; {advice}"
        ),
    }))
}

fn calibrate(running: &mut Running, bad_max: f64) -> Result<Calibrated, TuneError> {
    let bench = &running.bench;
    let lone = bench.closed_loop(LONE, 1)?;
    let few = bench.closed_loop(FEW, FEW_CLIENTS)?;
    let capacity = find_capacity(running, few.sent as f64 / FEW.as_secs_f64(), bad_max)?;
    let schedule = bench.window(capacity * LEARN_LOAD, LEARN, 1)?;
    let load = running.host_load();
    let learned = bench.learn(&schedule)?;
    let requests = learned.run.probe.report.sent.max(1) as f64;
    let seconds = schedule.seconds();
    let window = running.window_of_run(&learned.run, &load, seconds);
    Ok(Calibrated {
        configuration: running.configuration.clone(),
        lone_p50: lone.p50,
        capacity,
        server_cpu: window.cpus * seconds / requests,
        generator_cpu: window.generator_cpus * seconds / requests,
        window,
        scenario: learned.scenario,
    })
}

/// The rate at which one of two windows is within the objective, in requests per second.
fn find_capacity(running: &Running, first: f64, bad_max: f64) -> Result<f64, TuneError> {
    let mut stairs = Staircase::new(first.max(10.0));
    let mut is_answered = false;
    for turn in 0..SEARCHES {
        let length = Duration::from_secs_f64(SEARCH_REQUESTS / stairs.rate.max(1.0));
        let length = length.clamp(SEARCH, SEARCH_MAX);
        let schedule = running.bench.window(stairs.rate, length, turn as u64)?;
        let probe = running.bench.probe(&schedule)?;
        is_answered |= probe.report.goodput > 0.0;
        stairs.record(probe.report.bad_rate <= bad_max);
    }
    match is_answered {
        true => Ok(stairs.threshold()),
        false => Err(TuneError::Failed(format!(
            "{}: no request was answered within the objective: the machine may be busy",
            running.configuration.name()
        ))),
    }
}
