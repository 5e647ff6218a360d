//! Servers with candidate configurations: one `albacore run` for each, all running at the same time
//! so that their windows can be interleaved.

use std::time::Duration;

use albacore_bench::comparison::MeasuredRun;
use albacore_bench::{Bench, Spec};
use albacore_experiment::{HostLoad, disturbance};
use albacore_live_bench::service::Service;
use albacore_os::Pid;
use serde::Serialize;

use crate::Context;
use crate::configuration::Configuration;
use crate::error::TuneError;

/// Startup timeout, including loading of models and placement of threads.
const START_PATIENCE: Duration = Duration::from_secs(60);

/// Shutdown timeout: longer than a server takes to answer accepted requests.
const STOP_PATIENCE: Duration = Duration::from_secs(45);

/// Connections of an open loop: more than are in flight at sustainable rates.
const CONNECTIONS: usize = 1024;

/// Unmeasured load before a window: the server was idle since its last window.
const SETTLE: Duration = Duration::from_millis(60);

/// Unmeasured load on a new server, which faults in pages and learns its costs.
const WARMING: Duration = Duration::from_millis(400);
const WARMING_CLIENTS: usize = 8;

/// Maximum number of repetitions of a disturbed window.
const REPEATS_MAX: usize = 2;

/// Measurements of one window.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Window {
    /// Requests sent per second.
    pub rate: f64,
    /// Requests per second answered within the objective.
    pub goodput: f64,
    /// Share of requests refused or late.
    pub bad: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    /// Cpus used by the server.
    pub cpus: f64,
    /// Cpus that the load generator took from the server.
    pub generator_cpus: f64,
    /// Busy share of the event loops, mean over all of them.
    pub front_busy: f64,
    /// Share of the time in which a worker had a batch, mean over all of them.
    pub workers_busy: f64,
    /// Mean rows of a batch.
    pub batch_rows: f64,
    /// Cause of a disturbance that makes the window unreliable: other processes, or a late load
    /// generator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disturbed: Option<String>,
}

/// A server with a candidate's configuration.
pub(crate) struct Running {
    pub(crate) configuration: Configuration,
    service: Service,
    pub(crate) bench: Bench,
    /// Number of its event loops.
    pub(crate) loops: usize,
    /// Whether the load generator takes CPU time from it.
    is_time_shared: bool,
}

pub(crate) struct Servers {
    running: Vec<Running>,
    started: usize,
}

impl Servers {
    pub(crate) fn new() -> Self {
        Self {
            running: Vec::new(),
            started: 0,
        }
    }

    /// The server with this configuration; started if not running yet.
    ///
    /// # Errors
    /// It does not start, or does not report its models.
    pub(crate) fn with(
        &mut self,
        context: &Context<'_>,
        configuration: &Configuration,
    ) -> Result<&mut Running, TuneError> {
        let known = |running: &Running| running.configuration == *configuration;
        let index = match self.running.iter().position(known) {
            Some(index) => index,
            None => {
                self.started += 1;
                let started = start(context, configuration, self.started)?;
                self.running.push(started);
                self.running.len() - 1
            }
        };
        Ok(&mut self.running[index])
    }

    /// Stops all servers except those with these configurations.
    ///
    /// # Errors
    /// A server does not exit.
    pub(crate) fn stop_except(&mut self, kept: &[&Configuration]) -> Result<(), TuneError> {
        let running = std::mem::take(&mut self.running);
        for one in running {
            match kept.contains(&&one.configuration) {
                true => self.running.push(one),
                false => stop(one)?,
            }
        }
        Ok(())
    }
}

fn stop(running: Running) -> Result<(), TuneError> {
    let stopped = running.service.stop(STOP_PATIENCE);
    stopped
        .map(drop)
        .map_err(|e| TuneError::Failed(sentence(&e.to_string())))
}

