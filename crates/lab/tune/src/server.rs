//! Servers with candidate configurations: `albacore run`, one for each, all of them up at once so
//! that their windows can take turns.

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

/// A server loads its models and has its threads placed within this.
const START_PATIENCE: Duration = Duration::from_secs(60);

/// Longer than a server takes to answer what it has accepted.
const STOP_PATIENCE: Duration = Duration::from_secs(45);

/// Connections of an open loop: more than are in flight at the rates that a server holds.
const CONNECTIONS: usize = 1024;

/// Load before a window that is not measured: the server had none since its last window.
const SETTLE: Duration = Duration::from_millis(60);

/// Load on a new server that is not measured: it loads pages and learns its costs.
const WARMING: Duration = Duration::from_millis(400);
const WARMING_CLIENTS: usize = 8;

/// How often a disturbed window is repeated.
const REPEATS_MAX: usize = 2;

/// What was seen in one window.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Window {
    /// Requests a second that were sent.
    pub rate: f64,
    /// Requests a second that were answered within the objective.
    pub goodput: f64,
    /// Share of requests that were refused or late.
    pub bad: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    /// Cpus that the server used.
    pub cpus: f64,
    /// Cpus that the load generator took from the server.
    pub generator_cpus: f64,
    /// Share of the time in which an event loop worked, of all of them.
    pub front_busy: f64,
    /// Share of the time in which a worker had a batch, of all of them.
    pub workers_busy: f64,
    /// Mean rows of a batch.
    pub batch_rows: f64,
    /// Why the window says little of the server: other processes, or a late load generator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disturbed: Option<String>,
}

/// A server with a candidate's configuration.
pub(crate) struct Running {
    pub(crate) configuration: Configuration,
    service: Service,
    pub(crate) bench: Bench,
    /// Event loops that it has.
    pub(crate) loops: usize,
    /// The load generator takes cpu time from it.
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

    /// The server with this configuration; it is started if it does not run yet.
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

    /// Ends all servers but those with these configurations.
    ///
    /// # Errors
    /// A server does not end.
    pub(crate) fn keep(&mut self, kept: &[&Configuration]) -> Result<(), TuneError> {
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
    /// Sends load for this long after some that is not measured; again while other processes
    /// disturb it, a few times.
    ///
    /// # Errors
    /// The server has ended, or the load generator fails.
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
            let window = self.seen(&run, &load, schedule.seconds());
            if window.disturbed.is_none() || repeats == REPEATS_MAX {
                return Ok(window);
            }
            repeats += 1;
        }
    }

    pub(crate) fn host_load(&self) -> HostLoad {
        HostLoad::start(Pid(i32::try_from(self.service.pid()).unwrap_or_default()))
    }

    /// The figures of a run since `load`.
    pub(crate) fn seen(&self, run: &MeasuredRun, load: &HostLoad, seconds: f64) -> Window {
        let MeasuredRun { probe, usage } = run;
        let (used, host) = load.end();
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let report = &probe.report;
        let workers = f64::from(self.configuration.workers);
        let late = || {
            let lag = ms(report.lag_p99);
            probe
                .is_behind
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