fn sentence(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

fn start(
    context: &Context<'_>,
    configuration: &Configuration,
    number: usize,
) -> Result<Running, TuneError> {
    let folder = &context.request.folder;
    let file = folder.join(format!("candidate-{number}.yaml"));
    let object = context.deployment.with(configuration);
    let text = serde_json::to_string_pretty(&object);
    let text = text.map_err(|e| TuneError::Failed(format!("{}: {e}", file.display())))?;
    std::fs::write(&file, text + "\n").map_err(TuneError::file(&file))?;
    let log = folder.join("servers.log");
    let mut options = vec!["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"];
    let cpus = context.request.cpus.as_ref().map(ToString::to_string);
    options.extend(cpus.iter().flat_map(|cpus| ["--cpus", cpus]));
    let failed = |e: &dyn std::fmt::Display| {
        let what = sentence(&format!("{e:#}"));
        let (name, log) = (configuration.name(), log.display());
        TuneError::Failed(format!(
            "{name}: the server does not start: {what}; see {log}"
        ))
    };
    let start = || Service::start_with_log(&file, &options, &log).map_err(|e| failed(&e));
    let mut service = context.cpus.start_apart(start)?;
    let address = service.listening().map_err(|e| failed(&e))?;
    service.ready(START_PATIENCE).map_err(|e| failed(&e))?;
    let request = context.request;
    let bench = Bench::new(Spec {
        url: format!("http://{address}"),
        models: context.deployment.models.clone(),
        rates: Vec::new(),
        is_search: true,
        length: Duration::from_secs(1),
        objective: context.deployment.objective,
        percentile: context.deployment.percentile,
        arrivals: request.options.arrivals.clone(),
        mix: request.options.mix.clone(),
        features: None,
        input: None,
        is_binary: true,
        connections: CONNECTIONS,
        seed: request.options.seed,
        pids: vec![service.pid()],
    })?;
    bench.closed_loop(WARMING, WARMING_CLIENTS)?;
    let loops = bench.front_threads()?;
    Ok(Running {
        configuration: configuration.clone(),
        service,
        bench,
        loops,
        is_time_shared: context.cpus.is_time_shared(),
    })
}

impl Running {
    /// Sends load for this long, after an unmeasured part; repeats it a few times while other
    /// processes disturb it.
    ///
    /// # Errors
    /// The server has exited, or the load generator fails.
    pub(crate) fn window(
        &self,
        rate: f64,
        length: Duration,
        seed: u64,
    ) -> Result<Window, TuneError> {
        let mut repeats = 0;
        // bound: REPEATS_MAX repeats
        loop {
            self.bench.probe(&self.bench.window(rate, SETTLE, !seed)?)?;
            let schedule = self.bench.window(rate, length, seed)?;
            let load = self.host_load();
            let run = self.bench.probe_usage(&schedule)?;
            let window = self.window_of_run(&run, &load, schedule.seconds());
            if window.disturbed.is_none() || repeats == REPEATS_MAX {
                return Ok(window);
            }
            repeats += 1;
        }
    }

    pub(crate) fn host_load(&self) -> HostLoad {
        HostLoad::start(Pid(i32::try_from(self.service.pid()).unwrap_or_default()))
    }

    /// Figures of a run, with the host load since `load`.
    pub(crate) fn window_of_run(&self, run: &MeasuredRun, load: &HostLoad, seconds: f64) -> Window {
        let MeasuredRun { probe, usage } = run;
        let (used, host) = load.end();
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let report = &probe.report;
        let workers = f64::from(self.configuration.workers);
        let late = || {
            let lag = ms(report.lag_p99);
            probe
                .is_generator_late
                .then(|| format!("the load generator was {lag:.1} ms late"))
        };
        Window {
            rate: probe.rate,
            goodput: report.goodput,
            bad: report.bad_rate,
            p50_ms: ms(report.p50),
            p99_ms: ms(report.p99),
            cpus: used.cpu_seconds / seconds,
            front_busy: usage.front_cpu / seconds / self.loops as f64,
            workers_busy: usage.busy / seconds / workers,
            batch_rows: usage.rows as f64 / usage.batches.max(1) as f64,
            generator_cpus: match self.is_time_shared {
                true => load.generator_seconds() / seconds,
                false => 0.0,
            },
            disturbed: disturbance(&host).or_else(late),
        }
    }
}
